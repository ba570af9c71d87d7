"""Which parts of an arena's file have memory: taken before anybody writes there, returned when unused for long.

Used under the arena's lock. Ranges are whole pages.
"""

import bisect
import errno
import mmap
import os
from collections.abc import Iterator

from dyorc.errors import TransportError
from dyorc.transport.arena_file import PAGE_BYTES, round_up

_GROW_BYTES = 2**20
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM})


class Backing:
    """The memory behind an open file.

    Args:
        descriptor: The file.
        name: For errors.
        mapped: The same, mapped shared.
        start: The first address that has no memory yet.
        end: The file's length.

    Attributes:
        num_bytes: How much there is, the file's header and table not counted.
    """

    def __init__(self, descriptor: int, name: str, mapped: mmap.mmap, start: int, end: int) -> None:
        self._descriptor = descriptor
        self._name = name
        self._map = mapped
        self._holes = [(start, end)]  # ranges without memory, in order; neighbours are joined
        self.num_bytes = 0

    def take(self, start: int, end: int) -> bool:
        """Ensures that a range has memory; False if there is none. Writing without memory may raise SIGBUS.

        Cost: a look at the first hole, as a rule: low addresses are used first.

        Raises:
            TransportError: If the file system refuses for another reason than that it is full.
        """
        at = 0
        while at < len(self._holes) and self._holes[at][0] < end:
            hole_start, hole_end = self._holes[at]
            if hole_end <= start:
                at += 1
                continue
            if not self._fill(at, max(hole_start, start), min(hole_end, end)):
                return False
            at = 0
        return True

    def _fill(self, at: int, start: int, end: int) -> bool:
        """Takes memory for a part of a hole, and a little more, so as not to be back soon."""
        hole_start, hole_end = self._holes[at]
        for wanted in (min(round_up(end, _GROW_BYTES), hole_end), end):
            try:
                os.posix_fallocate(self._descriptor, start, wanted - start)
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise TransportError(f"no memory for arena {self._name}: {error}") from error
            else:
                self._holes[at : at + 1] = [piece for piece in ((hole_start, start), (wanted, hole_end)) if piece[0] < piece[1]]
                self.num_bytes += wanted - start
                return True
        return False

    def give_back(self, start: int, end: int, max_bytes: int) -> int:
        """Returns memory of a range to the system, at most `max_bytes`, the highest addresses first. Returns how much.

        Readers there see zeros from now on.
        """
        for found_start, found_end in self._with_memory(start, end):
            first = max(found_start, found_end - max_bytes // PAGE_BYTES * PAGE_BYTES)
            try:
                self._map.madvise(mmap.MADV_REMOVE, first, found_end - first)
            except OSError:  # a file system that makes no holes keeps its memory
                return 0
            self._join(first, found_end)
            return found_end - first
        return 0

    def _with_memory(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yields the parts of a range between holes, the highest first."""
        for hole_start, hole_end in reversed(self._holes):
            if hole_start < end and hole_end > start:
                if hole_end < end:
                    yield hole_end, end
                end = hole_start
        if start < end:
            yield start, end

    def _join(self, start: int, end: int) -> None:
        """Notes that a range has no memory any more."""
        self.num_bytes -= end - start
        first = bisect.bisect_left(self._holes, start, key=lambda hole: hole[1])
        last = bisect.bisect_right(self._holes, end, key=lambda hole: hole[0])
        for hole_start, hole_end in self._holes[first:last]:  # those beside it
            start, end = min(start, hole_start), max(end, hole_end)
        self._holes[first:last] = [(start, end)]
