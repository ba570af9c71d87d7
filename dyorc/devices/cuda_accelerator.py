"""NVIDIA's devices, by torch. torch is imported on first use: a server without programs for devices never does."""

import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from dyorc.core.arrays import Array, numpy_to_torch, torch_to_numpy
from dyorc.devices.cuda_driver import CudaDriver
from dyorc.errors import MissingDeviceError
from dyorc.system.extras import missing_library

_NUM_WARMUPS = 3
"""Runs before a graph is recorded, as torch's documentation advises."""


class _PinnedCopy:
    """Copies into pinned memory. It keeps the device's tensors until they are copied: their memory must not be used again."""

    def __init__(self, event: Any, sources: Sequence[Any], targets: Sequence[Any]) -> None:
        self._event = event
        self._sources = list(sources)
        self._targets = targets

    def wait(self) -> list[Array]:
        self._event.synchronize()  # releases the interpreter
        self._sources.clear()
        return [torch_to_numpy(target) for target in self._targets]


class _CudaGraph:
    def __init__(self, torch: Any, device: Any, graph: Any, results: Sequence[Any]) -> None:
        self._torch = torch
        self._device = device
        self._graph = graph
        self.results = results

    def replay(self) -> None:
        with self._torch.cuda.device(self._device):
            self._graph.replay()


class _Pointer:
    """Memory as torch reads it from other libraries."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {"shape": (num_bytes,), "typestr": "|u1", "data": (address, False), "version": 3}


class _OpenMemory:
    def __init__(self, driver: CudaDriver, torch: Any, device: Any, handle: bytes) -> None:
        self._driver = driver
        self._device = device
        self._torch = torch
        with torch.cuda.device(device):
            torch.cuda.synchronize()  # makes the device's context current
            self._address, self.num_bytes = driver.open(handle)
            self.tensor = torch.as_tensor(_Pointer(self._address, self.num_bytes), device=device)

    def close(self) -> None:
        self.tensor = None
        with self._torch.cuda.device(self._device):
            self._torch.cuda.synchronize()
            self._driver.close(self._address)


class _SharedMemory:
    def __init__(self, driver: CudaDriver, torch: Any, device: Any, num_bytes: int) -> None:
        self.tensor = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        self.num_bytes = num_bytes
        with torch.cuda.device(device):
            self.handle, self.offset = driver.export(self.tensor.data_ptr())

    def close(self) -> None:
        self.tensor = None


class CudaAccelerator:
    """One of the devices that this process may see (`Accelerator`).

    Args:
        index: Its number among them.

    Raises:
        MissingLibraryError: If torch is missing.
        MissingDeviceError: If torch sees no such device.
    """

    def __init__(self, index: int) -> None:
        try:
            self._torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise missing_library("torch", "torch", f"device cuda:{index}") from error
        num_devices = self._torch.cuda.device_count() if self._torch.cuda.is_available() else 0
        if index >= num_devices:
            raise MissingDeviceError(
                f"there is no device cuda:{index}; torch sees {num_devices} in this process (on Ray, a replica sees those of its "
                f'ray_actor_options={{"num_gpus": 1}})'
            )
        self._device = self._torch.device("cuda", index)
        self._copying: Any = None
        self._driver: CudaDriver | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return str(self._device)

    @property
    def uuid(self) -> str:
        return self._loaded_driver().uuid(self._device.index)

    @property
    def total_bytes(self) -> int:
        return int(self._torch.cuda.get_device_properties(self._device).total_memory)

    def holds(self, value: Any) -> bool:
        torch = self._torch
        return (
            isinstance(value, torch.Tensor)
            and value.device == self._device
            and value.layout is torch.strided
            and not value.is_quantized
            and not value.is_nested
        )

    def allocate_pinned(self, num_bytes: int) -> memoryview:
        torch = self._torch  # `device`: a user's module may have set another default
        memory: memoryview = torch.empty(num_bytes, dtype=torch.uint8, device="cpu", pin_memory=True).numpy().data
        return memory

    def copy_from_host(self, array: Array) -> Any:
        writable = array if array.flags.writeable else array.copy()  # torch warns of others
        return numpy_to_torch(writable).to(self._device, non_blocking=True)

    def copy_from_device(self, tensor: Any) -> Any:
        return tensor.to(self._device, non_blocking=True)

    def copy_to_host(self, tensors: Sequence[Any]) -> _PinnedCopy:
        torch = self._torch
        sources = [tensor.detach().resolve_conj().resolve_neg().contiguous() for tensor in tensors]
        stream = self._copy_stream()
        stream.wait_stream(torch.cuda.current_stream(self._device))
        for source in sources:
            source.record_stream(stream)  # should nobody wait, its memory is used again only after the copy
        with torch.cuda.stream(stream):
            targets = [
                torch.empty(source.shape, dtype=source.dtype, device="cpu", pin_memory=True).copy_(source, non_blocking=True)
                for source in sources
            ]
            event = torch.cuda.Event(blocking=True)  # a thread that waits sleeps: it leaves its core to others
            event.record(stream)
        return _PinnedCopy(event, sources, targets)

    def synchronize(self) -> None:
        event = self._torch.cuda.Event(blocking=True)
        event.record(self._torch.cuda.current_stream(self._device))
        event.synchronize()

    def capture(self, launches: Sequence[Callable[[], Sequence[Any]]]) -> list[_CudaGraph]:
        torch, graphs = self._torch, list[_CudaGraph]()
        with torch.cuda.device(self._device):
            pool, stream, current = torch.cuda.graph_pool_handle(), torch.cuda.Stream(), torch.cuda.current_stream()
            for launch in launches:
                stream.wait_stream(current)
                with torch.cuda.stream(stream):
                    for _ in range(_NUM_WARMUPS):
                        launch()
                current.wait_stream(stream)
                graph = torch.cuda.CUDAGraph()
                # "thread_local": other programs of this process may allocate meanwhile
                with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                    results = launch()
                graphs.append(_CudaGraph(torch, self._device, graph, results))
        return graphs

    def allocate_shared(self, num_bytes: int) -> _SharedMemory:
        return _SharedMemory(self._loaded_driver(), self._torch, self._device, num_bytes)

    def open_memory(self, handle: bytes) -> _OpenMemory:
        return _OpenMemory(self._loaded_driver(), self._torch, self._device, handle)

    def _loaded_driver(self) -> CudaDriver:
        with self._lock:
            if self._driver is None:
                self._driver = CudaDriver()
            return self._driver

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, self._torch.cuda.OutOfMemoryError)

    def free_cache(self) -> None:
        self._torch.cuda.empty_cache()

    def _copy_stream(self) -> Any:
        """Returns the stream of copies to the host, which all threads share: they queue for the same wires anyway."""
        with self._lock:
            if self._copying is None:
                self._copying = self._torch.cuda.Stream(self._device)
            return self._copying
