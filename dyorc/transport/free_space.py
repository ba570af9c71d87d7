"""Which ranges of an arena are free: first fit, the lowest address first, neighbours joined."""

import bisect

from dyorc.transport.arena_file import PAGE_BYTES


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
