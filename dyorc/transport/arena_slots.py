"""Slots: places in a process's arena that one other process writes repeatedly.

All else in an arena is written by its owner alone. A slot is the exception: its owner, the reader, lends it to one writer, which
puts one message after another there. Two counters say whose turn it is; only the writer stores the first, only the reader the
second:

    byte   0    filled    u64   how many messages the writer has put here
    byte  64    emptied   u64   how many of them the reader has done with
    byte 128    payload

    filled == emptied         empty: the writer may write the payload, then adds 1 to `filled`
    filled == emptied + 1     full: the reader may read the payload, then adds 1 to `emptied`

The payload is written before `filled`, and read before `emptied`: a counter that has changed says that the bytes are there, or
no longer needed. Both are aligned stores of 8 bytes, in separate cache lines. On processors that reorder stores, a lock that is
taken and released between payload and counter keeps them in this order.

An arena has a random name, and is as old as its owner's process: a slot is never found full from an earlier life.
"""

import mmap
import os
import threading
import time
from collections.abc import Callable

import numpy as np

from dyorc.errors import TensorLostError
from dyorc.transport.arena_file import open_arena, read_layout

_LINE_BYTES = 64
HEADER_BYTES = 2 * _LINE_BYTES
"""Bytes of a slot before its payload."""

_SPIN_S = 50e-6
"""How long a process polls without a pause: less than waking it would take."""
_LEAST_PAUSE_S, _MOST_PAUSE_S = 20e-6, 0.5e-3


class ArenaSlot:
    """One end of a slot: the writer uses `begin` and `fill`, the reader `take` and `empty`. Not for several threads at a time.

    Args:
        memory: The whole slot, in the reader's arena.
        name: For errors.
    """

    def __init__(self, memory: memoryview, name: str) -> None:
        self._counters = np.frombuffer(memory[:HEADER_BYTES], np.uint64)[:: _LINE_BYTES // 8]
        self._payload = memory[HEADER_BYTES:]
        self._name = name
        self._order = threading.Lock()

    @property
    def is_full(self) -> bool:
        """Whether there is a message that the reader still needs."""
        return bool(self._counters[0] != self._counters[1])

    def begin(self, timeout_s: float) -> memoryview:
        """Waits until the reader has emptied the slot, and returns the payload, to be written.

        Raises:
            TensorLostError: If it was not emptied within this time.
        """
        if not _wait_for(lambda: not self.is_full, timeout_s):
            raise TensorLostError(f"{self._name} was not emptied within {timeout_s:g} s")
        return self._payload

    def fill(self) -> None:
        """Marks the payload as written."""
        self._count(0)

    def take(self, timeout_s: float) -> memoryview:
        """Waits for a message, and returns the payload. It stays as it is until `empty`.

        Raises:
            TensorLostError: If none came within this time.
        """
        if not _wait_for(lambda: self.is_full, timeout_s):
            raise TensorLostError(f"{self._name} was not filled within {timeout_s:g} s")
        return self._payload

    def empty(self) -> None:
        """Marks the message as no longer needed. Any thread, even a finalizer: it is one store."""
        self._count(1)

    def _count(self, place: int) -> None:
        for _ in range(2):  # what is above the first release stays there, what is below the second lock stays below
            with self._order:
                pass
        self._counters[place] += np.uint64(1)


def _wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Waits for a condition: polls for a moment without a pause, then with growing pauses. Returns False if it took too long."""
    began_s, pause_s = time.monotonic(), _LEAST_PAUSE_S
    while not condition():
        waited_s = time.monotonic() - began_s
        if waited_s > timeout_s:
            return False
        if waited_s > _SPIN_S:
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _MOST_PAUSE_S)
    return True


class ArenaWindow:
    """Another process's arena, mapped so that the slots in it can be written.

    Args:
        folder: Where processes of the node share memory.
        name: The arena's file name.

    Raises:
        TensorLostError: If there is no such arena: its owner is gone.
        TransportError: If it is not an arena.
    """

    def __init__(self, folder: str, name: str) -> None:
        descriptor = open_arena(folder, name, os.O_RDWR)
        try:
            self._size_bytes = read_layout(descriptor, name).size_bytes
            self._map = mmap.mmap(descriptor, self._size_bytes)
        finally:
            os.close(descriptor)
        self._name = name

    def slot(self, offset: int, num_bytes: int) -> ArenaSlot:
        """Returns the writer's end of a slot that lies at an offset from the start of the arena."""
        if offset < 0 or offset + num_bytes > self._size_bytes:
            raise TensorLostError(f"{num_bytes} bytes from {offset} are not within arena {self._name}")
        return ArenaSlot(memoryview(self._map)[offset : offset + num_bytes], f"the slot at {offset} of arena {self._name}")
