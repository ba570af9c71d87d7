"""Copies of outputs that let other threads run meanwhile. `ndarray.tobytes`, and joining views, would not."""

from collections.abc import Sequence

from dyorc.arrays import Array

_SMALL_BYTES = 64 * 2**10
_PIECE_BYTES = 2**20


def copied(array: Array) -> bytes | memoryview:
    """The bytes of an array whose elements are in order. NumPy lets other threads run while it copies."""
    if array.nbytes <= _SMALL_BYTES:
        return array.tobytes()
    return array.copy().reshape(-1).view("u1").data


def joined(parts: Sequence[bytes | memoryview]) -> bytes:
    """Buffers as one piece. Large ones are copied piece by piece: `join` lets other threads run only if all it joins is bytes."""
    pieces: list[bytes | memoryview] = []
    for part in parts:
        if isinstance(part, bytes) or len(part) <= _SMALL_BYTES:
            pieces.append(bytes(part))
        else:
            pieces.extend(bytes(part[at : at + _PIECE_BYTES]) for at in range(0, len(part), _PIECE_BYTES))
    return b"".join(pieces)
