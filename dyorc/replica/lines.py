"""Messages between the processes of one node that start and hold replicas: JSON objects, one per line, by Unix sockets.

Only the standard library: a fork server imports this before anything else. One thread for each end.
"""

import contextlib
import json
import socket
from typing import Any

_READ_BYTES = 65_536

Message = dict[str, Any]


class JsonLineSocket:
    """One end of a connection, which it owns."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._rest = b""
        self._messages: list[Message] = []

    @classmethod
    def dial(cls, path: str) -> "JsonLineSocket":
        """Connects.

        Raises:
            OSError: If nobody listens there.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            raise
        return cls(connection)

    def fileno(self) -> int:
        """Returns its descriptor, for `select`."""
        return self.connection.fileno()

    def send(self, kind: str, **content: Any) -> None:
        """Sends a message. If the other end is gone, receiving tells."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(content | {"kind": kind}).encode() + b"\n")

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """Returns the next message; None when the other end is gone.

        Raises:
            TimeoutError: If none came in time.
        """
        self.connection.settimeout(timeout_s)
        while not self._messages:
            if not self._read():
                return None
        return self._messages.pop(0)

    def receive_ready(self) -> list[Message] | None:
        """Returns the messages that are there, once it is readable; None when the other end is gone."""
        if not self._read():
            return None
        found, self._messages = self._messages, []
        return found

    def _read(self) -> bool:
        try:
            data = self.connection.recv(_READ_BYTES)
        except TimeoutError:
            raise
        except OSError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._messages.extend(json.loads(line) for line in lines)
        return bool(data)

    def close(self) -> None:
        """Closes it."""
        self.connection.close()
