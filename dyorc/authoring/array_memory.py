"""`dyorc.empty`: memory for a program's results that other programs read without another copy."""

import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from dyorc.core.arrays import Array, numpy_to_torch, torch_to_numpy

Reserve = Callable[[int], memoryview | None]
"""Returns memory of this many bytes; None if the program's own is as good."""

reserve_for_results: ContextVar[Reserve | None] = ContextVar("dyorc_reserve", default=None)
"""Where `empty` gets its memory while a batch runs."""


def empty(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """Returns an uninitialized array for a result of the running program.

    A program that writes its result there (``out=``) and returns it unchanged saves the copy into shared memory. Without a
    server, for small arrays, and where there is no room, it is ordinary memory: the result is the same.

    Ask for a new array in each call, and do not write to it after you have returned it: others read it.

    Args:
        shape: With the batch's dimension.
        dtype: A NumPy type, or a torch type for a torch tensor on the CPU.

    Raises:
        TypeError: If `dtype` has no fixed size.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        numpy_type = torch_to_numpy(torch.empty(0, dtype=dtype)).dtype
        return numpy_to_torch(_empty(shape, numpy_type))
    return _empty(shape, np.dtype(dtype))


def _empty(shape: int | tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
    if dtype.hasobject:
        raise TypeError(f"{dtype} has no fixed size; dyorc.empty is for numbers")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    reserve = reserve_for_results.get()
    num_items = int(np.prod(sizes, dtype=np.int64))
    memory = reserve(num_items * dtype.itemsize) if reserve is not None else None
    if memory is None:
        return np.empty(sizes, dtype)
    return np.frombuffer(memory, dtype, num_items).reshape(sizes)
