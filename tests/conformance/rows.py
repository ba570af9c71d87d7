"""The rows of the table of passes, and what runs them. Standard library only: both environments import it.

A check is a coroutine function that returns if the promise holds and raises if not. It belongs to a section of the protocol and a
transport; `run` prints one line of JSON for each, as soon as it is known.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

CHECK_TIMEOUT_S = 60.0
_MAX_DETAIL_CHARS = 400

Check = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Row:
    """One promise.

    Attributes:
        section: Of the protocol, e.g. "3.3 binary tensors".
        transport: Client and protocol, e.g. "grpc.aio".
        detail: What went wrong; empty if nothing did.
    """

    section: str
    transport: str
    name: str
    is_passed: bool
    detail: str = ""

    @classmethod
    def of_line(cls, line: str) -> Row:
        """Parses a row that `run` printed."""
        return cls(**json.loads(line))


class Table:
    """The checks of a server, in the order in which they are added."""

    def __init__(self) -> None:
        self._checks: list[tuple[str, str, str, Check]] = []

    def add(self, section: str, transport: str, name: str, check: Check) -> None:
        """Adds a check."""
        self._checks.append((section, transport, name, check))

    async def run(self, wanted: str = "") -> None:
        """Runs all checks one by one and prints their rows.

        Args:
            wanted: Runs only checks whose section, transport or name contains this.
        """
        for section, transport, name, check in self._checks:
            if wanted in f"{section} {transport} {name}":
                row = await _row(section, transport, name, check)
                print(json.dumps(asdict(row)), flush=True)


async def _row(section: str, transport: str, name: str, check: Check) -> Row:
    try:
        await asyncio.wait_for(check(), CHECK_TIMEOUT_S)
    except TimeoutError:
        return Row(section, transport, name, False, f"no end after {CHECK_TIMEOUT_S:.0f} s")
    except Exception as error:
        return Row(section, transport, name, False, _detail(error))
    return Row(section, transport, name, True)


def _detail(error: Exception) -> str:
    """Returns what went wrong, and in which line of a check."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_of_a_check(frame.filename)]
    text = " ".join(f"{type(error).__name__}: {error}".split())
    place = f" ({Path(frames[-1].filename).name}: {frames[-1].lineno})" if frames else ""
    return text[:_MAX_DETAIL_CHARS] + place


def _is_of_a_check(file: str) -> bool:
    return Path(file).parent == Path(__file__).parent and Path(file).name.startswith("checks")


def expect(found: object, expected: object, what: str) -> None:
    """Checks that two values are equal.

        Raises:
    AssertionError: If they are not.
    """
    if found != expected:
        raise AssertionError(f"{what} is {found!r}, expected {expected!r}")


def complain(text: str) -> None:
    """Prints one line of progress."""
    print(text, file=sys.stderr, flush=True)
