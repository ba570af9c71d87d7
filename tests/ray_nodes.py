"""A Ray cluster of two nodes, one on each of two hosts (`tests.two_hosts`): real Ray, which DyOrc only connects to."""

import contextlib
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from dyorc.config import TransportConfig
from dyorc.transport.arena_file import sweep
from tests.deadlines import wait_until
from tests.leaks import no_leaks
from tests.two_hosts import Host, TwoHosts, two_hosts

RAY_PORT = 6399  # each host has all ports to itself
_RAY = str(Path(sys.executable).with_name("ray"))
_OBJECT_STORE_BYTES = 100_000_000

SOON_NOTICED = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""What docs/reference/operations.md recommends for the head: a node that has died is noticed in seconds."""


@contextlib.contextmanager
def ray_environment() -> Generator[tuple[Path, Mapping[str, str]]]:
    """Yields a folder for a cluster's files, and the environment that every process of the cluster needs."""
    with tempfile.TemporaryDirectory(prefix="t-", ignore_cleanup_errors=True) as folder:
        token = Path(folder, "token")
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_hex(32))  # Ray asks for one where nodes are not on loopback; all need the same
        environment = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        yield Path(folder), {**environment, "TMPDIR": folder}  # a host that is killed leaves files


@contextlib.contextmanager
def ray_nodes(folder: Path, monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> Generator[TwoHosts]:
    """Starts two hosts with a Ray node on each: `host_a` on the first, where the caller is
    meanwhile, and `host_b` on the second.
    """
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with no_leaks():
        with two_hosts() as hosts:
            start_head(hosts.first, folder)
            start_node(hosts.second, hosts.first, folder)
            with hosts.first.entered():
                yield hosts
        sweep(TransportConfig().arena_folder)  # of those that were killed with their host


def start_head(host: Host, folder: Path) -> None:
    """Starts a cluster."""
    head = ("--head", f"--port={RAY_PORT}", "--include-dashboard=false", f"--temp-dir={folder / 'ray'}", "--num-gpus=1")
    _start_ray(host, "host_a", folder, *head)


def start_node(host: Host, head: Host, folder: Path) -> None:
    """Adds a node to it."""
    _start_ray(host, "host_b", folder, f"--address={head.address}:{RAY_PORT}", "--labels=disk=fast")


def _start_ray(host: Host, resource: str, folder: Path, *options: str) -> None:
    """Starts a node; returns once it is up. The host ends it: `ray stop` would end every Ray of this machine."""
    output = folder / f"{resource}.log"
    resources = json.dumps({resource: 1})
    command = [_RAY, "start", "--block", f"--node-ip-address={host.address}", "--num-cpus=2", f"--resources={resources}"]
    with output.open("wb") as file:
        process = host.start([*command, f"--object-store-memory={_OBJECT_STORE_BYTES}", *options], stdout=file.fileno())
    try:
        wait_until(
            lambda: b"Ray runtime started" in output.read_bytes() or process.poll() is not None, f"Ray starts on {resource}"
        )
        assert process.poll() is None
    except AssertionError as error:
        raise AssertionError(f"{error}; it printed:\n{output.read_text()}") from None
