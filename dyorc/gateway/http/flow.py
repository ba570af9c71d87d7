"""What a connection takes in, and what its client has taken: the two questions of a server that must not collect either."""

import asyncio
import socket
import struct
from collections.abc import Sized

from uvicorn.protocols.http.flow_control import FlowControl

_TCP_INFO_BYTES = 256
_BYTES_ACKNOWLEDGED_AT = 120
"""In the kernel's ``struct tcp_info``: a 64-bit count of the bytes that the other side has acknowledged."""


class Flow(FlowControl):
    """Reads no more while requests wait for their turn.

    uvicorn's own reads on whenever one of them is answered, or asks for its body, which is there: a client that sends requests
    and reads no answers would fill the memory with them.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """Unless requests wait."""
        if not self._pipeline and not self._transport.is_closing():
            super().resume_reading()


def num_acknowledged(transport: asyncio.Transport) -> int:
    """How many bytes the client's kernel has taken so far.

    The transport's own buffer does not tell: it gets smaller in steps, when a third of the kernel's is free, which a slow client
    may need a minute for. And over TLS it shows only a part of what is waiting.
    """
    try:
        info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        return struct.unpack_from("=Q", info, _BYTES_ACKNOWLEDGED_AT)[0]
    except (AttributeError, OSError, struct.error):  # not Linux, or an old one
        return -transport.get_write_buffer_size()
