"""A real `dyorc serve` in a separate process (`dyorc.testing`), as the tests start and query it."""

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import httpx
import psutil

from dyorc.testing import ServerProcess, serve_command
from dyorc.testing import serving as serving_anything
from tests.deadlines import TIMEOUT_S

Answer = TypeVar("Answer")

_WORKFLOWS = Path(__file__).parent / "workflows"
COMMAND = str(Path(sys.executable).with_name("dyorc"))
"""The command as a user calls it."""

_RETRY_S = 0.01
_READY_TIMEOUT_S = 600.0
_REQUEST_TIMEOUT_S = 300.0
"""Both are long enough for a machine under load."""


def target(file: str, name: str) -> str:
    """Returns the target of one of the tests' workflows, as the command line names it."""
    return f"{_WORKFLOWS / file}.py:{name}"


def server_of(targets: Sequence[str], *, in_process: bool = False, **environment: str) -> ServerProcess:
    """Returns a server that logs what its replicas do."""
    return ServerProcess(serve_command(*targets, "--verbose", in_process=in_process), environment=environment)


@contextlib.contextmanager
def serving(targets: Sequence[str], *, in_process: bool = False, **environment: str) -> Iterator[ServerProcess]:
    """Runs a server and yields it once it is ready; it logs what its replicas do."""
    with serving_anything(
        *targets, "--verbose", in_process=in_process, environment=environment, timeout_s=_READY_TIMEOUT_S
    ) as server:
        yield server


def client_of(server: ServerProcess, key: str = "") -> httpx.Client:
    """Returns a client that keeps many connections, and sends this API key."""
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
    headers = {"X-API-Key": key} if key else {}
    return httpx.Client(base_url=server.url, headers=headers, timeout=_REQUEST_TIMEOUT_S, limits=limits, trust_env=False)


def despite_kills(ask: Callable[[], Answer]) -> Answer:
    """Returns what `ask` returns. While a process that shares the port ends, the kernel may still give it new connections; they
    are reset, and `ask`, which has to make a new one, is called again.

    Raises:
        httpx.TransportError: If connections are still lost after a long time, or for another reason.
    """
    give_up_at_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except (httpx.NetworkError, httpx.RemoteProtocolError):
            if time.monotonic() > give_up_at_s:
                raise
            time.sleep(_RETRY_S)


def replica_pids(server: ServerProcess, program: str) -> list[int]:
    """Returns the processes of a program's replicas that are alive, the oldest first."""
    found = re.findall(rf"replica_joined\s.*?\bpid=(\d+) program={re.escape(program)} ", server.output)
    return [int(pid) for pid in dict.fromkeys(found) if psutil.pid_exists(int(pid))]
