"""Where a cell notes what runs, so that others know it after a crash."""

from collections.abc import Sequence
from typing import Protocol


class CrashNotes(Protocol):
    """Survives this process. Any thread, one batch of a program at a time."""

    def begin(self, program: str, inputs: Sequence[bytes], *, is_suspect: bool) -> None:
        """Notes that a batch runs.

        Args:
            inputs: The digests of its inputs.
            is_suspect: Whether it is a single call that runs alone because it may end this process.
        """
        ...

    def end(self, program: str) -> None:
        """Notes that it has ended."""
        ...
