"""Says to other processes that this one is there, or at something: by a lock on a file.

The kernel frees it however the process ends, and nobody is taken for alive because another process has its number now.
"""

import fcntl
import os
from pathlib import Path


class PresenceLock:
    """The file of one process, for itself and for those who look. Not for several threads."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def enter(self) -> None:
        """Says that this process is there."""
        fcntl.flock(self._file, fcntl.LOCK_EX)  # who looks holds it for a moment

    def leave(self) -> None:
        """Says that it is not there any more."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def is_taken(self) -> bool:
        """Whether another process is there."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        """Leaves, and lets the file go."""
        os.close(self._file)
