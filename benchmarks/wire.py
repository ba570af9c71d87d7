"""The format in which peers without a tensor protocol exchange tensors: a short JSON head, then raw bytes.

Layout: the head's length in 4 bytes, little-endian; the head, a list of [name, dtype, shape, bytes]; the tensors' bytes, one
after another. Strings have the dtype "bytes", and each is preceded by its length in 4 bytes. The peers' servers import this
module too, so it needs only NumPy.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

_LENGTH = struct.Struct("<I")


def pack(tensors: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """Returns tensors as a body."""
    entries: list[tuple[str, str, tuple[int, ...], int]] = []
    parts: list[bytes] = []
    for name, array in tensors.items():
        is_text = array.dtype == object
        data = _pack_texts(array) if is_text else array.tobytes()
        entries.append((name, "bytes" if is_text else array.dtype.str, array.shape, len(data)))
        parts.append(data)
    head = json.dumps(entries, separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(head)), head, *parts])


def unpack(body: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the tensors of a body. Numbers are read-only views of it.

    Raises:
        ValueError: If it is malformed.
    """
    try:
        (head_bytes,) = _LENGTH.unpack_from(body)
        at = _LENGTH.size + head_bytes
        tensors: dict[str, np.ndarray[Any, Any]] = {}
        for name, dtype, shape, num_bytes in json.loads(body[_LENGTH.size : at]):
            data = memoryview(body)[at : at + num_bytes]
            tensors[name] = _unpack_texts(data, shape) if dtype == "bytes" else np.frombuffer(data, dtype).reshape(shape)
            at += num_bytes
    except (struct.error, TypeError, KeyError) as error:
        raise ValueError(f"a body of {len(body)} bytes is malformed: {error}") from error
    if at != len(body):
        raise ValueError(f"a body of {len(body)} bytes should have {at}")
    return tensors


def _pack_texts(array: np.ndarray[Any, Any]) -> bytes:
    return b"".join(_LENGTH.pack(len(text)) + text for text in map(bytes, array.ravel()))


def _unpack_texts(data: memoryview, shape: list[int]) -> np.ndarray[Any, Any]:
    texts: list[bytes] = []
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        texts.append(bytes(data[at + _LENGTH.size : at + _LENGTH.size + length]))
        at += _LENGTH.size + length
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)
