"""The arena: a file in shared memory in which one process holds the tensors it made, for all processes of its node.

Only its owner writes it (`Arena`); all others map it and read (`arena_views`). The exception are slots (`arena_slots`): blocks
that are lent to one writer each and never published. Any thread of the owner may allocate, publish and free; a finalizer may not,
because it may run while its own thread is inside.

The file, from its first byte (a page has 4,096 bytes on most machines, an entry has 32)::

    page 0      | magic | version | num_slots | size | data_start | token | pid |        written once, before the file has a name
                +-------+---------+-----------+------+------------+-------+-----+
    slot table  | entry 0: block_id | start | num_bytes | reserved |
                | entry 1: block_id | start | num_bytes | reserved |  ...                num_slots entries of 4 x uint64
                +-------------------+-------+-----------+----------+
    data_start  | block | free | block of several pages | free          ...      | size  each block begins a page

A block's number says where its entry is, and which of all the blocks that ever used the entry it is:
``sequence * num_slots + slot``. It is never used again. The states of a block:

    state       block_id in its entry   the bytes                       next
    free        0                       unused                          allocate
    allocated   0                       the caller writes them          publish, free
    published   the block's number      read-only                       free

A reader takes the entry of a number and has the block if the entry has exactly that number; then the entry's `start` and
`num_bytes` bound what it may read. That is safe because of the order of the writes:

* Publishing writes `start` and `num_bytes`, then `block_id`, in one aligned store of 8 bytes. A reader that sees the number
sees the matching bounds.
* The bytes are written before that, and a reader gets the number from a message that is sent after it.
* Freeing clears `block_id` before anything else may use entry or bytes. A reader that looks up a number too late finds none, or
another. One that is reading meanwhile checks again afterwards (`ArenaView.is_intact`).
* Each step holds the owner's lock, which keeps its stores from passing those of the next step on any processor.

No block is freed while a process may still read it: the engine tells the owner when that is over. The states catch messages that
come late, or twice, or from a faulty process.

A file never has a name without its owner's lock (``flock``), which is released whenever the process ends. So a file without a
lock is an orphan, and any process may remove it (`sweep`). (Where files cannot be made without a name, a file that ends in
``.new`` is without a lock for a moment. If a sweep takes it then, its owner makes another.) A fork of the owner shares the lock;
the file is an orphan when both have ended.

Memory is taken as the arena fills up, lowest addresses first, and before it is written: if the folder is full, so is the arena,
and no process gets a SIGBUS. Memory of free ranges is returned when it was unused for some time (`ArenaTrimmer`), and all of it
when the arena is closed and the last process has unmapped it. A late reader may then see zeros in place of its block; it notices
as before that the block is gone.
"""

import contextlib
import mmap
import os
import secrets
import threading
from collections.abc import Collection
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from dyorc.core.arrays import Array, address_of
from dyorc.errors import TransportError
from dyorc.transport.arena_file import (
    ENTRY_WORDS,
    PAGE_BYTES,
    ArenaLayout,
    ArenaUsage,
    capacity_of,
    create_anonymous,
    create_file,
    round_up,
    sweep,
    usage_of_file,
)
from dyorc.transport.arena_space import Backing, FreeSpace
from dyorc.transport.arena_views import ArenaView


class ArenaBlock(msgspec.Struct, frozen=True):
    """A part of the owner's arena that it may write until it publishes it.

    Attributes:
        block_id: Its number, never used again; at least 1, below 2**63.
        offset: Where it begins, in bytes from the start of the file; a whole number of pages.
        num_bytes: Its exact length.
        memory: The `num_bytes` bytes, to be written.
    """

    block_id: int
    offset: int
    num_bytes: int
    memory: Any


class Arena:
    """A process's own arena, while entered.

    Args:
        folder: Where processes of the node share memory, e.g. ``/dev/shm``; empty if no other process is to read it.
        size_bytes: Length of the file, rounded down to whole pages. An upper limit: memory is taken on demand.
        num_slots: How many blocks there may be at once.

    Raises:
        ValueError: If not one page is left for blocks.
    """

    def __init__(self, folder: str, size_bytes: int, num_slots: int = 4096) -> None:
        size_bytes -= size_bytes % PAGE_BYTES
        self._folder = folder
        self._capacity_bytes = 0
        self._layout = ArenaLayout(max(num_slots, 1), size_bytes, secrets.randbits(64), os.getpid())
        if num_slots < 1 or self.max_block_bytes < PAGE_BYTES:
            raise ValueError(
                f"{size_bytes} bytes with {num_slots} slots leave no room for blocks, expected 1 slot and page at least"
            )
        self._lock = threading.Lock()
        self._descriptor = -1
        self._map: mmap.mmap | None = None
        self._memory = memoryview(b"")
        self._table: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self._backing: Backing | None = None
        # Somewhere in the lower half, so that numbers differ between arenas.
        self._sequence = 1 + secrets.randbelow(2**62 // num_slots)
        self._forget_blocks()

    def _forget_blocks(self) -> None:
        self._space = FreeSpace(self._layout.data_start, self._layout.size_bytes)
        self._free_slots = list(range(self._layout.num_slots - 1, -1, -1))
        self._live: dict[int, tuple[int, int]] = {}  # where each block begins and how much room it takes
        self._num_bytes_used = self._peak_bytes = 0

    def __enter__(self) -> Self:
        """Creates the file; removes orphans first, which may take its room.

        Raises:
            TransportError: If the file cannot be created.
        """
        try:
            if self._folder:
                sweep(self._folder)
                self._capacity_bytes = capacity_of(self._folder)
                self._descriptor, self._layout = create_file(self._folder, self._layout)
            else:
                self._descriptor = create_anonymous(self._layout)
            self._map = mmap.mmap(self._descriptor, self._layout.size_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            self.__exit__(None, None, None)
            where = self._folder or "memory"
            raise TransportError(f"cannot create an arena of {self.size_bytes} bytes in {where}: {error}") from error
        self._memory = memoryview(self._map)
        self._backing = Backing(self._descriptor, self.name, self._map, self._layout.data_start, self._layout.size_bytes)
        num_words = self._layout.num_slots * ENTRY_WORDS
        self._table = np.frombuffer(self._map, np.uint64, num_words, offset=PAGE_BYTES)
        return self

    def view(self) -> ArenaView:
        """Returns a view of it for one thread of this process, which must close it."""
        return ArenaView.of_open(os.dup(self._descriptor), self.name)

    def usage(self) -> ArenaUsage:
        """Returns how much memory it uses, as other processes see it."""
        return usage_of_file(self._descriptor, self.name)

    def hide(self) -> None:
        """Removes the file's name, once all its readers have opened it. Then nothing is left if this process is killed."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._folder, self.name))

    def __exit__(self, *exc_info: object) -> None:
        """Removes the file. Processes that have mapped it may read on; the memory goes with the last view of it."""
        with self._lock:
            arena, self._map, self._backing = self._map, None, None
            self._forget_blocks()
            self._memory.release()
            self._table = np.empty(0, np.uint64)
            if self._descriptor >= 0:
                if self._folder:
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(self._folder, self.name))
                os.close(self._descriptor)
                self._descriptor = -1
            if arena is not None:
                with contextlib.suppress(BufferError):  # there are views; the last one to go closes it
                    arena.close()

    @property
    def name(self) -> str:
        """The file's name, by which other processes open it."""
        return self._layout.name

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return self._layout.size_bytes

    @property
    def max_block_bytes(self) -> int:
        """The largest block that it can ever hold: when the arena is empty, and its folder has nothing else."""
        return min(self._layout.size_bytes, self._capacity_bytes or self._layout.size_bytes) - self._layout.data_start

    def can_hold(self, num_bytes: int, num_others: int) -> bool:
        """Returns whether there may ever be room for a block while other blocks take this many bytes in the same folder."""
        return num_bytes <= self.max_block_bytes - (num_others if self._capacity_bytes else 0)

    def remedy_for(self, num_bytes: int) -> str:
        """Returns advice for a block of this size, which is larger than `max_block_bytes`."""
        if self._capacity_bytes and num_bytes + self._layout.data_start > self._capacity_bytes:
            return (
                f"{self._folder} holds {self._capacity_bytes} bytes in all: give it more (Docker: --shm-size; Kubernetes: an "
                f"emptyDir of medium Memory), or name another folder in memory (DYORC_TRANSPORT__ARENA_FOLDER)"
            )
        return "raise DYORC_TRANSPORT__ARENA_BYTES"

    @property
    def num_blocks(self) -> int:
        """Blocks that are not free, published or not."""
        return len(self._live)

    @property
    def num_bytes_used(self) -> int:
        """Room that blocks take, in whole pages."""
        return self._num_bytes_used

    @property
    def num_bytes_resident(self) -> int:
        """Memory taken and not returned."""
        return 0 if self._backing is None else self._backing.num_bytes

    def allocate(self, num_bytes: int) -> ArenaBlock | None:
        """Returns a block to write into, or None if there is no room for it now: no bytes, no slot, or the folder is full.

        Its bytes are not cleared.

        Raises:
            ValueError: If `num_bytes` is negative.
            TransportError: If the arena is not open.
        """
        if num_bytes < 0:
            raise ValueError(f"a block of {num_bytes} bytes")
        taken_bytes = round_up(max(num_bytes, 1), PAGE_BYTES)
        with self._lock:
            if self._backing is None:
                raise TransportError(f"arena {self.name} is not open")
            start = self._space.take(taken_bytes) if self._free_slots else None
            if start is None:
                return None
            if not self._backing.take(start, start + taken_bytes):
                self._space.give_back(start, taken_bytes)
                return None
            block_id = self._sequence * self._layout.num_slots + self._free_slots.pop()
            self._sequence += 1
            self._live[block_id] = (start, taken_bytes)
            self._num_bytes_used += taken_bytes
            self._peak_bytes = max(self._peak_bytes, self._num_bytes_used)
            return ArenaBlock(block_id, start, num_bytes, self._memory[start : start + num_bytes])

    def publish(self, block: ArenaBlock) -> None:
        """Makes a block visible to readers. From here on its bytes must not be written.

        Raises:
            TransportError: If the block has been freed.
        """
        with self._lock:
            if block.block_id not in self._live:
                raise TransportError(f"block {block.block_id} of arena {self.name} was freed before it was published")
            at = block.block_id % self._layout.num_slots * ENTRY_WORDS
            self._table[at + 1] = block.offset
            self._table[at + 2] = block.num_bytes
            self._table[at] = block.block_id  # last: a reader that sees the number must see its bounds

    def free(self, block_id: int) -> bool:
        """Frees a block, published or not. Its bytes may be overwritten from here on.

        Returns:
            Whether it was there; it may have been freed before.
        """
        with self._lock:
            taken = self._live.pop(block_id, None)
            if taken is None:
                return False
            slot = block_id % self._layout.num_slots
            self._table[slot * ENTRY_WORDS] = 0  # first: its room may be reused at once
            self._space.give_back(*taken)
            self._free_slots.append(slot)
            self._num_bytes_used -= taken[1]
            return True

    def free_all(self, but: Collection[int] = ()) -> None:
        """Frees all blocks except these. No thread may still write to one that is not published."""
        if but:
            for block_id in [block_id for block_id in self._live if block_id not in but]:
                self.free(block_id)
            return
        with self._lock:
            self._table[::ENTRY_WORDS] = 0
            self._forget_blocks()

    def take_peak(self) -> int:
        """Returns the most room that blocks have taken since the last call."""
        with self._lock:
            peak_bytes, self._peak_bytes = self._peak_bytes, self._num_bytes_used
            return peak_bytes

    def trim(self, keep_bytes: int, max_bytes: int) -> bool:
        """Returns memory of free ranges to the system, the highest first, until only `keep_bytes` are left in all.

        Args:
            max_bytes: Limit per call, because allocations wait meanwhile.

        Returns:
            Whether any memory was returned; then there may be more.
        """
        with self._lock:
            if self._backing is None:
                return False
            wanted = min(max_bytes, self._backing.num_bytes - keep_bytes)
            returned = 0
            for start, end in self._space.ranges():
                if wanted - returned < PAGE_BYTES:
                    break
                returned += self._backing.give_back(start, end, wanted - returned)
            return returned > 0


class ArenaBody:
    """Memory in the arena for what a client sends.

    Attributes:
        memory: As long as requested.
        is_used: Whether it holds a tensor; then the engine decides when it is freed.
    """

    def __init__(self, block: ArenaBlock, lead: int) -> None:
        self.block = block
        self.memory = block.memory[lead:]
        self.is_used = False
        self._offset = block.offset + lead
        self._address = address_of(np.frombuffer(self.memory, np.uint8))

    def offset_of(self, array: Array) -> int | None:
        """Returns where in the arena an array's bytes are; None if not in this body, not contiguous, or not aligned."""
        at = address_of(array) - self._address
        is_inside = at >= 0 and at + array.nbytes <= len(self.memory)
        return self._offset + at if is_inside and array.flags.c_contiguous and array.flags.aligned else None
