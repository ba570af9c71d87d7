"""Imports a target in a separate process before the server imports it."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys

import msgspec

from dyorc.deployment.probe import ProbeResult
from dyorc.errors import ModuleImportError

_MAX_SHOWN = 4000


async def check_import(target: str, timeout_s: float) -> ProbeResult:
    """Returns a target's code, if it can be loaded.

    Raises:
        ModuleImportError: If it cannot; says why, with the user's lines.
    """
    attempt = _Attempt(target)
    running = asyncio.ensure_future(asyncio.to_thread(attempt.run))
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(running)
    except TimeoutError:
        raise ModuleImportError(f"{target} cannot be loaded: importing it has taken more than {timeout_s:g} s") from None
    finally:
        attempt.end()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # it has been seen, or nobody waits for it


class _Attempt:
    """A process that loads a target. `subprocess` starts it without copying this one, which would take time from requests."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self) -> ProbeResult:
        """On a thread: returns what came of it."""
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as end:
            try:
                command = [sys.executable, "-m", "dyorc.deployment.probe", self._target, str(writing)]
                process = self._process = subprocess.Popen(
                    command, pass_fds=(writing,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
                )
            finally:
                os.close(writing)
            if self._is_over:
                process.kill()
            printed = process.communicate()[1]
            text = end.read()
        return _found(self._target, text, process.returncode, printed[-_MAX_SHOWN:].decode(errors="replace"))

    def end(self) -> None:
        """Ends the process if it still runs."""
        self._is_over = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


def _found(target: str, text: bytes, status: int, printed: str) -> ProbeResult:
    if not text:
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
        raise ModuleImportError(f"{target} cannot be loaded: the process that tried to import it {how}", printed)
    result = msgspec.json.decode(text, type=ProbeResult)
    if result.bundle is None:
        raise ModuleImportError(result.error, result.traceback)
    return result
