"""Folders and files in shared memory for tests, named by the process that owns them, so that a leak check knows whose they
are."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dyorc.testing.leftovers import OWNER, SHARED_MEMORY, own_name

_ARENAS = "TEST_ARENA_FOLDER"
_RUN = "TEST_RUN_FOLDER"


def arena_folder() -> str:
    """Returns where this test run's process, and those that it starts, keep arenas."""
    return os.environ.get(_ARENAS, str(SHARED_MEMORY))


@contextmanager
def own_arena_folder() -> Iterator[None]:
    """Puts arenas into a folder of this process's own, which also owns what its descendants make in shared memory."""
    os.environ[OWNER] = str(os.getpid())
    with shared_folder() as folder:
        os.environ[_ARENAS] = folder
        yield
        del os.environ[_ARENAS]


def run_folder() -> Path | None:
    """Returns a folder that all processes of this test run share; None outside of one."""
    return Path(os.environ[_RUN]) if _RUN in os.environ else None


@contextmanager
def own_run_folder() -> Iterator[None]:
    """Makes the folder of a test run, unless this is one of its processes."""
    if _RUN in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="dyorc-run-") as folder:
        os.environ[_RUN] = folder
        yield
        del os.environ[_RUN]


@contextmanager
def shared_folder() -> Iterator[str]:
    """Makes a folder in shared memory, or among temporary files where there is none."""
    parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix=f"dyorc-{own_name()}-", dir=parent) as folder:
        yield folder


@contextmanager
def shared_object(content: bytes) -> Iterator[Path]:
    """Makes an object in shared memory, as a client does."""
    path = SHARED_MEMORY / own_name()
    path.write_bytes(content)
    try:
        yield path
    finally:
        path.unlink()
