"""Back-pressure on a connection in both directions: how much is read from it, and how much its client has taken."""

import asyncio
import socket
import struct
import sys
from collections.abc import Callable

_TCP_INFO_BYTES = 256
# In the kernel's ``struct tcp_info``.
_STATE_AT = 0
_LAST_RECEIVED_AT = 52
"""A 32-bit count of the milliseconds since bytes came."""
_BYTES_ACKNOWLEDGED_AT = 120
"""A 64-bit count of the bytes that the other side has acknowledged."""
_TCP_CLOSE = 7
"""The state of a connection that was reset, or has ended on both sides."""


class Flow:
    """Stops and resumes reading from a connection, and writing to it.

    Args:
        may_read: Whether there is room for more. If not, `resume_reading` does nothing, so that a client that sends requests and
            reads no answers cannot fill the memory.

    Attributes:
        is_writing_paused: Whether the client reads more slowly than the server writes.
    """

    __slots__ = ("_drained", "_may_read", "_transport", "is_reading_paused", "is_writing_paused")

    def __init__(self, transport: asyncio.Transport, may_read: Callable[[], bool]) -> None:
        self._transport = transport
        self._may_read = may_read
        self._drained: asyncio.Event | None = None  # created when a task waits for it
        self.is_reading_paused = self.is_writing_paused = False

    def pause_reading(self) -> None:
        if not self.is_reading_paused:
            self.is_reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resumes reading, if there is room."""
        if self.is_reading_paused and not self._transport.is_closing() and self._may_read():
            self.is_reading_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Notes that the client reads more slowly than the server writes."""
        self.is_writing_paused = True

    def resume_writing(self) -> None:
        self.is_writing_paused = False
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    async def drain(self) -> None:
        """Waits until the client has caught up."""
        while self.is_writing_paused:
            if self._drained is None:
                self._drained = asyncio.Event()
            await self._drained.wait()


def num_acknowledged(transport: asyncio.Transport) -> int:
    """Returns how many bytes the client's kernel has taken so far.

    The transport's own buffer does not show that: it shrinks in steps, when a third of the kernel's is free, which can take a
    slow client a minute. And over TLS it shows only a part of what is waiting.
    """
    info = _tcp_info(transport)
    if info is None:
        return -transport.get_write_buffer_size()
    return struct.unpack_from("=Q", info, _BYTES_ACKNOWLEDGED_AT)[0]


def waited_ns(transport: asyncio.Transport) -> int:
    """Returns for how long the bytes just read have been on this machine, in steps of the kernel's clock; 0 if unknown."""
    info = _tcp_info(transport)
    return 0 if info is None else struct.unpack_from("=I", info, _LAST_RECEIVED_AT)[0] * 1_000_000


def is_cut(transport: asyncio.Transport) -> bool:
    """Returns whether the connection has ended on both sides, or may have: without reading, the server does not notice."""
    info = _tcp_info(transport)
    return info is None or info[_STATE_AT] == _TCP_CLOSE


def _tcp_info(transport: asyncio.Transport) -> bytes | None:
    """Returns the kernel's information on a connection; None if this is not Linux, or an old one."""
    if sys.platform != "linux":
        return None
    try:
        info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except (AttributeError, OSError, RuntimeError):  # the last of uvloop, once the connection is closed
        return None
    return info if len(info) >= _BYTES_ACKNOWLEDGED_AT + 8 else None


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FIRST_WAIT_S = 0.01
_MAX_WAIT_S = 1.0


class HalfClosed:
    """Ends a half-closed connection once its client turns out to have closed all of it.

    The end of the client's data looks the same for a client that is gone and for one that only sends no more and waits for
    answers. But a client that has closed everything answers any packet with a reset, and a server may send "100 Continue" at any
    time before an answer. So the server sends it, and asks the kernel whether a reset came back.

    Args:
        is_asked: Whether "100 Continue" may be sent; HTTP/1.0 does not have it.
    """

    def __init__(self, transport: asyncio.Transport, *, is_asked: bool) -> None:
        self._transport = transport
        self._wait_s = _FIRST_WAIT_S
        if is_asked:
            transport.write(CONTINUE)
        self._look()

    def _look(self) -> None:
        if self._transport.is_closing():
            return
        if is_cut(self._transport):
            self._transport.abort()
            return
        asyncio.get_running_loop().call_later(self._wait_s, self._look)
        self._wait_s = min(2 * self._wait_s, _MAX_WAIT_S)
