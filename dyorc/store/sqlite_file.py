"""Opens the files of SQLite. Nothing else may open one.

SQLite knows by POSIX locks who uses a file: the last process to close it deletes the write-ahead log. A process loses all its
locks on a file as soon as any of its threads or libraries closes any descriptor of the file. The others then believe that the
process has gone, and it writes on into a log that they have deleted: its commits are lost, and the file may be damaged. So a file
is created, looked at and copied without opening it, or by SQLite.
"""

import contextlib
import os
import sqlite3
import stat
from pathlib import Path
from typing import NamedTuple

from dyorc.system.durable_files import make_folder


class FileIdentity(NamedTuple):
    """Which file it is, whatever its name.

    Attributes:
        device: The file system.
        inode: Its number there.
    """

    device: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> "FileIdentity | None":
        """Returns that of the file that a path names now; None if there is none. One call of the system."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
        return cls(status.st_dev, status.st_ino)


def connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    """Connects to a file, which is created for this user alone if it does not exist. The connection may go to other threads.

    Args:
        busy_timeout_s: How long a step waits while others have the file locked.

    Raises:
        OSError: If it cannot be created, or has several names.
        sqlite3.Error: If it cannot be opened.
    """
    path = path.resolve()  # the log lies next to the file, not next to a link to it
    make_folder(path.parent, 0o700)  # SQLite synchronizes what is in this folder, not what is above it
    with contextlib.suppress(FileExistsError):
        os.mknod(path, stat.S_IFREG | 0o600)
    if (num_names := path.stat().st_nlink) > 1:
        raise OSError(f"it has {num_names} names (hard links), expected 1: each name would have its own log")
    return sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)
