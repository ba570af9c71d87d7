"""What tenants have in flight in each cell of a server: a memory file that all cells map. Only the standard library.

The file has a part for each cell, which only that cell writes, so nothing is locked. A part holds columns of `_ROWS` values of 8
bytes each:

    keys        a hash of the tenant's name; 0: the row is free
    full        when the tenant's bucket is full again, in seconds of the monotonic clock, as a float
    requests    in flight
    bytes       in flight

A tenant's row in a part is the first row from its hash's position on that is its own or free. Rows are never freed, so a tenant
keeps its row. A new row's other values are 0 when its key is written, so readers may use them at once. Values of 8 bytes
are written atomically. Readers may be one request behind: if N cells admit at the same moment, together they may admit N - 1
too many.

When a cell has ended, the supervisor sets its `requests` and `bytes` to 0: nothing is in flight there now. Its buckets stay as
they are: the tokens were spent.
"""

import hashlib
import mmap
import os

from dyorc.system.memory_file import make_memory_file

_ROWS = 8192
_COLUMNS = 4
_MAX_STEPS = 64
"""Rows to look at before the table counts as full."""
_PART = _COLUMNS * _ROWS
_WORD = 8


class TenantTable:
    """A cell's view of the file. One thread.

    Args:
        descriptor: The file's.
        number: The cell's.
        num_cells: How many cells there are.
    """

    def __init__(self, descriptor: int, number: int, num_cells: int) -> None:
        # The mapping lives as long as its views, and its pages appear when they are touched.
        memory = memoryview(mmap.mmap(descriptor, num_cells * _PART * _WORD))
        words, floats = memory.cast("q"), memory.cast("d")
        parts = [(words[at * _PART : (at + 1) * _PART], floats[at * _PART : (at + 1) * _PART]) for at in range(num_cells)]
        self._own = parts.pop(number)
        self._others = parts

    def of(self, tenant: str) -> "TenantRows | None":
        """Returns a tenant's counts; None if the table is full."""
        key = _key_of(tenant)
        row = _row_of(self._own[0], key)
        if row is None:
            return None
        self._own[0][row] = key
        return TenantRows(key, row, self._own, self._others)


class TenantRows:
    """A tenant's rows: this cell's, and those in other cells.

    Args:
        key: The tenant's.
        row: This cell's row of the tenant.
        own, others: The parts of the file.
    """

    def __init__(
        self, key: int, row: int, own: tuple["memoryview[int]", "memoryview[float]"],
        others: list[tuple["memoryview[int]", "memoryview[float]"]],
    ) -> None:  # fmt: skip
        self._key = key
        self._row = row
        self._own_words, self._own_floats = own
        self._unknown = others
        self._known: list[tuple[int, memoryview[int], memoryview[float]]] = []

    def publish(self, num_requests: int, num_bytes: int, full_s: float) -> None:
        """Writes what this cell has now."""
        row, words = self._row, self._own_words
        self._own_floats[_ROWS + row] = full_s
        words[2 * _ROWS + row] = num_requests
        words[3 * _ROWS + row] = num_bytes

    def num_requests(self) -> int:
        """Returns how many requests the other cells have in flight."""
        if self._unknown:
            self._look()
        return sum([words[2 * _ROWS + row] for row, words, _ in self._known])

    def num_bytes(self) -> int:
        """Returns how many bytes the other cells have in flight."""
        if self._unknown:
            self._look()
        return sum([words[3 * _ROWS + row] for row, words, _ in self._known])

    def full_s(self) -> float:
        """Returns when the bucket is full again, as far as any other cell knows."""
        if self._unknown:
            self._look()
        return max([floats[_ROWS + row] for row, _, floats in self._known], default=0.0)

    def _look(self) -> None:
        """Finds rows that other cells have made since."""
        still_unknown: list[tuple[memoryview[int], memoryview[float]]] = []
        for words, floats in self._unknown:
            row = _row_of(words, self._key)
            if row is not None and words[row] == self._key:
                self._known.append((row, words, floats))
            elif row is not None:
                still_unknown.append((words, floats))
        self._unknown = still_unknown


def make_table(num_cells: int) -> int:
    """Returns the descriptor of an empty table."""
    descriptor = make_memory_file("dyorc-tenants")
    os.ftruncate(descriptor, num_cells * _PART * _WORD)
    return descriptor


def clear_in_flight(descriptor: int, number: int) -> None:
    """Sets what is in flight in a cell to 0, once the cell has ended."""
    with mmap.mmap(descriptor, 0) as memory:
        begin = (number * _PART + 2 * _ROWS) * _WORD
        for page in range(begin, begin + 2 * _ROWS * _WORD, mmap.PAGESIZE):
            if any(memory[page : page + mmap.PAGESIZE]):
                memory[page : page + mmap.PAGESIZE] = bytes(mmap.PAGESIZE)


def _key_of(tenant: str) -> int:
    digest = hashlib.blake2b(tenant.encode(errors="surrogatepass"), digest_size=_WORD).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


def _row_of(words: "memoryview[int]", key: int) -> int | None:
    """Returns the row of a key in a part, or the free one where it would be; None if there is neither."""
    for step in range(_MAX_STEPS):
        row = (key + step) % _ROWS
        if words[row] in (key, 0):
            return row
    return None
