"""The ranges of an arena's file: which are free, and which have memory. Used under the arena's lock. Ranges are whole pages.

Free ranges are given out first fit, the lowest address first; neighbours are joined. Memory is taken before a range is written,
and returned when the range was unused for long.
"""

import bisect
import errno
import mmap
import sys
from collections.abc import Iterator

from dyorc.errors import TransportError
from dyorc.system.memory_file import allocate
from dyorc.transport.arena_file import PAGE_BYTES, round_up


class FreeSpace:
    """The free ranges between two addresses, all of them whole pages. Neighbours are always joined.

    Ranges of 2**k to 2**(k+1) - 1 pages form one class. Every range of a higher class than the wanted length is long enough, so
    only ranges of the same class are searched one by one.

    Args:
        start: The first address.
        end: The address after the last.
    """

    def __init__(self, start: int, end: int) -> None:
        self._length_at: dict[int, int] = {}
        self._start_before: dict[int, int] = {}  # start of the range that ends here
        self._classes: list[list[int]] = [[] for _ in range(_class_of(end - start) + 1)]  # starts of ranges, in order
        self._add(start, end - start)

    def take(self, length: int) -> int | None:
        """Returns the lowest address with room for `length` bytes, or None. Low addresses were used before: their pages exist."""
        own = _class_of(length)
        best = None
        if own < len(self._classes):
            best = next((start for start in self._classes[own] if self._length_at[start] >= length), None)
        for starts in self._classes[own + 1 :]:
            if starts and (best is None or starts[0] < best):
                best = starts[0]
        if best is None:
            return None
        left = self._remove(best) - length
        if left:
            self._add(best + length, left)
        return best

    def give_back(self, start: int, length: int) -> None:
        """Frees a range."""
        if start + length in self._length_at:
            length += self._remove(start + length)
        if start in self._start_before:
            start = self._start_before[start]
            length += self._remove(start)
        self._add(start, length)

    def ranges(self) -> list[tuple[int, int]]:
        """Returns all free ranges, the highest first: where each begins, and the address after it."""
        return sorted(((start, start + length) for start, length in self._length_at.items()), reverse=True)

    def _add(self, start: int, length: int) -> None:
        self._length_at[start] = length
        self._start_before[start + length] = start
        bisect.insort(self._classes[_class_of(length)], start)

    def _remove(self, start: int) -> int:
        length = self._length_at.pop(start)
        del self._start_before[start + length]
        starts = self._classes[_class_of(length)]
        del starts[bisect.bisect_left(starts, start)]
        return length


def _class_of(length: int) -> int:
    return (length // PAGE_BYTES).bit_length() - 1


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
        """Ensures that a range has memory; False if the system has none. Writing without memory may raise SIGBUS.

        Cost: usually a look at the first hole, since low addresses are used first.

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
                allocate(self._descriptor, start, wanted - start)
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

        Readers there see zeros from now on. Systems other than Linux keep the memory.
        """
        if sys.platform != "linux":
            return 0
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
        """Notes that a range no longer has memory."""
        self.num_bytes -= end - start
        first = bisect.bisect_left(self._holes, start, key=lambda hole: hole[1])
        last = bisect.bisect_right(self._holes, end, key=lambda hole: hole[0])
        for hole_start, hole_end in self._holes[first:last]:  # its neighbours
            start, end = min(start, hole_start), max(end, hole_end)
        self._holes[first:last] = [(start, end)]
