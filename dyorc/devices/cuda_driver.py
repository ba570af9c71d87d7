"""Memory of NVIDIA's devices between processes: three functions of the driver's library, which torch does not offer for memory
that it has not made.

Source: CUDA Driver API, "Memory Management". The handles are those of the runtime's ``cudaIpcGetMemHandle``.
"""

import ctypes
from typing import Any

from dyorc.errors import TransportError

HANDLE_BYTES = 64
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
