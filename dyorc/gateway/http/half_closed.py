"""Tells clients that have gone from clients that only send no more: those have closed their half and wait for answers.

The end of its data looks the same for both. But a client that has closed everything answers any packet with a reset, and a server
may send "100 Continue" at any time before an answer. So the server sends it, and asks the kernel whether a reset came back.
"""

import asyncio

from dyorc.gateway.http.flow import is_cut

GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
_FIRST_WAIT_S = 0.01
_MAX_WAIT_S = 1.0


class HalfClosed:
    """Ends a connection once its client turns out to have closed all of it. Stops looking once the connection is closed.

    Args:
        is_asked: Whether "100 Continue" may be sent; HTTP/1.0 does not have it.
    """

    def __init__(self, transport: asyncio.Transport, *, is_asked: bool) -> None:
        self._transport = transport
        self._wait_s = _FIRST_WAIT_S
        if is_asked:
            transport.write(GO_ON)
        self._look()

    def _look(self) -> None:
        if self._transport.is_closing():
            return
        if is_cut(self._transport):
            self._transport.abort()
            return
        asyncio.get_running_loop().call_later(self._wait_s, self._look)
        self._wait_s = min(2 * self._wait_s, _MAX_WAIT_S)
