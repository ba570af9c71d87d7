"""The process at the other end of a link: how the kernel sees it, how it ended, and the callbacks that report it.

Asking the kernel replaces heartbeats, which would need a thread that the program's own code could block: the kernel knows
whether a process is stopped, however busy it is. Where a system has no ``/proc`` or does not name the process that has connected
(``SO_PEERCRED``), every process counts as running, and only the end of its connection shows that it is gone.

The kernel reports how a process ended to its parent, which for a replica is Ray. Other processes can read it from ``/proc`` until
the parent has collected it, and after that, since Linux 6.15, from a pidfd that was opened before.
"""

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dyorc.transport.column_codec import Frame

_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that others send, including the kernel when memory is short. Other signals are caused by the process itself."""


class PeerEnding(NamedTuple):
    """Why a peer is gone.

    Attributes:
        reason: For people.
        is_crash: Whether the process itself certainly caused its end.
        was_killed: Whether a signal ended it that others send.
    """

    reason: str
    is_crash: bool = False
    was_killed: bool = False


CONNECTION_LOST = PeerEnding("connection lost")
"""Its process may have ended, be stopped, or be cut off."""
PROCESS_ENDED = PeerEnding("its process ended")
"""For an unknown cause."""


def ending_of(status: int) -> PeerEnding:
    """Interprets a wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = next((known.name for known in signal.Signals if known == number), "unknown")
        was_killed = number in _FROM_OUTSIDE
        return PeerEnding(f"its process was killed by signal {number}, {name}", not was_killed, was_killed)
    code = os.WEXITSTATUS(status)
    return PeerEnding(f"its process ended with exit code {code}", code != 0)


@dataclass(frozen=True, slots=True)
class LinkCallbacks:
    """What the orchestrator's end of a link calls, on the event loop.

    Attributes:
        received: Called with the peer's key and the frames of each message.
        drained: Called when there are no more messages, after some were.
        lost: Called with the peer's key when its connection is gone, and with how its process ended, as far as known.
    """

    received: Callable[[bytes, Sequence[Frame]], None]
    drained: Callable[[], None]
    lost: Callable[[bytes, PeerEnding], None]


_CREDENTIALS = struct.Struct("iII")
_STATE_BYTES = 1024
_PIDFD_INFO = struct.Struct("QQ11Ii")
"""The first version of the kernel's ``struct pidfd_info``: mask, control group, eleven ids, wait status."""
_PIDFD_GET_INFO = 3 << 30 | _PIDFD_INFO.size << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3
"""In the mask: the wait status is asked for, and is there."""
_STATUS_AT = 49
"""Of the wait status among the fields behind the name."""
_HAS_ENDED = (b"Z", b"X")
_NOT_RUNNING = b"TtZX"
"""Stopped, stopped by a debugger, ended but not collected yet, dead (proc(5))."""


class PeerProcess:
    """The process that has connected. Close it after use.

    Attributes:
        pid: Its number; 0 if unknown.
        end_descriptor: Readable once the process has ended; None if the system has no such descriptor.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._file: int | None = None
        self.end_descriptor: int | None = None
        pid = self.pid = _pid_of(connection)
        if sys.platform == "linux" and pid not in (0, os.getpid()):  # 0: it is not visible here, for example in another container
            with contextlib.suppress(OSError):
                # Kept open: the file stays that of this process, even if another one gets its number.
                self._file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
                self.end_descriptor = os.pidfd_open(pid)

    def is_running(self) -> bool:
        """Returns whether it is neither stopped nor gone; True if unknown."""
        if self._file is None:
            return True
        try:
            status = os.pread(self._file, _STATE_BYTES, 0)
        except OSError:  # it is gone, and a child of it holds the connection
            return False
        return status[status.rfind(b")") + 2 :][:1] not in _NOT_RUNNING  # the name before may contain anything

    def wait(self, timeout_s: float) -> None:
        """Waits until it has ended, and so has released its files and locks; returns at once if that cannot be known."""
        if self.end_descriptor is not None:
            select.select([self.end_descriptor], [], [], max(0.0, timeout_s))

    def ending(self) -> PeerEnding:
        """Returns how it ended, as far as the kernel still knows."""
        status = self._uncollected_status()
        if status is None:
            status = self._collected_status()
        return PROCESS_ENDED if status is None else ending_of(status)

    def _uncollected_status(self) -> int | None:
        if self._file is None:
            return None
        try:
            fields = os.pread(self._file, _STATE_BYTES, 0).rpartition(b")")[2].split()
        except OSError:
            return None
        return int(fields[_STATUS_AT]) if len(fields) > _STATUS_AT and fields[0] in _HAS_ENDED else None

    def _collected_status(self) -> int | None:
        if self.end_descriptor is None:
            return None
        info = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, *[0] * 13))
        try:
            fcntl.ioctl(self.end_descriptor, _PIDFD_GET_INFO, info)
        except OSError:  # an older kernel, or it has not ended
            return None
        mask, *_, status = _PIDFD_INFO.unpack(info)
        return status if mask & _PIDFD_INFO_EXIT else None

    def close(self) -> None:
        """Closes its descriptors."""
        if self.end_descriptor is not None:
            os.close(self.end_descriptor)
            self.end_descriptor = None
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _pid_of(connection: socket.socket) -> int:
    if sys.platform != "linux":
        return 0
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[0]
