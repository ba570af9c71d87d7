"""What runs in a cell, written into a memory file that survives it. Only the standard library.

The supervisor owns the file and gives each cell one; a cell writes, the supervisor reads when the cell has ended. So nothing is
locked. One slot per program, by the order in which they first run:

    offset 0          4 bytes: length n of what follows; 0 while the program runs nothing
    offset 4          n bytes: a `RunningBatch` as JSON
    offset _SLOT      the next program

Each change is one write, which the kernel completes even if the process ends meanwhile.
"""

import itertools
import json
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

_SLOT = 65_536
_LENGTH = struct.Struct("=I")
_NOTHING = _LENGTH.pack(0)
_MAX_INPUTS = 900
"""More do not fit into a slot. Batches that matter are small in the end: suspects run alone."""


class RunningBatch(NamedTuple):
    """A batch that was running.

    Attributes:
        inputs: The digests of its calls' inputs, in hexadecimal digits.
        is_suspect: Whether it was a single call that ran alone because it was suspect.
    """

    program: str
    inputs: Sequence[str]
    is_suspect: bool


class MemfdCrashNotes:
    """A cell's side. Any thread, one batch of a program at a time.

    Args:
        descriptor: Of the file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._numbers = itertools.count()
        self._offsets: dict[str, int] = {}

    def begin(self, program: str, inputs: Sequence[bytes], *, is_suspect: bool) -> None:
        """Notes that a batch runs."""
        note = RunningBatch(program, [each.hex() for each in inputs[:_MAX_INPUTS]], is_suspect)
        raw = json.dumps(note).encode()
        offset = self._offsets.get(program)
        if offset is None:
            offset = self._offsets.setdefault(program, next(self._numbers) * _SLOT)
        os.pwrite(self._descriptor, _LENGTH.pack(len(raw)) + raw, offset)

    def end(self, program: str) -> None:
        """Notes that it has ended."""
        os.pwrite(self._descriptor, _NOTHING, self._offsets[program])


def make_notes_file() -> int:
    """Returns the descriptor of an empty file."""
    return os.memfd_create("notes", os.MFD_CLOEXEC)


def take_running_batches(descriptor: int) -> list[RunningBatch]:
    """Returns what was running when the cell ended, and empties the file for the next."""
    found: list[RunningBatch] = []
    for offset in range(0, os.fstat(descriptor).st_size, _SLOT):
        (length,) = _LENGTH.unpack(os.pread(descriptor, _LENGTH.size, offset))
        if length:
            found.append(RunningBatch(*json.loads(os.pread(descriptor, length, offset + _LENGTH.size))))
    os.ftruncate(descriptor, 0)
    return found
