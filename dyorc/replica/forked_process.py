"""What a forked process has to set right before it may be a replica: what it has inherited is the fork server's."""

import contextlib
import ctypes
import logging
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from dyorc.replica.assignment import ReplicaAssignment
from dyorc.system import malloc

_PR_SET_NAME = 15
_SET_BLAS_THREADS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def settle(assignment: ReplicaAssignment) -> None:
    """Makes this process the replica's own."""
    os.setsid()
    malloc.keep_freed()
    name_process(f"dyorc-{assignment.source.program}")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ |= {"DYORC_NUM_THREADS": str(assignment.num_threads), **assignment.environment}
    folder = assignment.source.folder
    with contextlib.suppress(OSError):  # on another node it may not exist; the target has a path of its own
        os.chdir(folder)
    sys.path.insert(0, folder)
    _forget_logging()
    _reseed()
    _limit_threads(assignment.num_threads)


def name_process(name: str) -> None:
    """Sets the name under which people see this process; the kernel keeps 15 bytes."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def _forget_logging() -> None:
    """Removes handlers that a library has installed in the fork server."""
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()


def _reseed() -> None:
    """Makes processes forked from the same one draw different random numbers."""
    random.seed()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed()
    if torch is not None:
        torch.seed()


def _limit_threads(num_threads: int) -> None:
    """Sets how many threads torch and NumPy use. They read the environment when they were loaded: in the fork server."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(num_threads)
    for set_num_threads in _blas_setters():
        set_num_threads(num_threads)


def _blas_setters() -> "Iterator[ctypes._NamedFuncPointer]":  # pyright: ignore[reportPrivateUsage]
    paths = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line}
    for path in sorted(paths):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)
            yield from (library[name] for name in _SET_BLAS_THREADS if hasattr(library, name))
