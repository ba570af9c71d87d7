"""A folder for temporary files that is removed even if its owner is killed: by the next process that makes one of its kind.

The owner locks a file in it for as long as it lives, so a process that can lock the file knows that the owner is gone.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

_LOCK = "lock"
_MAX_ATTEMPTS = 20
_RETRY_S = 0.1


@contextlib.contextmanager
def owned_folder(prefix: str) -> Generator[str]:
    """Makes a folder that only this user can enter, and yields its path; removes it at the end, and those of killed processes.

    Args:
        prefix: How the names of folders of this kind begin, such as ``dyorc-gateways-``.
    """
    for orphan in orphans(prefix):
        remove_orphan(orphan)
    folder = tempfile.mkdtemp(prefix=prefix)
    descriptor: int | None = None
    try:
        descriptor = lock(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def lock(folder: str) -> int:
    """Marks a folder as owned for as long as this process lives; returns the lock's descriptor."""
    path = os.path.join(folder, _LOCK)
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.rename(f"{path}.new", path)  # from now on others may check whether it is locked
    return descriptor


def orphans(prefix: str) -> list[str]:
    """Returns the folders of this kind whose owners were killed, as far as they are this user's."""
    folders = sorted(str(path) for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"))
    return [folder for folder in folders if _with_lock(folder, lambda: None)]


def remove_orphan(folder: str, first: Callable[[], None] = lambda: None) -> None:
    """Removes a folder unless its owner lives.

    Args:
        first: What is done before that, while no other process can remove it.
    """

    def remove() -> None:
        first()
        for _ in range(_MAX_ATTEMPTS):
            with contextlib.suppress(OSError):  # a process that has just been ended may have made another file meanwhile
                _empty(folder)
                shutil.rmtree(folder)
            if not os.path.exists(folder):
                return
            time.sleep(_RETRY_S)

    _with_lock(folder, remove)


def _empty(folder: str) -> None:
    """Removes all but the lock: without it, what could not be removed now would belong to nobody, and stay for ever."""
    for entry in list(os.scandir(folder)):
        if entry.name != _LOCK:
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)


def _with_lock(folder: str, act: Callable[[], None]) -> bool:
    """Does something while a folder is locked. Returns whether it was: not if its owner lives, or it has none, or is gone."""
    with contextlib.suppress(OSError):  # it is locked, belongs to another user, or is gone
        # In the system's folder of temporary files, others may make a folder of such a name, and a pipe for the lock.
        descriptor = os.open(os.path.join(folder, _LOCK), os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                act()
                return True
        finally:
            os.close(descriptor)
    return False
