"""Checks of shared memory, through which tensors travel between processes of one machine."""

import errno
import mmap
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

from dyorc.doctor.finding import Finding, Subject, error, mebibytes, ok, warning
from dyorc.system.memory_file import allocate
from dyorc.transport.arena_file import orphans

_DOCKERS_DEFAULT = 64 * 2**20
_LITTLE = 256 * 2**20


def check_folder(subject: Subject) -> Iterator[Finding]:
    """Looks whether processes can share memory in the folder of arenas, and how much."""
    folder = subject.settings.transport.arena_folder
    if not os.path.isdir(folder):
        yield error(
            f"{folder} is not there",
            "set DYORC_TRANSPORT__ARENA_FOLDER to a folder in memory (tmpfs) that this user may write to",
        )
        return
    try:
        _map_file(folder)
    except OSError as problem:
        cure = (
            "free some of it, or make it larger" if problem.errno == errno.ENOSPC else "mount it as tmpfs, writable for this user"
        )
        yield error(f"memory cannot be shared in {folder}: {problem.strerror}", cure)
        return
    usage = shutil.disk_usage(folder)
    text = f"{folder} holds {mebibytes(usage.total)}, {mebibytes(usage.free)} are free"
    if usage.total <= _DOCKERS_DEFAULT:
        yield warning(
            f"{text}: the default of Docker",
            "run the container with --shm-size=1g (shm_size: in Compose, an emptyDir of medium Memory in Kubernetes)",
        )
    elif usage.free < _LITTLE:
        yield warning(text, "make it larger, or free what others have left there: tensors that find no room make requests wait")
    else:
        yield ok(text)


def check_leftovers(subject: Subject) -> Iterator[Finding]:
    """Says what killed servers have left in shared memory."""
    folder = subject.settings.transport.arena_folder
    left = orphans(folder)
    if left:
        size = sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in left)
        yield ok(f"{len(left)} arenas of killed servers in {folder}, {mebibytes(size)}: the next server removes them")
    else:
        yield ok(f"nothing of killed servers in {folder}")


def check_anonymous_memory(_: Subject) -> Iterator[Finding]:
    """Looks whether a cell can have an arena that lies in no folder."""
    if sys.platform != "linux":
        yield ok(f"{sys.platform} has no memfd_create: cells use a temporary file instead")
        return
    descriptor = os.memfd_create("dyorc-doctor", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, mmap.PAGESIZE)
        with mmap.mmap(descriptor, mmap.PAGESIZE) as memory:
            memory[0] = 1
    except OSError as problem:
        yield error(
            f"memory of cells cannot be mapped: {problem.strerror}",
            "allow memfd_create and mmap in the container's seccomp profile",
        )
    else:
        yield ok("cells can map memory of their own")
    finally:
        os.close(descriptor)


def _map_file(folder: str) -> None:
    with tempfile.TemporaryFile(dir=folder) as file:
        allocate(file.fileno(), 0, mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), mmap.PAGESIZE) as memory:
            memory[0] = 1
