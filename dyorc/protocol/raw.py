"""Raw tensors: bounds for data off the wire, and BYTES, whose elements have no fixed size."""

import math
import struct

import numpy as np

from dyorc.core.arrays import Array
from dyorc.core.tensor import Shape
from dyorc.errors import TransportError

MAX_RANK = 64
MAX_SIZE = 2**48
"""Bounds of shapes off the wire: NumPy's most dimensions, and far more elements than a machine holds."""


def encode_bytes(array: Array) -> bytes:
    """Encodes BYTES elements as the Open Inference Protocol does: a 4-byte little-endian length, then the bytes."""
    parts: list[bytes] = []
    for item in array.reshape(-1).tolist():
        if not isinstance(item, bytes):
            raise TransportError(f"an element of a BYTES tensor is {type(item).__name__}, expected bytes")
        parts += (struct.pack("<I", len(item)), item)
    return b"".join(parts)


def decode_bytes(raw: bytes | bytearray | memoryview, shape: Shape) -> Array:
    """Undoes `encode_bytes`.

    Raises:
        TransportError: If the lengths run past the end, or the number of elements does not match the shape.
    """
    view = memoryview(raw)
    num_expected, at = math.prod(shape), 0
    items: list[bytes] = []
    while at < len(view):
        if at + 4 > len(view):
            raise TransportError(f"element {len(items)} has {len(view) - at} bytes left for its 4-byte length")
        (length,) = struct.unpack_from("<I", view, at)
        at += 4
        if length > len(view) - at:
            raise TransportError(f"element {len(items)} says it has {length} bytes, {len(view) - at} are left")
        items.append(bytes(view[at : at + length]))
        at += length
    if len(items) != num_expected:
        raise TransportError(f"{len(items)} elements came, shape {list(shape)} has {num_expected}")
    array = np.empty(num_expected, dtype=object)
    array[:] = items
    try:
        return array.reshape(shape)
    except ValueError as error:
        raise TransportError(f"{num_expected} elements cannot have the shape {list(shape)}: {error}") from error
