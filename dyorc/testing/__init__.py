"""Runs a server for a while: for testing a workflow as its clients see it, for demonstrations and for measurements."""

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from dyorc.testing.server_process import START_TIMEOUT_S, ServerProcess

__all__ = ["START_TIMEOUT_S", "ServerProcess", "serve_command", "serving"]


def serve_command(*arguments: str, in_process: bool = False) -> list[str]:
    """Returns the command for `dyorc serve` on a free port, with these targets and options.

    Args:
        in_process: Whether the programs run in the server's process, without Ray: it then starts in seconds.
    """
    mode = ["--in-process"] if in_process else []
    return [sys.executable, "-P", "-m", "dyorc.cli.main", "serve", *arguments, *mode, "--port", "0"]


@contextmanager
def serving(
    *arguments: str,
    in_process: bool = False,
    environment: Mapping[str, str] | None = None,
    show: Callable[[str], None] | None = None,
    timeout_s: float = START_TIMEOUT_S,
) -> Generator[ServerProcess]:
    """Runs `dyorc serve` in a separate process. Yields once every program is ready, and stops the server at the end.

    The server keeps its jobs in a temporary folder, apart from the user's own.

    Args:
        arguments: What to serve, e.g. ``app.py:classify``, and options like ``--allow-client-shm``.
        in_process: Whether the programs run in the server's process, without Ray: it then starts in seconds.
        environment: Settings, e.g. ``{"DYORC_GATEWAY__MAX_REQUESTS": "4"}``.
        show: Called with each line that the server prints, on another thread.
        timeout_s: How long the programs may take to load.

    Raises:
        RuntimeError: If the server ends, or is not ready in time. The message contains what it printed.
    """
    with ServerProcess(serve_command(*arguments, in_process=in_process), environment=environment, show=show) as server:
        server.wait_until_ready(timeout_s)
        yield server
        if server.process.poll() is None:
            server.stop()
