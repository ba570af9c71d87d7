"""Messages between a supervisor and one of its cells, by a socket pair: JSON objects, each behind its length.

Only the standard library, since the supervisor is to stay small.
"""

import asyncio
import json
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("=I")

Message = dict[str, Any]


class CellChannel:
    """One end. Used on the event loop.

    Args:
        reader, writer: Of `open_channel`.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, kind: str, **content: Any) -> None:
        """Sends a message, unless the other end is gone."""
        if not self._writer.is_closing():
            raw = json.dumps(content | {"kind": kind}).encode()
            self._writer.write(_LENGTH.pack(len(raw)) + raw)

    async def receive(self) -> Message | None:
        """Returns the next message; None when the other end is gone."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            return json.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def close(self) -> None:
        """Closes this end."""
        self._writer.close()


async def open_channel(end: socket.socket) -> CellChannel:
    """Returns a channel on one end of a socket pair, which it owns from now on."""
    return CellChannel(*await asyncio.open_unix_connection(sock=end))
