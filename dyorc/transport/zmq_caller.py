"""A caller's end of the ZeroMQ link, on an event loop: a gateway dials in at an orchestrator on another machine.

It connects once: when ZeroMQ reports the end of the connection, which its heartbeats notice too, the caller may dial again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import zmq
from zmq.utils.monitor import recv_monitor_message

from dyorc.config import LinkConfig
from dyorc.transport.column_codec import Frame
from dyorc.transport.zmq_link import is_readable, set_heartbeats, terminate_context
from dyorc.transport.zmq_security import ClusterKeys, secure_client

_EVENTS = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


_NEVER_MS = 86_400_000
"""When ZeroMQ would connect again; this end is closed long before. With -1, never, it drops what nobody has read of a connection
that ends, such as the last answers of an orchestrator that stops."""
_UNREACHED = "no process listens there"
_REFUSED = "it refused this process's keys"
_UNWELCOME = "it ended before it accepted this process, or has other keys"
_ENDED = "its connection has ended"


class ZmqCallerLink:
    """Connecting from the start until `close`, or until the other end is gone. Arguments are those of `UnixCallerLink`.

    Raises:
        TransportError: If other machines can reach the address and there are no keys.
    """

    def __init__(
        self,
        address: str,
        config: LinkConfig,
        received: Callable[[Sequence[Frame]], None],
        lost: Callable[[str], None],
        keys: ClusterKeys | None,
    ) -> None:
        self._received = received
        self._lost = lost
        self._is_open = True
        self._end = _UNREACHED  # if it ended now
        # Sent before the other end has accepted this one. ZeroMQ would keep it for a connection that may never exist, and then
        # its context could not end.
        self._unsent: list[Sequence[Frame]] = []
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        try:
            set_heartbeats(self._socket, config)
            self._socket.setsockopt(zmq.SNDHWM, 0)
            self._socket.setsockopt(zmq.RCVHWM, 0)
            self._socket.setsockopt(zmq.RECONNECT_IVL, _NEVER_MS)
            self._socket.setsockopt(zmq.CONNECT_TIMEOUT, 1000)
            secure_client(self._socket, address, keys)
        except BaseException:
            self._socket.close(0)
            terminate_context(self._context)
            raise
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        self._socket.connect(address)
        self._loop.add_reader(self._socket.FD, self._drain)
        self._loop.add_reader(self._monitor.FD, self._drain_monitor)
        self._loop.call_soon(self._drain)  # ZeroMQ's descriptors announce nothing before the first read
        self._loop.call_soon(self._drain_monitor)

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends a message, or drops it if the other end is gone."""
        if not self._is_open:
            return
        if self._end is not _ENDED:
            self._unsent.append(frames)
            return
        with contextlib.suppress(zmq.Again):  # the connection has just ended; the monitor will say so
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        self._loop.call_soon(self._drain)  # the descriptor signals edges: what came during the send is not announced again

    def close(self) -> None:
        """Hangs up; no callback follows."""
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._socket.FD)
        self._loop.remove_reader(self._monitor.FD)
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)
        terminate_context(self._context)

    def _drain(self) -> None:
        while self._is_open and is_readable(self._socket):
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self._received([part.buffer for part in parts])

    def _drain_monitor(self) -> None:
        while self._is_open and is_readable(self._monitor):
            match recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]:
                case zmq.EVENT_CONNECTED:
                    self._end = _UNWELCOME
                case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._end = _ENDED
                    unsent, self._unsent = self._unsent, []
                    for frames in unsent:
                        self.send(frames)
                case event:
                    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                        self._end = _REFUSED
                    self._drain()  # its last messages
                    if self._is_open:
                        self.close()
                        self._lost(self._end)
