"""Returns memory that an arena has not needed for some time. Runs on a thread of its own while entered."""

import threading
from types import TracebackType
from typing import Self

from dyorc.transport.arena import Arena

_PIECE_BYTES = 16 * 2**20
"""Given back in one go, during which nobody can allocate: about a millisecond."""
_PAUSE_S = 0.005


class ArenaTrimmer:
    """Checks an arena at intervals.

    The most that its blocks took since the last check stays, because it will be needed again, and so does `keep_bytes`.

    Args:
        keep_bytes: Memory it keeps even where no block lies.
        every_s: Interval of the checks; memory has been free at least this long when it is returned.
    """

    def __init__(self, arena: Arena, keep_bytes: int, every_s: float) -> None:
        self._arena = arena
        self._keep_bytes = keep_bytes
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dyorc-arena", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            keep_bytes = max(self._keep_bytes, self._arena.take_peak())
            while self._arena.trim(keep_bytes, _PIECE_BYTES) and not self._is_over.wait(_PAUSE_S):
                pass
