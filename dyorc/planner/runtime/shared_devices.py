"""Emulated devices and links that several jobs use at once: each goes forward with its part of the speed.

A process locks a file for as long as it uses a device. The kernel frees the lock however the process ends, and a reused process
id cannot be mistaken for a live process.
"""

import fcntl
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


class PresenceLock:
    """Marks a process as alive, or as using something, by a lock on a file: for itself and for observers. Not thread-safe."""

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


_LOOK_S = 0.002
"""How long a part of the speed is kept before it is looked at again."""

Pause: TypeAlias = Callable[[float], float]
"""Waits until so many seconds of work are done, and returns how many are: a little more."""


def sleep_for(work_s: float) -> float:
    """Waits as long as an otherwise idle device takes."""
    began_s = time.monotonic()
    time.sleep(work_s)
    return time.monotonic() - began_s


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSharing:
    """Jobs whose ranks of the same number share a device and its network.

    Attributes:
        folder: Where their files are; they make them.
        job: Which job this is.
        num_jobs: How many there are.
    """

    folder: str
    job: int
    num_jobs: int


class SharedDevice:
    """A use of a device, with those of others. Not for several threads.

    Args:
        crowd: Whose.
        rank: The device's.
        use: What for: computing does not slow sending down.
    """

    def __init__(self, crowd: DeviceSharing, rank: int, use: str) -> None:
        files = [PresenceLock(Path(crowd.folder) / f"{use}-{rank}.{job}") for job in range(crowd.num_jobs)]
        self._mine = files.pop(crowd.job)
        self._others = files

    def pause(self, work_s: float) -> float:
        """Waits until so much work is done, next to that of others, and returns how much is."""
        done_s, now_s = 0.0, time.monotonic()
        self._mine.enter()
        try:
            while done_s < work_s:
                num = 1 + sum(other.is_taken() for other in self._others)
                time.sleep(min(_LOOK_S, (work_s - done_s) * num))
                then_s, now_s = now_s, time.monotonic()
                done_s += (now_s - then_s) / num
        finally:
            self._mine.leave()
        return done_s
