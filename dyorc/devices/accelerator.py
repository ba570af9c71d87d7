"""The contract of a device with memory of its own, next to the host's.

`CudaAccelerator` implements it by torch. Tests have one that counts each copy and needs no GPU, so everything above this
contract is tested without one. A *device tensor* is a dense, strided torch tensor whose elements lie on the device; its methods
(indices, ``new_empty``, ``contiguous``) work there, and nothing else in DyOrc reads its elements.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dyorc.core.arrays import Array

HANDLE_BYTES = 64
"""Length of what opens memory of a device in other processes, a ``cudaIpcMemHandle_t``."""


class HostCopy(Protocol):
    """A copy to the host that is under way."""

    def wait(self) -> list[Array]:
        """Waits until it has ended. Returns the arrays, in the order of the tensors and in C order. They lie in
        pinned memory, which is scarce: copy what is kept for long."""
        ...


class DeviceGraph(Protocol):
    """Work on a device that was recorded once. It reads and writes the memory that it was recorded with.

    Attributes:
        results: The tensors that it writes, valid until it, or another graph recorded with it, is replayed.
    """

    results: Sequence[Any]

    def replay(self) -> None:
        """Launches it again, on the thread's stream."""
        ...


class DeviceMemory(Protocol):
    """Contiguous memory of a device.

    Attributes:
        tensor: Its bytes, one dimension of uint8.
    """

    tensor: Any

    @property
    def num_bytes(self) -> int:
        """Its length."""
        ...

    def close(self) -> None:
        """Gives it up. No tensor that lies in it may be used from now on."""
        ...


class SharedMemory(DeviceMemory, Protocol):
    """Memory of a device that other processes may open.

    Attributes:
        handle: What opens it there (`Accelerator.open_memory`), perhaps with other memory around it.
        offset: Where in what they open it begins, in bytes.
    """

    handle: bytes
    offset: int


class Accelerator(Protocol):
    """A device. Any thread.

    Work on a device is launched and goes on by itself. What a thread launches runs in order (on the thread's *stream*); copies to
    the host have a stream of their own, so that they run beside what programs compute.
    """

    @property
    def name(self) -> str:
        """Its name, such as ``cuda:0``: tensors of equal names lie in the same memory."""
        ...

    @property
    def uuid(self) -> str:
        """Its own name, or that of the part of it that this process has: the same in all processes, and on all machines."""
        ...

    @property
    def total_bytes(self) -> int:
        """Its memory."""
        ...

    def holds(self, value: Any) -> bool:
        """Returns whether a value is a dense tensor on this device."""
        ...

    def allocate_pinned(self, num_bytes: int) -> memoryview:
        """Returns host memory that stays in place, so that the device can copy from it while the host goes on."""
        ...

    def copy_from_host(self, array: Array) -> Any:
        """Begins to copy an array to the device. Returns the tensor, for the thread's own stream.

        Args:
            array: Not to be written to before `synchronize`, if it lies in pinned memory.
        """
        ...

    def copy_from_device(self, tensor: Any) -> Any:
        """Begins to copy a tensor that lies on another device. Returns the tensor, for the thread's own stream."""
        ...

    def copy_to_host(self, tensors: Sequence[Any]) -> HostCopy:
        """Begins to copy tensors of this device into pinned memory, after all that the thread has launched so far."""
        ...

    def synchronize(self) -> None:
        """Waits until all that the thread has launched has ended.

        Raises:
            Exception: The device's library's own, if something that was launched has failed.
        """
        ...

    def capture(self, launches: Sequence[Callable[[], Sequence[Any]]]) -> Sequence[DeviceGraph]:
        """Records what functions launch, one graph for each. Each is called a few times, first without being recorded: libraries
        choose their algorithms then. The graphs share memory, so no two may run at once.

        Args:
            launches: Return the tensors that they make. They read tensors of this device that stay where they are.

        Raises:
            Exception: What a function raises, such as the library's own error if it waits for the device.
        """
        ...

    def allocate_shared(self, num_bytes: int) -> SharedMemory:
        """Allocates memory that other processes on this device may open.

        Raises:
            TransportError: If the device, or the way in which its memory is allocated, does not allow it.
            Exception: The device's library's own, if there is no memory.
        """
        ...

    def open_memory(self, handle: bytes) -> DeviceMemory:
        """Opens memory of this device that another process has allocated. It stays there until it is closed, even if that process
        ends.

        Args:
            handle: What the device's library calls it in other processes; `HANDLE_BYTES` long.

        Raises:
            TransportError: If there is no such memory, or it is this process's own.
        """
        ...

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Returns whether an exception says that the device has no memory left."""
        ...

    def free_cache(self) -> None:
        """Gives memory that no tensor uses back to the device, for others to allocate."""
        ...
