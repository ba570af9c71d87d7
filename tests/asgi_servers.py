"""Foreign ASGI servers in separate processes, as the tests start them."""

import contextlib
import re
import sys
from collections.abc import Iterator

from dyorc.testing import ServerProcess, serve_command

_SERVERS = {
    "uvicorn": (["-m", "uvicorn", "--port", "0"], r"Uvicorn running on (\S+)"),
    "hypercorn": (["-m", "hypercorn", "--bind", "127.0.0.1:0"], r"Running on (\S+)"),
    "gunicorn": (
        ["-W", "ignore", "-m", "gunicorn", "-k", "uvicorn_worker.UvicornWorker", "--workers", "2", "--bind", "127.0.0.1:0"],
        r"Listening at: (\S+)",
    ),
}
_LIMIT_S = 60.0


@contextlib.contextmanager
def asgi_server(kind: str, target: str, **environment: str) -> Iterator[tuple[ServerProcess, str]]:
    """Runs an application in a foreign server; yields it with its URL.

    Args:
        kind: ``uvicorn``, ``hypercorn`` or ``gunicorn``, the last with two processes.
        target: Such as ``tests.workflows.own_application:server``.
    """
    command, pattern = _SERVERS[kind]
    with ServerProcess([sys.executable, *command, target], environment=environment) as process:
        yield process, process.wait_for(pattern, _LIMIT_S)[1]
        if process.process.poll() is None:
            process.stop()


@contextlib.contextmanager
def own_server(*arguments: str, **environment: str) -> Iterator[tuple[ServerProcess, str]]:
    """Runs `dyorc serve` in one process."""
    with ServerProcess(serve_command(*arguments, in_process=True), environment=environment) as process:
        process.wait_until_ready(_LIMIT_S)
        yield process, process.url
        if process.process.poll() is None:
            process.stop()


def errors_in(process: ServerProcess) -> list[str]:
    """Returns what a server has printed of errors in its own code."""
    return re.findall(r"^.*Task exception was never retrieved.*$|^.*was never awaited.*$", process.output, re.MULTILINE)
