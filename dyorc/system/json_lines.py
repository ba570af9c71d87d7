"""Messages between processes of one machine: JSON objects, one per line, over Unix sockets.

Only the standard library: a supervisor stays small, and a fork server imports this before anything else.
"""

import asyncio
import contextlib
import json
import socket
from typing import Any

Message = dict[str, Any]

_READ_BYTES = 65_536
_MAX_LINE_BYTES = 2**30


def _encode(kind: str, content: Message) -> bytes:
    return json.dumps(content | {"kind": kind}).encode() + b"\n"


class JsonLineStream:
    """One end of a connection on the event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> "JsonLineStream":
        """Returns a stream on a connected socket, which it owns from now on."""
        return cls(*await asyncio.open_unix_connection(sock=end, limit=_MAX_LINE_BYTES))

    def send(self, kind: str, **content: Any) -> None:
        """Sends a message, unless the other end is gone."""
        if not self._writer.is_closing():
            self._writer.write(_encode(kind, content))

    async def receive(self) -> Message | None:
        """Returns the next message; None when the other end is gone."""
        try:
            return json.loads(await self._reader.readuntil(b"\n"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def close(self) -> None:
        """Closes this end."""
        self._writer.close()


class JsonLineSocket:
    """One end of a connection, which it owns. Blocking; one thread."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._rest = b""
        self._messages: list[Message] = []

    @classmethod
    def dial(cls, path: str) -> "JsonLineSocket":
        """Connects.

        Raises:
            OSError: If no process listens there.
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
        """Sends a message. If the other end is gone, the next receive reports it."""
        with contextlib.suppress(OSError):
            self.connection.sendall(_encode(kind, content))

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
        messages, self._messages = self._messages, []
        return messages

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
