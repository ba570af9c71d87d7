"""Files that are either whole or not there."""

import errno
import os
import tempfile
from pathlib import Path

from dyorc.errors import PlanError
from dyorc.system.durable_files import replace_file

_PROBE_BYTES = 1 << 20
"""Free space that a plan file needs, at least: a plan of some thousand steps."""


def check_writable(path: Path) -> None:
    """Refuses to write where that is not possible: before work that may take long.

    Raises:
        PlanError: There is no such folder, a folder has that name, the folder cannot be written to, or the disk is full.
    """
    if not path.parent.is_dir():
        raise PlanError(f"{path} cannot be written: there is no folder {path.parent}")
    if path.is_dir():
        raise PlanError(f"{path} cannot be written: it is a folder")
    if path.exists() and not path.is_file():
        raise PlanError(f"{path} cannot be written: it is a device, a pipe or a socket, and a file would take its place")
    try:
        with tempfile.TemporaryFile(dir=path.resolve().parent) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())  # some file systems say only now that they are full
    except OSError as error:
        raise PlanError(f"{path} cannot be written: {error.strerror or error}") from error


def write_whole(path: Path | str, text: str) -> None:
    """Writes a text file. What was there before stays until the new file is whole and on the disk.

    Raises:
        OSError: The file cannot be written.
    """
    path = Path(path).resolve()  # follows a symbolic link instead of replacing it
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, f"{path} cannot be written: it is a device, a pipe or a socket")
    try:
        replace_file(path, text.encode(), 0o644)
    except OSError as error:
        raise OSError(error.errno, f"{path} cannot be written: {error.strerror}") from error
