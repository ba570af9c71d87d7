"""Marks a process as alive, or as using something, by a lock on a file.

The kernel frees the lock however the process ends, and a reused process id cannot be mistaken for a live process.
"""

import fcntl
import os
from pathlib import Path


class PresenceLock:
    """The lock file of one process, for itself and for observers. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def enter(self) -> None:
        """Takes the lock: this process is present."""
        fcntl.flock(self._file, fcntl.LOCK_EX)  # who looks holds it for a moment

    def leave(self) -> None:
        """Releases the lock."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def is_taken(self) -> bool:
        """Whether another process holds the lock."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        """Releases the lock, and closes the file."""
        os.close(self._file)
