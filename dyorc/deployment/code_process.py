"""Runs a module of ours in a process of its own: it imports users' code, which may end it or never return.

The module gets a descriptor as its last argument, and writes its result there.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NoReturn, TypeVar

import msgspec

from dyorc.errors import ModuleImportError
from dyorc.system.forked_copies import ending_copies
from dyorc.system.parent_process import die_with

T = TypeVar("T")

_NICENESS = 5
"""How much nicer the process is than the server that starts it, which has requests to answer: it gets a third of what the server
gets of a core that both want. More would only make updates last longer on a busy machine, and so more requests meet them."""
_NICEST = 19
_MAX_SHOWN = 4000


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """What came of a process.

    Attributes:
        text: What it wrote to its descriptor.
        status: Its exit code; negative: the signal that ended it.
        printed: The end of what it wrote to standard error.
    """

    text: bytes
    status: int
    printed: str

    @property
    def how(self) -> str:
        """How it ended, in words."""
        return f"was ended by {signal.Signals(-self.status).name}" if self.status < 0 else f"ended with exit code {self.status}"

    def read(self, kind: type[T]) -> T | None:
        """Returns its result; None if it has written none, or the user's code has written something else there."""
        try:
            return msgspec.json.decode(self.text, type=kind)
        except msgspec.DecodeError:
            return None


async def run_module(module: str, arguments: Sequence[str], timeout_s: float, subject: str) -> ProcessResult:
    """Runs a module, and ends its process if it takes too long or nobody waits for it any longer.

    Args:
        subject: What takes too long then, for the error.

    Raises:
        ModuleImportError: If it takes too long.
    """
    attempt = _Attempt([sys.executable, "-P", "-m", module, *arguments])
    running = asyncio.ensure_future(asyncio.to_thread(attempt.run))
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(running)
    except TimeoutError:
        raise ModuleImportError(f"{subject} has taken more than {timeout_s:g} s") from None
    finally:
        attempt.end()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # marks it as retrieved: the caller has seen it, or does not wait for it


def run_attached(module: str, arguments: Sequence[str]) -> ProcessResult:
    """Runs a module for a command: with the command's terminal, which also signals it. Blocking; for the main thread.

    The module has to call `end_with_command` first. Until then, Ctrl-C waits for it. `printed` is empty: it was shown.
    """
    with _file() as text:
        command = [sys.executable, "-P", "-m", module, *arguments, str(os.getpid()), str(text.fileno())]
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))  # the process inherits it
        try:
            process = subprocess.Popen(command, pass_fds=(text.fileno(),))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        process.wait()
        text.seek(0)
        return ProcessResult(text.read(), process.returncode, "")


def end_with_command(parent: int) -> None:
    """Makes this process, which `run_attached` has started, end when the command does, and at once on Ctrl-C.

    Args:
        parent: The command's process id.
    """
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))


def answer_and_exit(descriptor: int, function: Callable[[], msgspec.Struct]) -> NoReturn:
    """Writes the result of a function to the descriptor that this process got as its last argument, and ends this process.

    The function runs users' code, which may fork. A copy of this process that comes back from there ends without a word.
    """
    with ending_copies():
        text = msgspec.json.encode(function())
    with os.fdopen(descriptor, "wb") as end:
        end.write(text)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the user's code may have closed or replaced it
            stream.flush()
    os._exit(0)  # the user's code may have started threads


class _Attempt:
    """A process. `subprocess` starts it without copying this one, which would take time from requests.

    It writes to files, since a pipe that nobody reads would stop it, and one that its own children keep open would have no end.
    What it has started ends with it.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self) -> ProcessResult:
        """Returns the result. Blocking."""
        with _file() as text, _file() as printed:
            process = self._process = subprocess.Popen(
                [*self._command, str(text.fileno())],
                pass_fds=(text.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=printed,
                start_new_session=True,
            )
            self._yield_to_us(process)
            if self._is_over:
                self._kill(process)
            process.wait()
            self._kill(process)
            text.seek(0)
            printed.seek(max(0, printed.seek(0, os.SEEK_END) - _MAX_SHOWN))
            return ProcessResult(text.read(), process.returncode, printed.read().decode(errors="replace"))

    def end(self) -> None:
        """Ends the process if it still runs."""
        self._is_over = True
        if self._process is not None and self._process.returncode is None:
            self._kill(self._process)

    @staticmethod
    def _yield_to_us(process: subprocess.Popen[bytes]) -> None:
        """Makes a process nicer. Not left to itself: half of its time goes into imports before its own code begins.

        Where Linux schedules sessions as groups, a process is nice only to others of its session, and a session of its own has
        half of a core even so; then its group must be nice. In the server's own session, it would use up the share of the
        server's group.
        """
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, process.pid, min(own + _NICENESS, _NICEST))
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/autogroup", "w") as group:  # no such file elsewhere
            group.write(str(_NICENESS))

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS' answer for a group of ended processes
            os.killpg(process.pid, signal.SIGKILL)


def _file() -> BinaryIO:
    """Returns a file without a name, in memory where the system has such files: there may be no disk to write to."""
    return os.fdopen(os.memfd_create("dyorc"), "w+b") if hasattr(os, "memfd_create") else tempfile.TemporaryFile()
