"""The file of an arena: its header and name, how it is created, how orphans are removed, and how much memory it uses.

`arena` draws the whole file and explains why a process may be killed at any moment.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import re
import secrets
import stat
import struct
import sys
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

from dyorc.errors import TensorLostError, TransportError
from dyorc.system.memory_file import allocate, make_memory_file

PAGE_BYTES = mmap.PAGESIZE
ENTRY_WORDS = 4
"""Words of 8 bytes in an entry of the slot table: block_id, start, num_bytes, reserved."""

_MAGIC = b"DyOrcArn"
_VERSION = 1
_HEADER = struct.Struct("=8s6Q")
_NAME_PREFIX = "dyorc-arena-"
_NAME = re.compile(r"dyorc-arena-([0-9a-f]{16})")
_NEW = ".new"
_MIN_BYTES = 2**20
_NO_NAMELESS_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.EXDEV})
_MAX_TRIES = 100


class ArenaLayout(msgspec.Struct, frozen=True):
    """The content of an arena's header.

    Attributes:
        num_slots: Entries of the slot table.
        size_bytes: Length of the file.
        token: A random number, also in the file's name.
        pid: The owner's process id, for people.
    """

    num_slots: int
    size_bytes: int
    token: int
    pid: int

    @property
    def data_start(self) -> int:
        """Where the blocks begin, in bytes from the start of the file."""
        return round_up(PAGE_BYTES + self.num_slots * ENTRY_WORDS * 8, PAGE_BYTES)

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{_NAME_PREFIX}{self.token:016x}"

    def encode(self) -> bytes:
        """Returns the header's bytes."""
        return _HEADER.pack(_MAGIC, _VERSION, self.num_slots, self.size_bytes, self.data_start, self.token, self.pid)


def check_name(name: str) -> None:
    """Refuses anything but the name of an arena, above all paths to other files.

    Raises:
        TransportError: If it is not ``dyorc-arena-`` and 16 hexadecimal digits.
    """
    if not _NAME.fullmatch(name):
        raise TransportError(f"{name[:80]!r} is not the name of an arena, expected {_NAME.pattern}")


def decode_layout(header: bytes, name: str, size_bytes: int) -> ArenaLayout:
    """Reads and checks a header.

    Args:
        header: The first bytes of the file.
        name: The file's name.
        size_bytes: The file's length.

    Raises:
        TransportError: If it is not the header of an arena of this version, name and length.
    """
    if len(header) < _HEADER.size:
        raise TransportError(f"arena {name} has {len(header)} bytes, expected a header of {_HEADER.size}")
    magic, version, num_slots, size, data_start, token, pid = _HEADER.unpack_from(header)
    if magic != _MAGIC or version != _VERSION:
        raise TransportError(f"arena {name} begins with {magic!r}, version {version}, expected {_MAGIC!r}, version {_VERSION}")
    layout = ArenaLayout(num_slots, size, token, pid)
    if size != size_bytes or layout.name != name:
        raise TransportError(f"arena {name} has {size_bytes} bytes, its header says {layout.name} with {size}")
    if num_slots < 1 or data_start != layout.data_start or data_start >= size or size % PAGE_BYTES:
        raise TransportError(f"arena {name} says {num_slots} slots, data from {data_start} to {size}, which do not fit together")
    return layout


def open_arena(folder: str, name: str, access: int) -> int:
    """Opens an arena's file, and returns its descriptor.

    Args:
        folder: Where it is.
        name: Its name, not trusted.
        access: `os.O_RDONLY` or `os.O_RDWR`.

    Raises:
        TensorLostError: If there is no such arena: its owner is gone.
        TransportError: If it has no such name, or cannot be opened.
    """
    check_name(name)
    try:
        return os.open(os.path.join(folder, name), access | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise TensorLostError(f"there is no arena {name} in {folder}: its owner is gone") from error
        raise TransportError(f"arena {name} in {folder} cannot be opened: {error}") from error


def read_layout(descriptor: int, name: str) -> ArenaLayout:
    """Reads and checks the header of an open file.

    Raises:
        TransportError: If it is no arena's.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise TransportError(f"arena {name} is not a plain file")
    return decode_layout(os.pread(descriptor, PAGE_BYTES, 0), name, status.st_size)


def round_up(number: int, step: int) -> int:
    """Returns the smallest multiple of `step` that is not below `number`."""
    return -(-number // step) * step


def default_size(folder: str) -> int:
    """Returns half of what the folder's file system can hold, in whole pages; at least 1 MiB. Without a folder, half of the
    machine's memory, and no more than half of the temporary folder's file system where there are no files in memory."""
    whole = capacity_of(folder) if folder else os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
    if not folder and sys.platform != "linux":
        whole = min(whole, capacity_of(tempfile.gettempdir()) or whole)
    half = whole // 2
    return max(half - half % PAGE_BYTES, _MIN_BYTES)


def capacity_of(folder: str) -> int:
    """Returns how many bytes a folder's file system can hold in all; 0 if it does not say."""
    status = os.statvfs(folder)
    return status.f_blocks * status.f_frsize


def identity_of(folder: str) -> str:
    """Returns a name for a folder that is the same wherever it is mounted, and unique over all machines.

    Raises:
        TransportError: If the system does not say when it was booted; only Linux does.
    """
    status = os.stat(folder)
    if sys.platform != "linux":
        raise TransportError(
            f"sharing memory by folder needs Linux, and this system is {sys.platform}: set share_by_folder to false"
        )
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}-{status.st_dev:x}-{status.st_ino:x}"


def sweep(folder: str) -> list[str]:
    """Removes the arenas of processes that were killed.

    Skips files that are locked, not plain files, other users', or named differently. Any number of processes may sweep at once,
    also while arenas are being created.

    Returns:
        The names of the files that this call removed.
    """
    return [name for name in _arenas(folder) if _with_lock(os.path.join(folder, name), os.unlink)]


def orphans(folder: str) -> list[str]:
    """Returns the names of the arenas that `sweep` would remove."""
    return [name for name in _arenas(folder) if _with_lock(os.path.join(folder, name), lambda _path: None)]


def _arenas(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if _NAME.fullmatch(name.removesuffix(_NEW))]
    except FileNotFoundError:
        return []


def _with_lock(path: str, act: Callable[[str], None]) -> bool:
    """Does something with the arena of a process that was killed, while it is locked. Returns whether it was one."""
    with contextlib.suppress(OSError):  # it is locked, belongs to another user, or is gone
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                act(path)
                return True
        finally:
            os.close(descriptor)
    return False


def create_anonymous(layout: ArenaLayout) -> int:
    """Creates a complete file in no folder, and returns its descriptor.

    No other process can open it, and a small ``/dev/shm``, as containers have, does not limit it.
    """
    descriptor = make_memory_file(layout.name)
    try:
        _lock_and_fill(descriptor, layout)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_file(folder: str, layout: ArenaLayout) -> tuple[int, ArenaLayout]:
    """Creates a complete file and locks it before it gets its name.

    Returns:
        Its descriptor, which holds the lock, and its layout; the token may be another one.
    """
    if sys.platform == "linux":
        try:
            return _create_nameless(folder, layout), layout
        except OSError as error:
            if error.errno not in _NO_NAMELESS_FILES:
                raise
    for _ in range(_MAX_TRIES):
        descriptor = _create_new(folder, layout)
        if descriptor is not None:
            return descriptor, layout
        layout = msgspec.structs.replace(layout, token=secrets.randbits(64))
    raise FileNotFoundError(f"others removed {_MAX_TRIES} files before they could be locked")


def _create_nameless(folder: str, layout: ArenaLayout) -> int:
    """Creates a file without a name, which the kernel removes if we are killed; when it gets one, it is complete and locked."""
    descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)  # pyright: ignore[reportAttributeAccessIssue] -- Linux
    try:
        _lock_and_fill(descriptor, layout)
        # Without a folder's descriptor, os.link() does not follow the link in /proc, even with follow_symlinks.
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.link(f"/proc/self/fd/{descriptor}", layout.name, dst_dir_fd=parent, follow_symlinks=True)
        finally:
            os.close(parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _create_new(folder: str, layout: ArenaLayout) -> int | None:
    """Creates a file where all files have names. Returns None if a sweep has removed it before it was locked."""
    path = os.path.join(folder, layout.name)
    descriptor = os.open(path + _NEW, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _lock_and_fill(descriptor, layout)
        os.rename(path + _NEW, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(path + _NEW)
        os.close(descriptor)
        if isinstance(error, (BlockingIOError, FileNotFoundError)):
            return None
        raise
    return descriptor


def _lock_and_fill(descriptor: int, layout: ArenaLayout) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.ftruncate(descriptor, layout.size_bytes)
    allocate(descriptor, 0, layout.data_start)
    os.pwrite(descriptor, layout.encode(), 0)


_BLOCK_BYTES = 512
"""The unit of ``st_blocks``."""


class ArenaUsage(NamedTuple):
    """The usage of one arena.

    Attributes:
        size_bytes: Its limit.
        used_bytes: The tensors in it.
        resident_bytes: Memory taken and not returned.
    """

    size_bytes: int
    used_bytes: int
    resident_bytes: int


def usage_of(folder: str, name: str) -> ArenaUsage | None:
    """Returns the usage of an arena of this node; None if it is gone.

    Raises:
        TransportError: If it is not an arena.
    """
    check_name(name)
    try:
        descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return usage_of_file(descriptor, name)
    finally:
        os.close(descriptor)


def usage_of_file(descriptor: int, name: str) -> ArenaUsage:
    """Returns the usage of an arena whose file is open.

    Raises:
        TransportError: If it is not an arena.
    """
    status = os.fstat(descriptor)
    layout = decode_layout(os.pread(descriptor, PAGE_BYTES, 0), name, status.st_size)
    entries = np.frombuffer(os.pread(descriptor, layout.num_slots * ENTRY_WORDS * 8, PAGE_BYTES), np.uint64)
    entries = entries.reshape(-1, ENTRY_WORDS)
    return ArenaUsage(layout.size_bytes, int(entries[entries[:, 0] != 0, 2].sum()), status.st_blocks * _BLOCK_BYTES)
