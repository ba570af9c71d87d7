"""A device that counts each copy and needs no GPU: its tensors lie in the host's memory, and refuse to be read from there.

A program reaches it by ``device="counting"``. What torch does on a GPU's tensors works on these, except for reading them on the
host and for mixing them with tensors of the host.
"""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dyorc.core.arrays import Array, numpy_to_torch, torch_to_numpy
from dyorc.devices import known_devices

_HOST_READS = {
    torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.item, torch.Tensor.cpu, torch.Tensor.__array__, torch.Tensor.to,
    torch.Tensor.__bool__, torch.Tensor.__float__, torch.Tensor.__int__,
}  # fmt: skip


class OutOfCountingMemoryError(RuntimeError):
    """The device has no memory left."""


class CountingTensor(torch.Tensor):
    """A tensor on the device."""

    device_index: int

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _HOST_READS:
            raise RuntimeError(f"{func.__name__} reads a tensor of the device on the host")
        for arg in args:
            if isinstance(arg, torch.Tensor) and not isinstance(arg, CountingTensor) and arg.ndim:
                raise RuntimeError("expected all tensors to be on the same device, found the host's and the device's")
        return super().__torch_function__(func, types, args, kwargs or {})


class _CountedCopy:
    def __init__(self, device: "CountingDevice", tensors: Sequence[Any]) -> None:
        self._device = device
        self._tensors = tensors

    def wait(self) -> list[Array]:
        self._device.num_waits += 1
        return [torch_to_numpy(tensor.as_subclass(torch.Tensor).clone()) for tensor in self._tensors]


class CountingDevice:
    """Implements `Accelerator`.

    Attributes:
        num_to_host, num_from_host, num_from_device: Tensors copied.
        num_started_copies, num_waits: Calls of `copy_to_host`, and waits for them.
        num_synchronized: Calls of `synchronize`.
        num_pinned_bytes: Bytes of pinned memory in all.
        num_cache_freed: Calls of `free_cache`.
        threads_of_copies: Names of the threads that began copies to the host.
    """

    def __init__(self, index: int, total_bytes: int = 2**30) -> None:
        self.name = f"counting:{index}"
        self.index = index
        self._kind = type(f"CountingTensor{index}", (CountingTensor,), {"device_index": index})
        self.total_bytes = total_bytes
        self.reset()

    def reset(self) -> None:
        """Counts from zero again: programs that are loaded run a first batch."""
        self.num_to_host = self.num_from_host = self.num_from_device = 0
        self.num_started_copies = self.num_waits = self.num_synchronized = self.num_pinned_bytes = self.num_cache_freed = 0
        self.threads_of_copies: set[str] = set()

    def holds(self, value: Any) -> bool:
        return isinstance(value, CountingTensor) and value.device_index == self.index

    def allocate_pinned(self, num_bytes: int) -> memoryview:
        self.num_pinned_bytes += num_bytes
        return memoryview(bytearray(num_bytes))

    def copy_from_host(self, array: Array) -> Any:
        self.num_from_host += 1
        return self._own(numpy_to_torch(array.copy()))

    def copy_from_device(self, tensor: Any) -> Any:
        self.num_from_device += 1
        return self._own(tensor.as_subclass(torch.Tensor).clone())

    def copy_to_host(self, tensors: Sequence[Any]) -> _CountedCopy:
        self.num_to_host += len(tensors)
        self.num_started_copies += 1
        self.threads_of_copies.add(threading.current_thread().name)
        return _CountedCopy(self, tensors)

    def synchronize(self) -> None:
        self.num_synchronized += 1

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, OutOfCountingMemoryError)

    def free_cache(self) -> None:
        self.num_cache_freed += 1

    def _own(self, tensor: Any) -> Any:
        return tensor.as_subclass(self._kind)


@contextmanager
def counting_devices(total_bytes: int = 2**30) -> Generator[dict[int, CountingDevice]]:
    """Lets programs declare ``device="counting"`` or ``"counting:1"``, while entered. Yields the devices by their index, each
    once it was looked for."""
    devices: dict[int, CountingDevice] = {}

    def make(index: int) -> CountingDevice:
        devices[index] = CountingDevice(index, total_bytes)
        return devices[index]

    known_devices.KINDS["counting"] = make
    known_devices.forget_devices()
    try:
        yield devices
    finally:
        del known_devices.KINDS["counting"]
        known_devices.forget_devices()
