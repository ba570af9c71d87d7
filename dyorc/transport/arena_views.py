"""How a process reads an arena of its node, another process's or its own: it maps the file and copies nothing.

A view belongs to one thread. It never writes the file, so the arena stays intact even if the reader's process crashes.

Each view maps the file twice. One mapping is read-only. The other one is for programs that change their inputs in place (torch
has no read-only tensors): it is private, so the kernel gives the program its own copy of each page that it writes, which no other
process sees. Such a page hides what the owner puts there later; so after each use `ArenaView.restore` drops it.
"""

import contextlib
import mmap
import os
import sys
from typing import Self

import numpy as np
import numpy.typing as npt

from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.arena_file import ENTRY_WORDS, PAGE_BYTES, open_arena, read_layout, round_up

_PAGEMAP = "/proc/self/pagemap"
_PAGEMAP_BYTES = 8
_CHUNK_PAGES = 2**15
_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0
"""Few pages are ever written, so the kernel need not reserve memory for all of them. Python names the flag from 3.13 on."""
_IS_DROPPING = sys.platform == "linux"
"""Whether the kernel drops a private page that a program has written, when madvise says that it is not needed. Elsewhere that
is only advice, so `ArenaView.writable` copies the bytes over whatever was written."""


class ArenaView:
    """An arena, seen by a reader.

    Args:
        folder: Where processes of the node share memory.
        name: The arena's file name, not trusted.

    Raises:
        TensorLostError: If there is no such arena: its owner is gone.
        TransportError: If it is not an arena.
    """

    def __init__(self, folder: str, name: str) -> None:
        self._open(open_arena(folder, name, os.O_RDONLY), name)

    @classmethod
    def of_open(cls, descriptor: int, name: str) -> Self:
        """Returns a view of an arena whose file this process has opened. Closes the descriptor."""
        view = cls.__new__(cls)
        view._open(descriptor, name)
        return view

    def _open(self, descriptor: int, name: str) -> None:
        self._name = name
        try:
            self._layout = read_layout(descriptor, name)
            size = self._layout.size_bytes
            self._shared_map = mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ)
            self._private_map = mmap.mmap(descriptor, size, mmap.MAP_PRIVATE | _MAP_NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE)
        except (OSError, ValueError) as error:
            raise TransportError(f"arena {name} cannot be mapped: {error}") from error
        finally:
            os.close(descriptor)
        self._is_open = True
        self._shared = memoryview(self._shared_map)
        self._private = memoryview(self._private_map)
        self._table = self._shared[PAGE_BYTES : PAGE_BYTES + self._layout.num_slots * ENTRY_WORDS * 8].cast("Q")
        self._address = np.frombuffer(self._private_map, np.uint8).ctypes.data

    def read_only(self, block_id: int, offset: int, num_bytes: int) -> memoryview:
        """Returns the bytes themselves, not to be written.

        Args:
            block_id: The block's number.
            offset: Where they begin, counted from the start of the arena.
            num_bytes: How many they are.

        Raises:
            TensorLostError: If the arena does not have the block, or no longer.
            TransportError: If the bytes are not all within the block.
        """
        self._check(block_id, offset, num_bytes)
        return self._shared[offset : offset + num_bytes]

    def writable(self, block_id: int, offset: int, num_bytes: int) -> memoryview:
        """Returns the same bytes; writes to them stay in this view. Call `restore` once they are no longer used.

        Cost: nothing on Linux, a copy elsewhere.

        Raises:
            TensorLostError: If the arena does not have the block, or no longer.
            TransportError: If the bytes are not all within the block.
        """
        self._check(block_id, offset, num_bytes)
        private = self._private[offset : offset + num_bytes]
        if not _IS_DROPPING:
            private[:] = self._shared[offset : offset + num_bytes]
        return private

    def restore(self, offset: int, num_bytes: int) -> None:
        """Drops what was written to bytes that `writable` returned, and to the rest of their pages.

        Cost: reads 8 bytes per page from the kernel, a fraction of the page faults that dropping clean pages would bring.

        Raises:
            TransportError: If there are no such bytes.
        """
        if offset < 0 or num_bytes < 0 or offset + num_bytes > self._layout.size_bytes:
            raise TransportError(f"{num_bytes} bytes from {offset} are not within arena {self._name}")
        if not self._is_open or not _IS_DROPPING:
            return
        page = offset // PAGE_BYTES
        end = round_up(offset + num_bytes, PAGE_BYTES) // PAGE_BYTES
        while page < end:
            num_pages = min(end - page, _CHUNK_PAGES)
            if _has_private_pages(self._address + page * PAGE_BYTES, num_pages):
                self._private_map.madvise(mmap.MADV_DONTNEED, page * PAGE_BYTES, num_pages * PAGE_BYTES)
            page += num_pages

    def is_intact(self, block_id: int) -> bool:
        """Returns whether the arena still has a block. Call it after using its bytes, to learn whether they were the right
        ones.
        """
        return self._is_open and block_id > 0 and self._table[block_id % self._layout.num_slots * ENTRY_WORDS] == block_id

    def close(self) -> None:
        """Closes the view. Bytes in use stay mapped until the last of them is released."""
        if not self._is_open:
            return
        self._is_open = False
        for view in (self._table, self._shared, self._private):
            view.release()
        for mapped in (self._shared_map, self._private_map):
            with contextlib.suppress(BufferError):  # bytes are still in use; releasing the last of them closes it
                mapped.close()
        del self._shared_map, self._private_map

    def _check(self, block_id: int, offset: int, num_bytes: int) -> None:
        if not self._is_open:
            raise TensorLostError(f"the view of arena {self._name} is closed")
        table = self._table
        at = block_id % self._layout.num_slots * ENTRY_WORDS
        is_there = block_id > 0 and table[at] == block_id
        start, length = table[at + 1], table[at + 2]
        if not is_there or table[at] != block_id:  # again: a new block may have come between the reads
            raise TensorLostError(f"arena {self._name} does not hold block {block_id}")
        if start < self._layout.data_start or start + length > self._layout.size_bytes:
            raise TransportError(
                f"arena {self._name} puts block {block_id} at {start} with {length} bytes, which is outside of it"
            )
        if offset < start or num_bytes < 0 or offset + num_bytes > start + length:
            raise TransportError(
                f"{num_bytes} bytes from {offset} are not within block {block_id} of arena {self._name}, {length} from {start}"
            )


def _has_private_pages(address: int, num_pages: int) -> bool:
    """Returns whether any page of a private mapping has been written; True if the kernel does not say.

    Source: Linux, Documentation/admin-guide/mm/pagemap.rst: bit 63 is set if a page is in memory, 62 if it is swapped out, 61 if
    it is the file's own.
    """
    try:
        # Opened each time: after a fork, an open file would still describe the parent's memory.
        descriptor = os.open(_PAGEMAP, os.O_RDONLY)
        try:
            entries = os.pread(descriptor, num_pages * _PAGEMAP_BYTES, address // PAGE_BYTES * _PAGEMAP_BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return True
    if len(entries) != num_pages * _PAGEMAP_BYTES:
        return True
    top: npt.NDArray[np.uint64] = np.frombuffer(entries, np.uint64) >> np.uint64(61)
    return bool(((top != 0) & ((top & np.uint64(1)) == 0)).any())
