"""Imports a target in a process before the server imports it: `python -m dyorc.deployment.import_check TARGET DESCRIPTOR`.

Code that ends the interpreter, or never returns, does so there and not in a server. The process writes the target's code, or an
error, to the descriptor.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import traceback

import msgspec

from dyorc.authoring.bundles import Bundle
from dyorc.authoring.loading import absolute, import_place, name_in, parts_of, programs_of
from dyorc.errors import DyOrcError, ModuleImportError, text_of

_NICENESS = 10
"""Of the process: the server that starts it has requests to answer."""
_MAX_SHOWN = 4000


class ProbeResult(msgspec.Struct):
    """The result of an import.

    Attributes:
        bundle: The target's code; None if it cannot be imported.
        model: The name of the workflow or program.
        programs: The names of its programs.
        error: Why it cannot be imported.
        traceback: The user's lines of the error's traceback.
    """

    bundle: Bundle | None = None
    model: str = ""
    programs: tuple[str, ...] = ()
    error: str = ""
    traceback: str = ""


async def check_import(target: str, timeout_s: float) -> ProbeResult:
    """Returns a target's code.

    Raises:
        ModuleImportError: If it cannot be loaded; has the user's lines of the traceback.
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
            running.exception()  # marks it as retrieved: the caller has seen it, or does not wait for it


class _Attempt:
    """A process that loads a target. `subprocess` starts it without copying this one, which would take time from requests."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self) -> ProbeResult:
        """Returns the result. Blocking."""
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as end:
            try:
                command = [sys.executable, "-P", "-m", "dyorc.deployment.import_check", self._target, str(writing)]
                process = self._process = subprocess.Popen(
                    command, pass_fds=(writing,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
                )
            finally:
                os.close(writing)
            if self._is_over:
                process.kill()
            printed = process.communicate()[1]
            text = end.read()
        return _result_of(self._target, text, process.returncode, printed[-_MAX_SHOWN:].decode(errors="replace"))

    def end(self) -> None:
        """Ends the process if it still runs."""
        self._is_over = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


def _result_of(target: str, text: bytes, status: int, printed: str) -> ProbeResult:
    if not text:
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
        raise ModuleImportError(f"{target} cannot be loaded: the process that tried to import it {how}", printed)
    result = msgspec.json.decode(text, type=ProbeResult)
    if result.bundle is None:
        raise ModuleImportError(result.error, result.traceback)
    return result


# The process that imports the target


def main() -> None:
    """Imports the target, and writes the result."""
    target, descriptor = absolute(sys.argv[1]), int(sys.argv[2])
    os.nice(_NICENESS)
    with os.fdopen(descriptor, "wb") as end:
        end.write(msgspec.json.encode(_try(target)))
    sys.stdout.flush()
    os._exit(0)  # the module may have started threads


def _try(target: str) -> ProbeResult:
    place = target
    try:
        place, name = parts_of(target)
        module = import_place(place)
        definition = name_in(module, place, name)
        programs = tuple(program.name for program in programs_of(definition))
        return ProbeResult(Bundle.of(target, module.__name__), definition.name, programs)
    except ModuleImportError as error:
        return ProbeResult(error=str(error), traceback=error.user_traceback)
    except DyOrcError as error:
        return ProbeResult(error=str(error))
    except BaseException as error:
        text = f"{os.path.basename(place)} cannot be imported: it raised {type(error).__name__}: {text_of(error)}"
        return ProbeResult(error=text, traceback="".join(traceback.format_exception_only(error)))


if __name__ == "__main__":
    main()
