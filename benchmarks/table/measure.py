"""Measures one system on one workload: starts it, warms it up, applies each load, and stops it."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from benchmarks import meter
from benchmarks.devices.program import DEVICES_VARIABLE, FOLDER_VARIABLE
from benchmarks.serving import BenchmarkError, serving
from benchmarks.table.records import OUR_MODES
from benchmarks.table.systems import System
from benchmarks.workloads.base import Workload
from dyorc.testing import ServerProcess
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.results import RunResult, ServerFigures
from loadgen.run import run
from loadgen.targets.base import TargetSpec

_NUM_WARM_UP_CLIENTS = 8
_WARM_UPS_S = (1.0, 5.0, 20.0)
_NICENESS = -10
"""The load generator's. It shares the cores with the server, and its own wait for them must not count as the server's delay."""
_GUESSES = ("num_speculations", "num_commits", "num_squashes")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How long each measurement takes.

    Attributes:
        duration_s: The least duration of a run. It grows, up to `max_duration_s`, until `num_requests` are due.
        probe_s: The least duration of a step in the search for the highest rate.
    """

    duration_s: float
    max_duration_s: float
    num_requests: int
    probe_s: float
    warm_up_s: float = 0.4
    drain_s: float = 3.0

    def load(self, rate_rps: float, slo_s: float, seed: int) -> Load:
        """Returns the load for a run at this rate."""
        duration_s = min(self.max_duration_s, max(self.duration_s, self.num_requests / rate_rps))
        return Load(
            rate_rps=rate_rps,
            warm_up_s=self.warm_up_s,
            duration_s=duration_s,
            drain_s=self.drain_s,
            slo_s=slo_s,
            niceness=_NICENESS,
            seed=seed,
        )

    def probe(self, rate_rps: float, slo_s: float, seed: int) -> Load:
        """Returns the load for a step of the search."""
        duration_s = min(self.max_duration_s, max(self.probe_s, self.num_requests / rate_rps / 2))
        return Load(
            rate_rps=rate_rps,
            warm_up_s=0.3,
            duration_s=duration_s,
            drain_s=1.0,
            slo_s=slo_s,
            niceness=_NICENESS,
            seed=seed,
        )


class Bench:
    """A running system, ready to be measured.

    Attributes:
        system: Its name.
    """

    def __init__(self, system: System, pool: Pool, spec: TargetSpec, meter_folder: Path, server: ServerProcess) -> None:
        self.system = system.name
        self._pool = pool
        self._spec = spec
        self._meter = meter_folder
        self._server = server

    def pause(self) -> None:
        """Stops all processes of the server."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets the server go on."""
        self._signal(signal.SIGCONT)

    def pids(self) -> list[int]:
        """Returns the ids of the server's processes."""
        return self._server.pids()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def run(self, load: Load) -> RunResult:
        """Makes one measurement."""
        watch = _Watch(self._meter, self._spec.url if self.system in OUR_MODES else "")
        result = run(self.system, self._spec, self._pool, load, server=watch)
        num_answered = max(1, result.counts.correct + result.counts.wrong)
        device_ms = {name: ms / num_answered for name, ms in watch.device_ms.items()}
        return structs.replace(result, server=structs.replace(result.server, device_ms_per_request=device_ms))

    def warm_up(self) -> float:
        """Runs a closed loop of a few clients for a second or more, so that everything has been used once. Returns right answers
        per second.

        Raises:
            BenchmarkError: If there was no right answer.
        """
        for duration_s in _WARM_UPS_S:
            load = Load(arrivals="closed", num_clients=_NUM_WARM_UP_CLIENTS, warm_up_s=0.0, duration_s=duration_s)
            num_correct = run(self.system, self._spec, self._pool, load).counts.correct
            if num_correct:
                return num_correct / duration_s
        raise BenchmarkError(f"{self.system} gave no right answer in {_WARM_UPS_S[-1]:g} s")


@contextmanager
def started(system: System, workload: Workload, pool: Pool, recordings: Path | None = None) -> Generator[Bench]:
    """Runs a system while it is entered.

    Args:
        recordings: What the programs return, if they run on emulated accelerators.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        counted, devices = Path(name) / "meter", Path(name) / "devices"
        counted.mkdir()
        devices.mkdir()
        environment = {meter.FOLDER_VARIABLE: str(counted)}
        if recordings is not None:
            environment |= {FOLDER_VARIABLE: str(recordings), DEVICES_VARIABLE: str(devices)}
        if recordings is not None and system.name in OUR_MODES:
            environment["RAY_OVERRIDE_RESOURCES"] = json.dumps({"GPU": len(workload.programs)})
        with serving(system.command(workload), environment) as (address, server):
            bench = Bench(system, pool, system.target(workload, address), counted, server)
            try:
                yield bench
            finally:
                bench.resume()


class _Watch:
    """Reads the meter, and DyOrc's own counts of guesses, before and after the measured time."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        self._before: meter.Counted = {}
        self._guesses_before: Mapping[str, float] = {}
        self.device_ms: dict[str, float] = {}

    def start(self) -> None:
        self._before = meter.read(self._folder)
        self._guesses_before = self._guesses()

    def stop(self) -> ServerFigures:
        counted = meter.difference(self._before, meter.read(self._folder))
        guesses = self._guesses()
        self.device_ms = {name: seconds * 1e3 for name, (seconds, _) in counted.items()}
        return ServerFigures(
            batch_sizes={name: {str(size): number for size, number in sizes.items()} for name, (_, sizes) in counted.items()},
            speculation={name: value - self._guesses_before.get(name, 0) for name, value in guesses.items()},
        )

    def _guesses(self) -> dict[str, float]:
        if not self._url:
            return {}
        with urllib.request.urlopen(f"{self._url}/status", timeout=10) as response:
            counts = json.load(response)["speculation"]
        return {name: counts[name] for name in _GUESSES}
