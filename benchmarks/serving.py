"""Runs a server while it is measured, ours or a peer's, in a separate process."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dyorc.testing import ServerProcess

ROOT = Path(__file__).resolve().parents[1]

# Ray starts its workers with a niceness of 15; other systems' processes have none.
_ENVIRONMENT = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}


class BenchmarkError(Exception):
    """A server did not start or stop as it should, or a measurement failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens; the gRPC port is None if it has none."""

    host: str
    http_port: int
    grpc_port: int | None

    @property
    def url(self) -> str:
        """The URL for HTTP."""
        return f"http://{self.host}:{self.http_port}"


@contextmanager
def serving(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Generator[tuple[Address, ServerProcess]]:
    """Runs a server and yields where it listens, once it is ready. None of its processes is left afterwards.

    The repository's root is its working directory, from which it also imports modules.

    Raises:
        BenchmarkError: If it does not become ready, or does not stop. The message shows what it printed.
    """
    with ServerProcess(command, environment=_ENVIRONMENT | dict(environment or {}), folder=ROOT) as server:
        with _as_benchmark_error():
            server.wait_until_ready()
        http = urlsplit(server.url)
        grpc_port = server.grpc_address.rpartition(":")[2]
        yield (
            Address(host=http.hostname or "", http_port=http.port or 80, grpc_port=int(grpc_port) if grpc_port else None),
            server,
        )
        with _as_benchmark_error():
            server.stop()


@contextmanager
def _as_benchmark_error() -> Generator[None]:
    try:
        yield
    except RuntimeError as error:
        raise BenchmarkError(str(error)) from error
