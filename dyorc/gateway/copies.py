"""Copies of tensors that let other threads run meanwhile. `ndarray.tobytes`, and joining or assigning views, would not."""

from collections.abc import Sequence

import numpy as np

from dyorc.core.arrays import Array

PIECE_ITEMS = 8192
"""Longest array, of items that are converted one by one, that is not split: about half a millisecond's work."""
PAUSE_S = 20e-6
"""Pause after each such piece, so that the event loop gets its turn: a thread that only yields mostly continues first."""

_SMALL_BYTES = 64 * 2**10
_PIECE_BYTES = 2**20


def copy_bytes(array: Array) -> bytes | memoryview:
    """Returns the bytes of an array whose elements are in order. NumPy lets other threads run while it copies."""
    if array.nbytes <= _SMALL_BYTES:
        return array.tobytes()
    return array.copy().reshape(-1).view("u1").data


def join_buffers(parts: Sequence[bytes | memoryview]) -> bytes:
    """Joins buffers. Copies large ones piece by piece: `join` lets other threads run only if all parts are bytes."""
    pieces: list[bytes | memoryview] = []
    for part in parts:
        if isinstance(part, bytes) or len(part) <= _SMALL_BYTES:
            pieces.append(bytes(part))
        else:
            pieces.extend(bytes(part[at : at + _PIECE_BYTES]) for at in range(0, len(part), _PIECE_BYTES))
    return b"".join(pieces)


def copy_into(place: memoryview, data: memoryview) -> None:
    """Copies bytes into a buffer of the same length."""
    if len(data) <= _SMALL_BYTES:
        place[:] = data
    else:
        np.copyto(np.frombuffer(place, np.uint8), np.frombuffer(data, np.uint8))
