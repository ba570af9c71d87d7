"""A temporary server: for demonstrations, and for tests of a pipeline as its clients see it."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def serving(*targets: str, show: Callable[[str], None] | None = None, timeout_s: float = 120.0) -> Generator[str]:
    """Runs ``dyorc serve`` in a process of its own; yields its URL once every program is ready, and stops it at the end.

    Its jobs are kept in a temporary folder, apart from the user's own.

    Args:
        targets: What to serve, e.g. ``app.py:classify``.
        show: Called with each line that the server prints.
        timeout_s: How long the programs may take to load.

    Raises:
        RuntimeError: If the server ends, or is not ready in time; carries what it printed.
    """
    command = [sys.executable, "-m", "dyorc.cli", "serve", *targets, "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    state = tempfile.TemporaryDirectory(prefix="dyorc-state-")
    environment["XDG_STATE_HOME"] = state.name
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    give_up = threading.Timer(timeout_s, process.terminate)
    give_up.start()
    lines: list[str] = []

    def read_until(prefix: str) -> str | None:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            if show is not None:
                show(lines[-1])
            if line.startswith(prefix):
                return lines[-1]
        return None

    try:
        listening = read_until("Listening on ")
        if listening is None or read_until("Ready after ") is None:
            raise RuntimeError(f"dyorc serve {' '.join(targets)} was not ready within {timeout_s} s:\n" + "\n".join(lines))
        give_up.cancel()
        # Keep reading, or a talkative server would block on a full pipe.
        reader = threading.Thread(target=read_until, args=("Stopped.",), daemon=True)
        reader.start()
        yield listening.removeprefix("Listening on ")
        process.send_signal(signal.SIGINT)
        reader.join()
    finally:
        give_up.cancel()
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        state.cleanup()
