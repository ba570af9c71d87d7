"""Files without a name: in memory where the system has such, which is Linux, and in the temporary folder elsewhere. Only the
standard library.
"""

import os
import sys
import tempfile

_ZEROS = bytes(2**20)


def make_memory_file(name: str) -> int:
    """Returns the descriptor of an empty file that no other process can open, and that goes with its last descriptor. A program
    that this process starts does not inherit it.

    Args:
        name: For people who look at a process's files; it need not be unique.

    Raises:
        OSError: If it cannot be made.
    """
    if sys.platform == "linux":
        return os.memfd_create(name, os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp(prefix=f"{name}-")
    os.unlink(path)
    return descriptor


def allocate(descriptor: int, start: int, length: int) -> None:
    """Ensures that a range of a file that was never written has memory or room on the disk, so that writing to a mapping of it
    cannot fail.

    Cost: where the system cannot reserve room, as macOS, the range is written once.

    Args:
        start, length: In bytes.

    Raises:
        OSError: If there is no room.
    """
    if sys.platform == "linux":
        os.posix_fallocate(descriptor, start, length)
        return
    end = start + length
    while start < end:
        start += os.pwrite(descriptor, _ZEROS[: end - start], start)
