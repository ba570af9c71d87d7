"""Reusable memory for batches: fresh memory costs more than the copy that fills it."""

from collections.abc import Callable

import numpy as np


def _allocate(num_bytes: int) -> memoryview:
    return np.empty(num_bytes, np.uint8).data


class BatchBuffers:
    """One buffer for each place in a batch, as long as the longest so far. A new request for a place overwrites the last one.

    Args:
        allocate: Makes memory; a device's library has its own, which it copies from faster.
    """

    def __init__(self, allocate: Callable[[int], memoryview] = _allocate) -> None:
        self._allocate = allocate
        self._buffers: dict[int, memoryview] = {}

    def take(self, place: int, num_bytes: int) -> memoryview:
        """Returns memory of `num_bytes` for a place."""
        buffer = self._buffers.get(place)
        if buffer is None or len(buffer) < num_bytes:
            self._buffers.pop(place, None)  # free it first
            buffer = self._buffers[place] = self._allocate(max(num_bytes, 4096))
        return buffer[:num_bytes]
