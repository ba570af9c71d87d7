"""Memory of NVIDIA's devices between processes: functions of the driver's library that torch does not offer for memory that it
has not made itself, or only for whole tensors.

Source: CUDA Driver API, "Memory Management". The handles are those of the runtime's ``cudaIpcGetMemHandle``.
"""

import ctypes
from typing import Any

from dyorc.devices.accelerator import HANDLE_BYTES
from dyorc.errors import TransportError

_LIBRARY = "libcuda.so.1"
_LAZY_PEER_ACCESS = 1


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_ubyte * HANDLE_BYTES)]


class CudaDriver:
    """The driver's library. Its functions work in the calling thread's current context, which is torch's once it has used a
    device.

    Raises:
        TransportError: If there is no such library.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise TransportError(f"NVIDIA's driver cannot be loaded: {error}") from error

    def open(self, handle: bytes) -> tuple[int, int]:
        """Maps memory of another process.

        Returns:
            Its address, and its length in bytes.

        Raises:
            TransportError: If the driver refuses.
        """
        if len(handle) != HANDLE_BYTES:
            raise TransportError(f"a handle of {len(handle)} bytes, expected {HANDLE_BYTES}")
        address = ctypes.c_uint64()
        raw = _Handle.from_buffer_copy(handle)
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), raw, ctypes.c_uint(_LAZY_PEER_ACCESS))
        base, num_bytes = ctypes.c_uint64(), ctypes.c_size_t()
        self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(num_bytes), address)
        return int(address.value), int(num_bytes.value)

    def export(self, address: int) -> tuple[bytes, int]:
        """Returns what opens memory of this process in others.

        Returns:
            The handle of the allocation around an address, and the distance from its start to the address.

        Raises:
            TransportError: If the driver refuses, as for memory of torch's expandable segments.
        """
        base, num_bytes = ctypes.c_uint64(), ctypes.c_size_t()
        self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(num_bytes), ctypes.c_uint64(address))
        raw = _Handle()
        self._call("cuIpcGetMemHandle", ctypes.byref(raw), base)
        return bytes(raw.reserved), address - int(base.value)

    def uuid(self, index: int) -> str:
        """Returns a device's own name; of a device that is split (MIG), that of this process's part.

        Raises:
            TransportError: If there is no such device.
        """
        device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
        self._call("cuDeviceGetUuid_v2", ctypes.byref(raw), device)
        return bytes(raw).hex()

    def close(self, address: int) -> None:
        """Ends a mapping.

        Raises:
            TransportError: If the driver refuses.
        """
        self._call("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(ctypes.c_int(status), ctypes.byref(text))
            raise TransportError(f"{name}: {(text.value or b'unknown error').decode()} ({status})")
