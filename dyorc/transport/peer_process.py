"""The process at the other end of a Unix socket, as the kernel sees it.

This takes the place of heartbeats, which would need a thread that the program's own code can hold up: the kernel knows of each
process whether it is stopped, however busy it is. Where a system has no ``/proc`` or does not tell who has connected
(``SO_PEERCRED``), every process counts as running, and only the end of its connection tells that it is gone.
"""

import contextlib
import os
import socket
import struct

_CREDENTIALS = struct.Struct("iII")
_STATE_BYTES = 512
_NOT_RUNNING = b"TtZX"
"""Stopped, stopped by a debugger, ended but not collected yet, dead (proc(5))."""


class PeerProcess:
    """Who has connected. Close it."""

    def __init__(self, connection: socket.socket) -> None:
        self._file: int | None = None
        pid = _pid_of(connection)
        if pid not in (0, os.getpid()):  # 0: it lives where we cannot see it, as in another container
            with contextlib.suppress(OSError):
                # Kept open: the file belongs to this process for good, even if another one gets its number.
                self._file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def is_running(self) -> bool:
        """Whether it can do anything; also true if there is no way to know."""
        if self._file is None:
            return True
        try:
            status = os.pread(self._file, _STATE_BYTES, 0)
        except OSError:  # it is gone, and a child of its own holds the connection
            return False
        return status[status.rfind(b")") + 2 :][:1] not in _NOT_RUNNING  # the name before may contain anything

    def close(self) -> None:
        """Forgets it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _pid_of(connection: socket.socket) -> int:
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[0]
