"""The systems that are compared: how to start each one and how to talk to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.serving import ROOT, Address
from benchmarks.table.records import OUR_CELL, OUR_MODES, OURS
from benchmarks.workloads.base import Workload
from loadgen.targets.base import TargetSpec

_PEERS = ROOT / ".venv-peers"


@dataclass(frozen=True, kw_only=True)
class System:
    """A serving system in one configuration.

    Attributes:
        name: A short name, for tables.
        package: The name of its Python package; its version is reported.
        note: How it is configured, for readers of the table.
        environment: The folder below ``.venv-peers`` in which it is installed; empty for DyOrc's own environment.
        module: Its server, run as ``python -m``; takes ``--workload`` and ``--port`` (see `benchmarks/peers`).
        options: More arguments for the server.
        makes_target: The import path of a function that makes its client, for systems that need several of their own requests for
            one of the workload's; for the others, requests are bodies of `benchmarks.wire`.
        cannot: Workloads that it cannot express, and why.
    """

    name: str
    package: str
    note: str
    environment: str = ""
    module: str = ""
    options: tuple[str, ...] = ()
    makes_target: str = ""
    cannot: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def python(self) -> Path:
        return _PEERS / self.environment / "bin" / "python" if self.environment else Path(sys.executable)

    def is_installed(self) -> bool:
        return self.python.exists()

    def version(self) -> str:
        """Returns the version of its package, as its own interpreter reports it."""
        question = f"from importlib.metadata import version; print(version({self.package!r}))"
        return subprocess.run([str(self.python), "-c", question], capture_output=True, text=True, check=True).stdout.strip()

    def command(self, workload: Workload) -> list[str]:
        """Returns the command that starts it with the workload's programs, on any free port."""
        if self.name in OUR_MODES:
            return [str(self.python), "-m", "dyorc.cli.main", "serve", workload.app, "--port", "0", *self.options]
        return [str(self.python), "-m", self.module, "--workload", workload.name, "--port", "0", *self.options]

    def target(self, workload: Workload, address: Address) -> TargetSpec:
        """Returns how to send it requests of the workload once it runs."""
        if self.name in OUR_MODES:
            return TargetSpec(protocol="http", url=address.url, model=workload.app.rpartition(":")[2])
        if self.makes_target:
            options = {"workload": workload.name, "grpc": f"{address.host}:{address.grpc_port}"}
            return TargetSpec(protocol=self.makes_target, url=address.url, options=options)
        return TargetSpec(protocol="raw", url=address.url, model="/infer", codec="benchmarks.wire")


def _ray_serve(name: str, mode: str, note: str) -> System:
    return System(
        name=name,
        package="ray",
        note=note,
        environment="ray_serve",
        module="benchmarks.peers.ray_serve.server",
        options=("--mode", mode),
    )


def _peer(name: str, package: str, note: str) -> System:
    return System(name=name, package=package, note=note, environment=name, module=f"benchmarks.peers.{name}.server")


_ALL = (
    System(name=OURS, package="dyorc-core", note="default settings; requests over HTTP in the Open Inference Protocol"),
    System(name=OUR_CELL, package="dyorc-core", note="the same in one process, without Ray", options=("--in-process",)),
    _ray_serve("ray_default", "default", "composed by deployment handles, with `@serve.batch`, behind Ray Serve's own proxy"),
    _ray_serve(
        "ray_throughput",
        "throughput",
        "composed by deployment handles, with `@serve.batch`, in throughput-optimized mode, behind HAProxy",
    ),
    _ray_serve("ray_conserving", "work_conserving", "like ray_throughput, but a batch starts whenever a program is free"),
    System(
        name="triton",
        package="nvidia-pytriton",
        note="one model of the Python back end per program, with dynamic batching; the client branches between models",
        environment="triton",
        module="benchmarks.peers.triton.server",
        makes_target="benchmarks.peers.triton.client:make_target",
    ),
    _peer("bentoml", "bentoml", "one service per program, composed by `bentoml.depends`, with adaptive batching"),
    _peer("litserve", "litserve", "all programs in one LitAPI; whole requests are batched"),
    _peer("mosec", "mosec", "all programs in one worker; whole requests are batched"),
)

SYSTEMS = {system.name: system for system in _ALL}
