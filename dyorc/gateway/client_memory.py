"""The shared memory extensions: tensors in memory that a client shares with the server, the system's or a device's.

Source: triton-inference-server/server, docs/protocol/extension_shared_memory.md; error texts are those of its
src/shared_memory_manager.cc and src/http_server.cc, since clients know them.

A client names one of its objects below /dev/shm; its requests then say where in it their tensors are, or go. The object remains
the client's: the server never creates, resizes or removes it, and never opens it by `multiprocessing.shared_memory`, whose
tracker would remove it when the server ends.

It is not mapped either. A client may truncate its object at any moment, and then touching a mapping raises SIGBUS, which ends
the server; checking the size first leaves a gap. Reading and writing through the descriptor copies the same bytes, and a missing
one is a short count, a full file system an error. (8 MiB from one object to another took 0.9 ms; 0.6 ms through mappings
touched before, 0.9 ms through new ones.)

Memory of a device is in `client_device_memory`. Regions of both kinds share one table: their names are unique together.

Used on the event loop.
"""

import os
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from dyorc.devices.accelerator import Accelerator
from dyorc.errors import CapacityError, ClientMemoryDisabledError, ClientMemoryError, InvalidInputError, UnknownRegionError
from dyorc.gateway.client_device_memory import DeviceRegion

_FOLDER = "/dev/shm"
_RESERVED_PREFIX = "dyorc-"
_MAX_REGIONS = 512
"""Each holds a descriptor."""

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class MemoryRegion:
    """A named part of a client's object, open until its last holder releases it.

    Args:
        descriptor: Of the object; closed by the region.
        key: The object's name, as the client gave it.
        offset: Where in the object the region begins, in bytes.
    """

    def __init__(self, descriptor: int, name: str, key: str, offset: int, num_bytes: int) -> None:
        self._descriptor = descriptor
        self._num_holders = 1
        self.name = name
        self.key = key
        self.offset = offset
        self.num_bytes = num_bytes

    def describe(self) -> dict[str, Any]:
        """Returns what clients may know of it."""
        return {"name": self.name, "key": self.key, "offset": self.offset, "byte_size": self.num_bytes}

    def registration(self) -> dict[str, Any]:
        """Returns what another process needs to open it."""
        return self.describe()

    def hold(self) -> None:
        """Keeps the region open until one more `release`."""
        self._num_holders += 1

    def release(self) -> None:
        """Closes it if this was the last holder. The registration itself is one."""
        self._num_holders -= 1
        if not self._num_holders:
            os.close(self._descriptor)

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Reads bytes from `offset` of the region.

        Raises:
            InvalidInputError: If the client has made its object too short for that.
            ClientMemoryError: If it cannot be read.
        """
        at = 0
        while at < len(memory):
            try:
                num_read = os.preadv(self._descriptor, [memory[at:]], self.offset + offset + at)
            except OSError as error:
                raise ClientMemoryError(f"Unable to read shared memory region: '{self.name}': {error.strerror}") from error
            if not num_read:
                raise self._too_short(offset, len(memory))
            at += num_read

    def write(self, raw: memoryview, offset: int) -> None:
        """Writes bytes to `offset` of the region.

        Raises:
            InvalidInputError: If the client has made its object too short for that.
            ClientMemoryError: If it cannot be written, e.g. because its file system is full.
        """
        start = self.offset + offset
        # Writing would make the object longer again. If the client truncates it between here and there, that is all that happens.
        if os.fstat(self._descriptor).st_size < start + len(raw):
            raise self._too_short(offset, len(raw))
        at = 0
        while at < len(raw):
            try:
                at += os.pwrite(self._descriptor, raw[at:], start + at)
            except OSError as error:
                raise ClientMemoryError(f"Unable to write shared memory region: '{self.name}': {error.strerror}") from error

    def _too_short(self, offset: int, num_bytes: int) -> InvalidInputError:
        return InvalidInputError(
            f"Invalid offset + byte size for shared memory region: '{self.name}': its object '{self.key}' ends before byte "
            f"{self.offset + offset + num_bytes}, which it had when it was registered"
        )


Region: TypeAlias = MemoryRegion | DeviceRegion
RegionKind: TypeAlias = type[MemoryRegion] | type[DeviceRegion]


class RegionSpan(NamedTuple):
    """A range of bytes in a region, checked to lie within it."""

    region: Region
    offset: int
    num_bytes: int


class ClientMemory:
    """The regions that clients have registered.

    Args:
        is_allowed: Whether they may; if not, everything raises `ClientMemoryDisabledError`.
    """

    def __init__(self, is_allowed: bool) -> None:
        self.is_allowed = is_allowed
        self._regions: dict[str, Region] = {}

    def close(self) -> None:
        """Releases all regions. Requests in flight close theirs when they end."""
        while self._regions:
            self._regions.popitem()[1].release()

    def check_allowed(self) -> None:
        """Checks that clients may share memory.

        Raises:
            ClientMemoryDisabledError: If they may not, or the system has no folder of shared memory.
        """
        if not self.is_allowed:
            raise ClientMemoryDisabledError(
                "Client shared memory is disabled. Start the server with '--allow-client-shm' or "
                "DYORC_GATEWAY__ALLOW_CLIENT_SHM=true to enable."
            )
        if sys.platform != "linux":
            raise ClientMemoryDisabledError(f"Client shared memory needs Linux, and the server's system is {sys.platform}.")

    def register(self, name: str, key: str, offset: int, num_bytes: int) -> None:
        """Registers a part of an object under a name.

        Args:
            key: The object's name, with or without a slash in front.

        Raises:
            InvalidInputError: If the name is taken, or the object cannot be the client's or is too short.
            ClientMemoryError: If the object does not exist or may not be opened.
            CapacityError: If there are too many regions.
        """
        self.check_allowed()
        file_name = _file_name(name, key)
        self._check_new(name)
        try:
            descriptor = os.open(os.path.join(_FOLDER, file_name), _FLAGS)
        except OSError as error:
            raise ClientMemoryError(f"Unable to open shared memory region: '{key}': {error.strerror}") from error
        size_bytes = os.fstat(descriptor).st_size  # 0 for anything but a plain file
        if offset < 0 or num_bytes < 1 or offset + num_bytes > size_bytes:
            os.close(descriptor)
            raise InvalidInputError(
                f"failed to register shared memory region '{name}': invalid args: {num_bytes} bytes from byte {offset} on of "
                f"'{key}', which has {size_bytes}"
            )
        self._regions[name] = MemoryRegion(descriptor, name, key, offset, num_bytes)

    def register_device(self, name: str, handle: bytes, accelerator: Accelerator, device_id: int, num_bytes: int) -> None:
        """Registers memory of a device under a name.

        Args:
            handle: What the device's library in the client's process calls it.
            accelerator: The device that the client calls `device_id`.

        Raises:
            InvalidInputError: If the name is taken, or the memory is shorter.
            ClientMemoryError: If it cannot be opened.
            CapacityError: If there are too many regions.
        """
        self.check_allowed()
        self._check_new(name)
        self._regions[name] = DeviceRegion.open(name, handle, accelerator, device_id, num_bytes)

    def _check_new(self, name: str) -> None:
        if name in self._regions:
            raise InvalidInputError(f"shared memory region '{name}' already in manager")
        if len(self._regions) >= _MAX_REGIONS:
            raise CapacityError(f"failed to register shared memory region '{name}': the server has {_MAX_REGIONS} already")

    def unregister(self, kind: RegionKind, name: str | None = None) -> None:
        """Forgets a region of a kind, or all of them. Requests in flight keep those they use. An unknown name is no error."""
        self.check_allowed()
        for region in self._of_kind(kind, list(self._regions) if name is None else [name]):
            del self._regions[region.name]
            region.release()

    def status(self, kind: RegionKind, name: str | None = None) -> list[dict[str, Any]]:
        """Returns what is registered of a kind: one region, or all of them in the order of their names.

        Raises:
            UnknownRegionError: If there is no such region.
        """
        self.check_allowed()
        regions = self._of_kind(kind, sorted(self._regions) if name is None else [name])
        if name is not None and not regions:
            words = "system" if kind is MemoryRegion else "cuda"
            raise UnknownRegionError(f"Unable to find {words} shared memory region: '{name}'")
        return [region.describe() for region in regions]

    def _of_kind(self, kind: RegionKind, names: Iterable[str]) -> list[Region]:
        return [self._regions[name] for name in names if isinstance(self._regions.get(name), kind)]

    def holds(self, name: str) -> bool:
        """Returns whether a name is taken."""
        return name in self._regions

    def registrations(self) -> list[dict[str, Any]]:
        """Returns what other processes need to open the same regions, in the order of their names."""
        return [self._regions[name].registration() for name in sorted(self._regions)]

    def span(self, name: str, offset: int, num_bytes: int) -> RegionSpan:
        """Returns a range of a region. To use it later, hold the region.

        Raises:
            UnknownRegionError: If there is no such region.
            InvalidInputError: If the range does not lie within it.
        """
        self.check_allowed()
        region = self._regions.get(name)
        if region is None:
            raise UnknownRegionError(f"Unable to find shared memory region: '{name}'")
        if offset >= region.num_bytes:
            raise InvalidInputError(f"Invalid offset for shared memory region: '{name}'")
        if offset + num_bytes > region.num_bytes:
            raise InvalidInputError(f"Invalid offset + byte size for shared memory region: '{name}'")
        return RegionSpan(region, offset, num_bytes)


def _file_name(name: str, key: str) -> str:
    """Returns the file name of a key.

    Raises:
        InvalidInputError: If it is not a name, leads elsewhere, or is one of DyOrc's own.
    """
    file_name = key.removeprefix("/")
    if file_name in ("", ".", "..") or "/" in file_name or "\0" in file_name:
        raise InvalidInputError(f"cannot register shared memory region '{name}' - invalid shm key '{key}'")
    if file_name.startswith(_RESERVED_PREFIX):
        raise InvalidInputError(
            f"cannot register shared memory region '{name}' with key '{key}' as the key contains the reserved prefix "
            f"'{_RESERVED_PREFIX}'"
        )
    return file_name
