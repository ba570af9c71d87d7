"""Has a target loaded in a process of its own, before the server does."""

import asyncio
import contextlib
import os
import signal
import sys

import msgspec

from dyorc.deploying.probe import Found
from dyorc.errors import ModuleImportError

_MAX_SHOWN = 4000


async def tried(target: str, timeout_s: float) -> Found:
    """Returns a target's code, if it can be loaded.

    Raises:
        ModuleImportError: If it cannot; says why, with the user's lines.
    """
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dyorc.deploying.probe", target, str(writing),
            pass_fds=(writing,), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    read = asyncio.ensure_future(asyncio.to_thread(_read_all, reading))
    printing = asyncio.ensure_future(_printed(process))
    try:
        async with asyncio.timeout(timeout_s):
            text = await asyncio.shield(read)
            await process.wait()
    except TimeoutError:
        raise ModuleImportError(f"{target} cannot be loaded: importing it has taken more than {timeout_s:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.gather(read, printing, process.wait(), return_exceptions=True)
    return _found(target, text, process.returncode or 0, printing.result())


def _found(target: str, text: bytes, status: int, printed: str) -> Found:
    if not text:
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
        raise ModuleImportError(f"{target} cannot be loaded: the process that tried to import it {how}", printed)
    found = msgspec.json.decode(text, type=Found)
    if found.bundle is None:
        raise ModuleImportError(found.error, found.traceback)
    return found


def _read_all(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as end:
        return end.read()


async def _printed(process: asyncio.subprocess.Process) -> str:
    """Returns the end of what it has printed."""
    assert process.stderr is not None
    kept = b""
    while data := await process.stderr.read(65536):
        kept = (kept + data)[-_MAX_SHOWN:]
    return kept.decode(errors="replace")
