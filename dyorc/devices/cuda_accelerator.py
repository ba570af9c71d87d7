"""NVIDIA's devices, by torch. torch is imported on first use: a server without programs for devices never does."""

import importlib
import threading
from collections.abc import Sequence
from typing import Any

from dyorc.core.arrays import Array, numpy_to_torch, torch_to_numpy
from dyorc.errors import ConfigurationError


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


class CudaAccelerator:
    """One of the devices that this process may see (`Accelerator`).

    Args:
        index: Its number among them.

    Raises:
        ConfigurationError: If torch is missing, or sees no such device.
    """

    def __init__(self, index: int) -> None:
        try:
            self._torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise ConfigurationError(f"device cuda:{index} needs torch: pip install 'dyorc-core[torch]'") from error
        num_devices = self._torch.cuda.device_count() if self._torch.cuda.is_available() else 0
        if index >= num_devices:
            raise ConfigurationError(
                f"there is no device cuda:{index}; torch sees {num_devices} in this process (on Ray, a replica sees those of its "
                f'ray_actor_options={{"num_gpus": 1}})'
            )
        self._device = self._torch.device("cuda", index)
        self._copying: Any = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return str(self._device)

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
