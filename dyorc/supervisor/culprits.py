"""Knows which inputs were running when cells ended, and tells cells which to be careful with. Only the standard library.

What a cell remembers is gone with it, so the supervisor remembers. To name all inputs all the time would cost too much: cells
note what they run (`notes.py`) only after a cell has ended, for as long as inputs are remembered. What runs when the next cell
ends is suspect: all cells run it alone. A suspect that ends a cell again is refused by all.

SIGKILL and SIGTERM come from outside, or memory ran short: then a call is suspect only if nothing else ran beside it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

from dyorc.supervisor.notes import RunningBatch, make_notes_file, take_running_batches

_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)

_SuspectInput = tuple[str, str, str, int]
"""A program, the digest of an input, how the cell ended, and until when it counts, in ns."""


class CrashAttribution:
    """Used on the event loop.

    Args:
        keep_s: How long inputs are remembered.
        max_kept: How many of them.
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
            self._notes[number] = make_notes_file()
        return self._notes[number]

    def close(self) -> None:
        """Closes all notes."""
        for descriptor in self._notes.values():
            os.close(descriptor)
        self._notes.clear()

    def current_warning(self) -> dict[str, Any]:
        """Returns all that a cell should know that starts now."""
        self._expire()
        return self._warning(self._suspects.values(), self._refused.values())

    def record_crash(self, number: int, exit_code: int, how: str) -> dict[str, Any]:
        """Learns that a cell has ended by itself. Returns what all others should know of that."""
        self._until_ns = time.monotonic_ns() + self._keep_ns
        running: list[RunningBatch] = []
        with contextlib.suppress(ValueError):  # a note that it could not write to the end
            running = take_running_batches(self.notes_of(number))
        tried = [note for note in running if note.is_suspect]
        guilty = tried if len(tried) == 1 else []  # more than one do not run at once
        if exit_code in _FROM_OUTSIDE and sum(len(note.inputs) for note in running) > 1:
            running = guilty = []
        refused = list(self._kept(self._refused, guilty, how))
        suspects = list(self._kept(self._suspects, [note for note in running if note not in guilty], how))
        self._expire()
        return self._warning(suspects, refused)

    def _kept(self, known: dict[tuple[str, str], _SuspectInput], notes: list[RunningBatch], how: str) -> Iterator[_SuspectInput]:
        for note in notes:
            for digest in dict.fromkeys(note.inputs):
                key = note.program, digest
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
