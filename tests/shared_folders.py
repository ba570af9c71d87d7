"""Folders in shared memory for tests, named by the process that makes them, so that a leak check knows whose they are."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
_NAME = re.compile(r"dyorc-of-(\d+)-")


_ARENAS = "TEST_ARENA_FOLDER"


def arena_folder() -> str:
    """Returns where this test run's process, and those that it starts, keep arenas."""
    return os.environ.get(_ARENAS, str(SHARED_MEMORY))


@contextmanager
def own_arena_folder() -> Iterator[None]:
    """Puts arenas into a folder of this process's own."""
    with shared_folder() as folder:
        os.environ[_ARENAS] = folder
        yield
        del os.environ[_ARENAS]


@contextmanager
def shared_folder() -> Iterator[str]:
    """Makes a folder in shared memory, or among temporary files where there is none."""
    parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix=f"dyorc-of-{os.getpid()}-", dir=parent) as folder:
        yield folder


def is_of_another(path: str) -> bool:
    """Returns whether another process, which is alive, has made it."""
    owner = _NAME.search(path)
    return owner is not None and int(owner[1]) != os.getpid() and Path("/proc", owner[1]).exists()
