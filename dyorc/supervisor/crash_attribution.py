"""Finds the inputs that crash cells, and warns all cells of them. Only the standard library.

A cell that crashes loses its memory, so the supervisor remembers. Noting all inputs all the time would cost too much: cells note
what they run only after a cell has crashed, for as long as inputs are remembered. What runs when the next cell crashes is
suspect: all cells run it alone. A suspect that crashes a cell again is refused by all cells.

SIGKILL and SIGTERM come from outside, also when memory runs short: then a call is suspect only if it was the only one running.

The notes are in a memory file that survives the cell. The supervisor owns the file and gives each cell one; a cell writes, the
supervisor reads when the cell has ended, so nothing is locked. One slot for each batch that runs; a free one is taken again:

    offset 0          4 bytes: length n of what follows; 0: nothing runs
    offset 4          n bytes: a `RunningBatch` as JSON
    offset _SLOT      the next slot

Each change is one write, which the kernel completes even if the process ends meanwhile.
"""

import contextlib
import itertools
import json
import os
import signal
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dyorc.system.memory_file import make_memory_file

_SLOT = 65_536
_LENGTH = struct.Struct("=I")
_NOTHING = _LENGTH.pack(0)
_MAX_INPUTS = 900
"""More do not fit into a slot. No culprit is missed for long: suspects run alone."""


_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)

_SuspectInput = tuple[str, str, str, int]
"""A program, the digest of an input, how the cell ended, and until when this counts, in ns."""


class RunningBatch(NamedTuple):
    """A batch that was running when its cell ended.

    Attributes:
        inputs: The digests of its calls' inputs, in hexadecimal digits.
        is_suspect: Whether it was a single call that ran alone because it was suspect.
    """

    program: str
    inputs: Sequence[str]
    is_suspect: bool


class FileCrashNotes:
    """Writes a cell's notes to the file with this descriptor. Any thread, one batch of a program at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._numbers = itertools.count()
        self._offsets: dict[str, int] = {}
        self._free: list[int] = []

    def begin(self, program: str, inputs: Sequence[bytes], *, is_suspect: bool) -> None:
        """Notes that a batch runs."""
        note = RunningBatch(program, [each.hex() for each in inputs[:_MAX_INPUTS]], is_suspect)
        raw = json.dumps(note).encode()
        try:
            offset = self._free.pop()
        except IndexError:
            offset = next(self._numbers) * _SLOT
        self._offsets[program] = offset
        os.pwrite(self._descriptor, _LENGTH.pack(len(raw)) + raw, offset)

    def end(self, program: str) -> None:
        """Notes that the program's batch has ended."""
        offset = self._offsets.pop(program)
        os.pwrite(self._descriptor, _NOTHING, offset)
        self._free.append(offset)


def take_running_batches(descriptor: int) -> list[RunningBatch]:
    """Returns what was running when the cell ended, and empties the file for the next cell."""
    running: list[RunningBatch] = []
    for offset in range(0, os.fstat(descriptor).st_size, _SLOT):
        (length,) = _LENGTH.unpack(os.pread(descriptor, _LENGTH.size, offset))
        if length:
            running.append(RunningBatch(*json.loads(os.pread(descriptor, length, offset + _LENGTH.size))))
    os.ftruncate(descriptor, 0)
    return running


class CrashAttribution:
    """The suspect and refused inputs of all cells. Used on the event loop.

    Args:
        keep_s: How long inputs are remembered.
        max_kept: How many inputs are remembered.
    """

    def __init__(self, keep_s: float, max_kept: int) -> None:
        self._keep_ns = int(keep_s * 1e9)
        self._max_kept = max_kept
        self._suspects: dict[tuple[str, str], _SuspectInput] = {}
        self._refused: dict[tuple[str, str], _SuspectInput] = {}
        self._until_ns = 0
        self._notes: dict[int, int] = {}

    def notes_of(self, number: int) -> int:
        """Returns the descriptor of a cell's notes."""
        if number not in self._notes:
            self._notes[number] = make_memory_file("dyorc-notes")
        return self._notes[number]

    def close(self) -> None:
        """Closes all notes."""
        for descriptor in self._notes.values():
            os.close(descriptor)
        self._notes.clear()

    def current_warning(self) -> dict[str, Any]:
        """Returns the warning for a cell that starts now: all suspect and refused inputs."""
        self._expire()
        return self._warning(self._suspects.values(), self._refused.values())

    def record_crash(self, number: int, exit_code: int, how: str) -> dict[str, Any]:
        """Notes that a cell has ended by itself. Returns the warning for all other cells."""
        self._until_ns = time.monotonic_ns() + self._keep_ns
        running: list[RunningBatch] = []
        with contextlib.suppress(ValueError):  # a note that was not written completely
            running = take_running_batches(self.notes_of(number))
        suspect = [batch for batch in running if batch.is_suspect]
        guilty = suspect if len(suspect) == 1 else []  # suspects run one at a time
        if exit_code in _FROM_OUTSIDE and sum(len(batch.inputs) for batch in running) > 1:
            running = guilty = []
        refused = list(self._remember(self._refused, guilty, how))
        suspects = list(self._remember(self._suspects, [batch for batch in running if batch not in guilty], how))
        self._expire()
        return self._warning(suspects, refused)

    def _remember(
        self, known: dict[tuple[str, str], _SuspectInput], batches: list[RunningBatch], how: str
    ) -> Iterator[_SuspectInput]:
        for batch in batches:
            for digest in dict.fromkeys(batch.inputs):
                key = batch.program, digest
                self._suspects.pop(key, None)
                known[key] = (*key, f"its cell {how}", self._until_ns)
                yield known[key]

    def _expire(self) -> None:
        now_ns = time.monotonic_ns()
        for known in (self._suspects, self._refused):
            while known and (len(known) > self._max_kept or next(iter(known.values()))[-1] <= now_ns):
                del known[next(iter(known))]

    def _warning(self, suspects: Any, refused: Any) -> dict[str, Any]:
        return {"suspects": list(suspects), "refused": list(refused), "until_ns": self._until_ns}
