"""The CUDA shared memory extension: tensors in memory of a device that a client shares with the server.

Source: triton-inference-server/server, docs/protocol/extension_shared_memory.md; error texts are those of its
src/shared_memory_manager.cc and src/http_server.cc, since clients know them.

A client sends the handle that its process got for memory of a device (``cudaIpcGetMemHandle``). The server opens it, copies
inputs from there into its own memory, and outputs into it; a client may change or free its memory at any moment, so programs
never see it. Copies wait for the device, for some 50 microseconds per megabyte, on the event loop.
"""

import asyncio
import base64
import binascii
from typing import Any

import numpy as np

from dyorc.devices.accelerator import HANDLE_BYTES, Accelerator, DeviceMemory
from dyorc.devices.known_devices import accelerator_named
from dyorc.errors import ClientMemoryError, ConfigurationError, InvalidInputError, TransportError, text_of

KIND = "cuda"


class DeviceRegion:
    """Memory of a device that is open until its last holder releases it.

    Args:
        memory: All that the handle leads to; closed by the region.
        device_id: The number of the device, as the client gave it.
    """

    def __init__(
        self, name: str, handle: bytes, memory: DeviceMemory, accelerator: Accelerator, device_id: int, num_bytes: int
    ) -> None:
        self._handle = handle
        self._memory = memory
        self._accelerator = accelerator
        self._num_holders = 1
        self.name = name
        self.device_id = device_id
        self.num_bytes = num_bytes

    @classmethod
    def open(cls, name: str, handle: bytes, accelerator: Accelerator, device_id: int, num_bytes: int) -> "DeviceRegion":
        """Opens memory of a device.

        Raises:
            InvalidInputError: If it is shorter.
            ClientMemoryError: If it cannot be opened.
        """
        owner = f"failed to register shared memory region '{name}'"
        try:
            memory = accelerator.open_memory(handle)
        except TransportError as error:
            raise ClientMemoryError(f"{owner}: failed to open CUDA IPC handle: {error}") from error
        if not 1 <= num_bytes <= memory.num_bytes:
            memory.close()
            raise InvalidInputError(f"{owner}: invalid args: {num_bytes} bytes of memory that has {memory.num_bytes}")
        return cls(name, handle, memory, accelerator, device_id, num_bytes)

    def describe(self) -> dict[str, Any]:
        """Returns what clients may know of it."""
        return {"name": self.name, "device_id": self.device_id, "byte_size": self.num_bytes}

    def registration(self) -> dict[str, Any]:
        """Returns what another process needs to open it."""
        return {**self.describe(), "raw_handle": base64.b64encode(self._handle).decode()}

    def hold(self) -> None:
        """Keeps the region open until one more `release`."""
        self._num_holders += 1

    def release(self) -> None:
        """Closes it if this was the last holder. The registration itself is one."""
        self._num_holders -= 1
        if not self._num_holders:
            self._memory.close()

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Copies bytes from `offset` of the region to the host.

        Raises:
            ClientMemoryError: If they cannot be read, as when the client has freed them.
        """
        if not len(memory):
            return
        try:
            (array,) = self._accelerator.copy_to_host([self._memory.tensor[offset : offset + len(memory)]]).wait()
        except Exception as error:  # of the device's library
            raise ClientMemoryError(f"Unable to read shared memory region: '{self.name}': {text_of(error)}") from error
        np.frombuffer(memory, np.uint8)[:] = array

    def write(self, raw: memoryview, offset: int) -> None:
        """Copies bytes from the host to `offset` of the region.

        Raises:
            ClientMemoryError: If they cannot be written.
        """
        if not len(raw):
            return
        try:
            source = self._accelerator.copy_from_host(np.frombuffer(raw, np.uint8))
            self._memory.tensor[offset : offset + len(raw)].copy_(source)
            self._accelerator.synchronize()
        except Exception as error:
            raise ClientMemoryError(f"Unable to write shared memory region: '{self.name}': {text_of(error)}") from error


def decode_handle(text: str) -> bytes:
    """Returns the handle in a request's JSON.

    Raises:
        InvalidInputError: If it is none.
    """
    try:
        handle = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        handle = b""
    return check_handle(handle)


def check_handle(handle: bytes) -> bytes:
    """Returns a handle, checked to be as long as one.

    Raises:
        InvalidInputError: If it is not.
    """
    if len(handle) != HANDLE_BYTES:
        raise InvalidInputError("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
    return handle


async def find_device(name: str, device_id: int) -> Accelerator:
    """Returns the device of a region. The first look imports torch, which takes seconds, on a thread.

    Raises:
        InvalidInputError: If this process has no such device.
    """
    return await asyncio.to_thread(device_of, name, device_id)


def device_of(name: str, device_id: int) -> Accelerator:
    """Does what `find_device` does, on the calling thread."""
    try:
        accelerator = accelerator_named(f"{KIND}:{device_id}")
    except ConfigurationError as error:
        raise InvalidInputError(f"failed to register CUDA shared memory region: '{name}', GPUs not supported: {error}") from error
    assert accelerator is not None
    return accelerator
