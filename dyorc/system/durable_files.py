"""Files and folders that survive a power cut once the call has returned.

A file that was synchronized is lost all the same if its name is not on the disk: names belong to the folder, which has to be
synchronized, too. That holds for a new file, for one that replaces another, and for a new folder.
"""

import contextlib
import errno
import os
import tempfile
from pathlib import Path

_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM})
"""Some file systems cannot synchronize folders, and some folders may be entered but not read."""


def sync_file(path: Path) -> None:
    """Waits until the disk has a file's bytes.

    Raises:
        OSError: If it cannot be opened or synchronized.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Waits until the disk has the names in a folder, where that can be asked for.

    Raises:
        OSError: If the disk fails, or there is no such folder.
    """
    try:
        sync_file(path)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Makes a folder and those above it, unless they are there.

    Args:
        mode: Of this folder, as in `os.mkdir`; those above get the usual one, as with `Path.mkdir`.

    Raises:
        OSError: If it cannot be made.
    """
    if not path.parent.is_dir():
        make_folder(path.parent)
    path.mkdir(mode=mode, exist_ok=True)
    sync_folder(path.parent)  # also if it is there: another process may just have made it


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Writes a file. What was there before stays until the new file is whole; a symbolic link is replaced.

    Args:
        mode: Of the file, whatever the umask.

    Raises:
        OSError: If it cannot be written; then nothing has changed.
    """
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with mode 0600
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(number, mode)
            os.fsync(number)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    sync_folder(path.parent)
