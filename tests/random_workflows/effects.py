"""Where effects of served programs go: a file beside this one. Generated workflows import this file under the name `effects`."""

import asyncio
import os
from pathlib import Path

_FILE = Path(__file__).with_name("effects.txt")


def note(lines: list[str]) -> None:
    """Writes once, so that lines of several processes do not mix."""
    descriptor = os.open(_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, "".join([f"{line}\n" for line in lines]).encode())
    finally:
        os.close(descriptor)


async def pause() -> None:
    """Lets others go on."""
    await asyncio.sleep(0)
