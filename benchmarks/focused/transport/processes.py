"""The benchmark's child processes. A child is this module, run with the name of the function to carry out.

Nothing is left behind: a plain child ends with its parent (Linux's "parent death signal") or by its own pid; Ctrl-C, which
reaches the whole process group, is meant for the parent only. A child that has processes of its own to end runs in a session of
its own and is asked to stop by closing its pipe. `multiprocessing.Process` is not used, because it would keep a helper process of
its own.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

from benchmarks.serving import ROOT

_PR_SET_PDEATHSIG = 1
_END_TIMEOUT_S = 5.0


class Child:
    """A child process and the pipe to it.

    Args:
        target: The function that it carries out, like ``peers:consume_pipe``. The function gets the pipe's other end and
            `arguments`.
        arguments: Passed to the function.
        ends_itself: Whether it stops within `end_timeout_s` when its pipe is closed, and cleans up after itself. If not, it is
            killed.
    """

    def __init__(self, target: str, *arguments: str, ends_itself: bool = False, end_timeout_s: float = _END_TIMEOUT_S) -> None:
        self._target = target
        self._arguments = arguments
        self._ends_itself = ends_itself
        self._end_timeout_s = end_timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Connection:
        """Starts it; returns our end of its pipe."""
        ours, theirs = Pipe()
        self._pipe = cast(Connection, ours)  # true everywhere except on Windows
        fd = theirs.fileno()
        kind = "ends_itself" if self._ends_itself else "ends_with_parent"
        command = [sys.executable, "-m", __name__, self._target, str(fd), kind, *self._arguments]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            pass_fds=[fd],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            start_new_session=self._ends_itself,
        )
        theirs.close()
        return self._pipe

    def stop(self) -> None:
        """Ends it and waits until it is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        self._pipe.close()
        if not self._ends_itself:
            process.terminate()
        try:
            process.wait(self._end_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            print(f"{self._target} did not end in {self._end_timeout_s:.0f} s and was killed", file=sys.stderr)


def send_json(pipe: Connection, value: object) -> None:
    """Sends a short message."""
    pipe.send_bytes(json.dumps(value).encode())


def receive_json(pipe: Connection) -> Any:
    """Returns the other side's message.

    Raises:
        EOFError: If the other side is gone.
    """
    return json.loads(pipe.recv_bytes())


def main() -> None:
    """The child's side."""
    target, fd, kind, *arguments = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if kind == "ends_with_parent":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    module, _, function = target.partition(":")
    with Connection(int(fd)) as pipe:
        try:
            getattr(importlib.import_module(module), function)(pipe, *arguments)
        except (EOFError, ConnectionError):
            return  # the parent is gone


if __name__ == "__main__":
    main()
