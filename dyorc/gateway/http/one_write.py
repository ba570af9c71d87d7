"""The head of an answer and the first part of its body in one write: each is a system call, and wakes its client up."""

import asyncio

_GO_ON = b"HTTP/1.1 100 "
_JOIN_BYTES = 64 * 2**10
"""Longer parts are written apart: copying them costs more than another write."""


class OneWrite:
    """What an answer is written to: a transport that holds the head back until a part of the body comes.

    Args:
        transport: Gets both.
    """

    __slots__ = ("_head", "_is_begun", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._is_begun = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Writes `data`, or keeps it if it is the head. That the client may go on with its request is no answer yet."""
        if self._head and len(data) <= _JOIN_BYTES:
            data, self._head = self._head + data, b""
            self._transport.write(data)
        elif self._is_begun:
            self.flush()
            self._transport.write(data)
        elif bytes(data[: len(_GO_ON)]) == _GO_ON:
            self._transport.write(data)
        else:
            self._is_begun = True
            self._head = bytes(data)

    def flush(self) -> None:
        """Writes the head, if it is still here."""
        if self._head and not self._transport.is_closing():
            self._transport.write(self._head)
        self._head = b""

    def close(self) -> None:
        """Closes the connection, when what is written has left."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the connection ends."""
        return self._transport.is_closing()
