"""How much memory a resident takes: the bytes of the tensors and arrays that it holds. Any thread."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def resident_bytes(resident: Any) -> int:
    """Returns the bytes of the torch tensors, NumPy arrays and texts found in an object.

    They are looked for in its attributes and in lists, tuples, sets and dicts, at any depth. Tensors that share memory count
    together at most as much as that memory has.

    Cost: Visits everything that the object refers to. A program whose residents are large structures declares a method
    ``resident_bytes(self, resident) -> int``.
    """
    torch = sys.modules.get("torch")
    seen: set[int] = set()
    viewed: dict[Any, tuple[int, int]] = {}
    kept: list[Any] = []  # so that no number of `id` means two objects
    num_bytes = 0
    left = [resident]
    while left:
        value = left.pop()
        if id(value) in seen or value is None or isinstance(value, int | float | str | type):
            continue
        seen.add(id(value))
        kept.append(value)
        if isinstance(value, np.ndarray):
            root = _root(value)
            _add(viewed, id(root), value.nbytes, root.nbytes)
            if value.dtype == object:
                left.extend(value.flat)
        elif torch is not None and isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            _add(viewed, (str(value.device), storage.data_ptr()), value.nbytes, storage.nbytes())
        elif isinstance(value, bytes | bytearray):
            num_bytes += len(value)
        else:
            left.extend(_parts_of(value))
    return num_bytes + sum(min(seen_bytes, whole) for seen_bytes, whole in viewed.values())


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
