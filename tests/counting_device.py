"""A device that counts each copy and needs no GPU: its tensors lie in the host's memory, and refuse to be read from there.

A program reaches it by ``device="counting"``. What torch does on a GPU's tensors works on these, except for reading them on the
host and for mixing them with tensors of the host.
"""

import mmap
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dyorc.core.arrays import Array, numpy_to_torch, torch_to_numpy
from dyorc.devices import known_devices
from dyorc.errors import MissingDeviceError, TransportError
from dyorc.testing.leftovers import own_name

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


class _Recorder(TorchDispatchMode):
    """Records the operations that run while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, result))
        return result


class CountingGraph:
    """Implements `DeviceGraph`: replays operations into the memory of their first results, without the Python around them."""

    def __init__(self, device: "CountingDevice", launch: Callable[[], Sequence[Any]]) -> None:
        self._device = device
        with _Recorder() as recorder:
            self.results = launch()
        self._operations = recorder.operations

    def replay(self) -> None:
        self._device.num_replays += 1
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
            for func, args, kwargs, result in self._operations:
                again = func(*args, **kwargs)
                for kept, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                    if isinstance(kept, torch.Tensor) and kept.data_ptr() != new.data_ptr():
                        kept.copy_(new)


SHARED_FOLDER = Path("/dev/shm")
"""Where memory that processes share lies: a handle is the name of a file there."""


_SUFFIX = "-on-device"


def sweep_shared_memory() -> None:
    """Removes what processes have left that were killed. A real device frees the memory of a process that ends."""
    for path in SHARED_FOLDER.glob(own_name().rpartition("-")[0] + "-*" + _SUFFIX):
        path.unlink(missing_ok=True)


def handle_of(name: str) -> bytes:
    """Returns the handle of memory that is a file in the shared folder."""
    return name.encode().ljust(64, b"\0")


class CountingMemory:
    """Implements `DeviceMemory`: a file, which stays there while it is mapped."""

    def __init__(self, device: "CountingDevice", handle: bytes) -> None:
        try:
            with (SHARED_FOLDER / handle.rstrip(b"\0").decode()).open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)
        except (OSError, ValueError) as error:
            raise TransportError(f"invalid resource handle: {error}") from error
        self._device = device
        self.tensor = device.own(torch.frombuffer(self._map, dtype=torch.uint8))
        self.num_bytes = len(self._map)
        device.num_open += 1

    def close(self) -> None:
        self.tensor = None
        self._device.num_open -= 1
        self._map.close()


class CountingSharedMemory(CountingMemory):
    """Implements `SharedMemory`: a file that this process has made."""

    offset = 0

    def __init__(self, device: "CountingDevice", num_bytes: int) -> None:
        self._path = SHARED_FOLDER / (own_name() + _SUFFIX)
        self._path.write_bytes(bytes(num_bytes))
        self.handle = handle_of(self._path.name)
        super().__init__(device, self.handle)
        device.num_open -= 1
        device.num_shared += 1

    def close(self) -> None:
        self._path.unlink()
        self._device.num_shared -= 1
        self._device.num_open += 1
        super().close()


class CountingDevice:
    """Implements `Accelerator`.

    Attributes:
        num_to_host, num_from_host, num_from_device: Tensors copied.
        num_started_copies, num_waits: Calls of `copy_to_host`, and waits for them.
        num_synchronized: Calls of `synchronize`.
        num_pinned_bytes: Bytes of pinned memory in all.
        num_cache_freed: Calls of `free_cache`.
        num_open, num_shared: Memory of other processes that is open, and memory that others may open.
        num_captures, num_replays: Graphs recorded, and launched again.
        threads_of_copies: Names of the threads that began copies to the host.
    """

    def __init__(self, index: int, total_bytes: int = 2**30) -> None:
        self.name = f"counting:{index}"
        self.index = index
        self._kind = type(f"CountingTensor{index}", (CountingTensor,), {"device_index": index})
        self.total_bytes = total_bytes
        self.uuid = self.name
        self.num_open = self.num_shared = 0
        self.reset()

    def reset(self) -> None:
        """Counts from zero again: programs that are loaded run a first batch."""
        self.num_to_host = self.num_from_host = self.num_from_device = 0
        self.num_started_copies = self.num_waits = self.num_synchronized = self.num_pinned_bytes = self.num_cache_freed = 0
        self.num_captures = self.num_replays = 0
        self.threads_of_copies: set[str] = set()

    def holds(self, value: Any) -> bool:
        return isinstance(value, CountingTensor) and value.device_index == self.index

    def allocate_pinned(self, num_bytes: int) -> memoryview:
        self.num_pinned_bytes += num_bytes
        return memoryview(bytearray(num_bytes))

    def copy_from_host(self, array: Array) -> Any:
        self.num_from_host += 1
        return self.own(numpy_to_torch(array.copy()))

    def copy_from_device(self, tensor: Any) -> Any:
        self.num_from_device += 1
        return self.own(tensor.as_subclass(torch.Tensor).clone())

    def copy_to_host(self, tensors: Sequence[Any]) -> _CountedCopy:
        self.num_to_host += len(tensors)
        self.num_started_copies += 1
        self.threads_of_copies.add(threading.current_thread().name)
        return _CountedCopy(self, tensors)

    def synchronize(self) -> None:
        self.num_synchronized += 1

    def capture(self, launches: Sequence[Callable[[], Sequence[Any]]]) -> list[CountingGraph]:
        graphs: list[CountingGraph] = []
        for launch in launches:
            launch()
            graphs.append(CountingGraph(self, launch))
            self.num_captures += 1
        return graphs

    def allocate_shared(self, num_bytes: int) -> CountingSharedMemory:
        return CountingSharedMemory(self, num_bytes)

    def open_memory(self, handle: bytes) -> CountingMemory:
        return CountingMemory(self, handle)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, OutOfCountingMemoryError)

    def free_cache(self) -> None:
        self.num_cache_freed += 1

    def own(self, tensor: Any) -> Any:
        """Returns a tensor as one of this device."""
        return tensor.as_subclass(self._kind)


@contextmanager
def counting_devices(total_bytes: int = 2**30, kind: str = "counting", num: int = 2) -> Generator[dict[int, CountingDevice]]:
    """Lets programs declare ``device="counting"`` or ``"counting:1"``, while entered. Yields the devices by their index, each
    once it was looked for.

    Args:
        kind: Their kind; "cuda" takes the place of NVIDIA's.
        num: How many there are.
    """
    devices: dict[int, CountingDevice] = {}

    def make(index: int) -> CountingDevice:
        if index >= num:
            raise MissingDeviceError(f"there is no device {kind}:{index}; there are {num}")
        devices[index] = CountingDevice(index, total_bytes)
        return devices[index]

    before = dict(known_devices.KINDS)
    known_devices.KINDS[kind] = make
    known_devices.forget_devices()
    try:
        yield devices
    finally:
        known_devices.KINDS.clear()
        known_devices.KINDS.update(before)
        known_devices.forget_devices()
