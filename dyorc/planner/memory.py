"""How much memory tensors take, counted one by one as operations make them: the same on every machine."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


def peak_of(run: Callable[[], object], held: Iterable[torch.Tensor] = ()) -> int:
    """Runs something, and returns the most bytes that tensors took at a time: of those held before, and of those made by it.

    Counted by storages, so that views count once, and the same on every machine. What operations need inside is not seen.

    Args:
        run: Is called once.
        held: Tensors that are there before, and stay.
    """
    counter = TensorCounter()
    for tensor in held:
        counter.see(tensor)
    with counter:
        run()
    return counter.peak_bytes


class TensorCounter(TorchDispatchMode):
    """Counts the bytes of tensors that are made while it is entered, by storages, until they are freed.

    Args:
        limit_bytes: More raises an error; None: no limit.

    Attributes:
        peak_bytes: The most so far.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        super().__init__()
        self._seen: set[int] = set()
        self._bytes = 0
        self._limit_bytes = limit_bytes
        self.peak_bytes = 0

    def see(self, tensor: torch.Tensor) -> None:
        """Counts a tensor's storage until it is freed; of a sparse one, its indices' and its values'.

        Raises:
            MemoryError: There is more now than the limit allows.
        """
        if tensor.layout is torch.sparse_coo:
            self.see(tensor._indices())
            self.see(tensor._values())
            return
        storage = tensor.untyped_storage()
        key, num_bytes = storage._cdata, storage.nbytes()  # pyright: ignore[reportPrivateUsage] (its address may be used again at once)
        if key in self._seen or not num_bytes:
            return
        self._seen.add(key)
        self._bytes += num_bytes
        self.peak_bytes = max(self.peak_bytes, self._bytes)
        weakref.finalize(storage, self._forget, key, num_bytes)
        if self._limit_bytes is not None and self._bytes > self._limit_bytes:
            raise MemoryError(f"a tensor of {num_bytes:,} bytes makes {self._bytes:,}; there is room for {self._limit_bytes:,}")

    def _forget(self, key: int, num_bytes: int) -> None:
        self._seen.discard(key)
        self._bytes -= num_bytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation, and counts what it makes."""
        made = func(*args, **(kwargs or {}))
        for each in tree_iter(made):
            if isinstance(each, torch.Tensor):
                self.see(each)
        return made
