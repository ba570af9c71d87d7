"""What is in a resident: how much memory it takes, and whether it was changed. Any thread."""

import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

_PLAIN = (int, float, complex, str, bytes, bytearray)


def resident_bytes(resident: Any) -> int:
    """Returns the bytes of the torch tensors, NumPy arrays and byte strings found in an object.

    They are looked for in its attributes and in lists, tuples, sets and dicts, at any depth. Tensors that share memory count
    together at most as much as that memory has.

    Cost: Visits everything that the object refers to. A program whose residents are large structures declares a method
    ``resident_bytes(self, resident) -> int``.
    """
    torch = sys.modules.get("torch")
    viewed: dict[Any, tuple[int, int]] = {}
    num_bytes = 0
    for value in _leaves(resident):
        if isinstance(value, np.ndarray):
            root = _root(value)
            _add(viewed, id(root), value.nbytes, root.nbytes)
        elif torch is not None and isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            _add(viewed, (str(value.device), storage.data_ptr()), value.nbytes, storage.nbytes())
        elif isinstance(value, bytes | bytearray):
            num_bytes += len(value)
    return num_bytes + sum(min(seen_bytes, whole) for seen_bytes, whole in viewed.values())


def fingerprint(resident: Any) -> int:
    """Returns a number that changes when a tensor, array, number or text in an object does, or when it gets more or fewer.

    Cost: reads all of it.
    """
    torch = sys.modules.get("torch")
    checksum = 0
    for value in _leaves(resident):
        contents: Any
        if isinstance(value, np.ndarray):
            head, contents = f"{value.dtype}{value.shape}", b"" if value.dtype == object else _bytes_of(value)
        elif torch is not None and isinstance(value, torch.Tensor):
            head, contents = (
                f"{value.dtype}{tuple(value.shape)}",
                _bytes_of(value.detach().cpu().contiguous().view(torch.uint8).numpy()),
            )
        else:
            head, contents = "", repr(value).encode()
        checksum = zlib.crc32(contents, zlib.crc32(head.encode(), checksum))
    return checksum


def _bytes_of(array: np.ndarray[Any, Any]) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _leaves(resident: Any) -> Iterator[Any]:
    """Yields the arrays, tensors, numbers and texts in an object: all numbers and texts, and every other object once."""
    torch = sys.modules.get("torch")
    seen: set[int] = set()
    kept: list[Any] = []  # so that no number of `id` means two objects
    left = [resident]
    while left:
        value = left.pop()
        if isinstance(value, _PLAIN):
            yield value
            continue
        if value is None or isinstance(value, type) or id(value) in seen:
            continue
        seen.add(id(value))
        kept.append(value)
        if isinstance(value, np.ndarray):
            yield value
            if value.dtype == object:
                left.extend(value.flat)
        elif torch is not None and isinstance(value, torch.Tensor):
            yield value
        else:
            left.extend(_parts_of(value))


def _add(viewed: dict[Any, tuple[int, int]], memory: Any, num_bytes: int, whole: int) -> None:
    viewed[memory] = viewed.get(memory, (0, whole))[0] + num_bytes, whole


def _root(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _parts_of(value: Any) -> Iterable[Any]:
    """Returns what an object consists of: a container's items, or its attributes."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    parts = list(getattr(value, "__dict__", {}).values())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        parts += [getattr(value, name, None) for name in ((slots,) if isinstance(slots, str) else slots)]
    return parts
