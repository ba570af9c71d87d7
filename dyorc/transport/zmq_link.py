"""The ZeroMQ link: replicas dial in to the orchestrator.

`RouterLink` lives on the orchestrator's event loop, `DealerLink` on a replica's worker thread. Messages are header and frames,
as `messages` makes them. A peer that dies is noticed by its connection: ZeroMQ closes it when the process goes, and its
heartbeats, which run in ZeroMQ's own thread, notice one that is stopped or cut off. With keys, both ends prove that they belong
to the same cluster (`zmq_security`).
"""

import asyncio
import threading
from collections.abc import Sequence
from typing import Self

import structlog
import zmq
from zmq.utils.monitor import recv_monitor_message

from dyorc.config import LinkConfig
from dyorc.transport.column_codec import Frame
from dyorc.transport.peer_process import CONNECTION_LOST, LinkCallbacks
from dyorc.transport.wake_up import WakeUp
from dyorc.transport.zmq_security import ClusterKeys, check_address, secure_client, secure_server

_log = structlog.get_logger("dyorc.transport")

_PATIENCE_S = 5.0
_LINGER_S = 1.0
"""How long an end that closes lets slow peers take what was sent: a stop must not lose its last answers."""


def terminate_context(context: "zmq.Context[zmq.Socket[bytes]]", patience_s: float = _PATIENCE_S) -> None:
    """Ends a context whose sockets have been closed, or are closed by threads that this wakes.

    `zmq_ctx_term` waits until every connection is closed, however long its sockets may linger. A connection that breaks meanwhile
    can keep it waiting for ever (https://github.com/zeromq/libzmq/issues/2586 and 4407), and the server would not stop.

    Args:
        patience_s: The longest time for sent messages to linger. What is still open then ends with the process.
    """
    ending = threading.Thread(target=context.term, name="dyorc-zmq-ending", daemon=True)
    ending.start()
    ending.join(patience_s)
    if ending.is_alive():
        _log.warning("zmq_context_left_open", waited_s=patience_s)


_NUM_GONE = 256
"""How many ended connections are remembered, because their last messages may be read late."""

_COPY_LIMIT_BYTES = 256 * 1024
"""Batches with larger frames are sent without copying; below, tracking the buffer costs more than the copy."""


class RouterLink:
    """The orchestrator's end.

    Args:
        address: Where to listen, e.g. ``ipc:///path`` or ``tcp://127.0.0.1:*``.
        callbacks: Called with messages and lost peers. How a peer's process ended is not known here.
        keys: The cluster's; None only if no other machine can reach the address.

    Attributes:
        num_bytes_sent: Of all messages so far; `num_bytes_received` likewise.
    """

    def __init__(self, address: str, config: LinkConfig, callbacks: LinkCallbacks, *, keys: ClusterKeys | None = None) -> None:
        self._address = address
        self._keys = keys
        self._config = config
        self._callbacks = callbacks
        self._is_check_due = False
        self._peers_by_fd: dict[int, bytes] = {}
        self._closed_fds: set[int] = set()
        self._leaving: list[bytes] = []
        self._gone: dict[bytes, None] = {}  # the order counts
        self.num_bytes_sent = 0
        self.num_bytes_received = 0

    async def __aenter__(self) -> Self:
        check_address(self._address, self._keys)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        set_heartbeats(self._socket, self._config)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        try:
            secure_server(self._context, self._socket, self._address, self._keys)
            self._socket.bind(self._address)
        except BaseException:
            self._drop()
            raise
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.FD, self._drain)
        self._loop.add_reader(self._monitor.FD, self._drain_monitor)
        self._drain()  # ZeroMQ's descriptors announce nothing before the first read
        self._drain_monitor()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._loop.remove_reader(self._socket.FD)
        self._loop.remove_reader(self._monitor.FD)
        self._drop(_LINGER_S)

    def _drop(self, linger_s: float = 0.0) -> None:
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(int(linger_s * 1000))
        terminate_context(self._context)

    def send(self, peer: bytes, frames: Sequence[Frame]) -> bool:
        """Sends a message; False if the peer is not connected."""
        if peer in self._gone:  # ZeroMQ's socket may notice that later than its monitor
            return False
        copy = True
        for frame in frames:
            length = len(frame)
            self.num_bytes_sent += length
            copy = copy and length <= _COPY_LIMIT_BYTES
        try:
            self._socket.send_multipart([peer, *frames], zmq.NOBLOCK, copy=copy)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        # The descriptor signals edges: a message that came during the send would not be announced again.
        if not self._is_check_due:
            self._is_check_due = True
            self._loop.call_soon(self._drain)
        return True

    def _drain(self) -> None:
        self._is_check_due = False
        if self._socket.closed or not is_readable(self._socket):
            return
        while True:
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            peer = parts[0].bytes
            fd = parts[-1].get(zmq.SRCFD)
            if isinstance(fd, int) and self._peers_by_fd.get(fd) != peer:
                self._place(peer, fd)
            frames = [part.buffer for part in parts[1:]]
            for frame in frames:
                self.num_bytes_received += len(frame)
            self._callbacks.received(peer, frames)
        self._report_leaving()
        self._callbacks.drained()

    def _place(self, peer: bytes, fd: int) -> None:
        """Notes the descriptor of a peer's connection.

        The kernel may give a new connection the number of a closed one before we know that it closed. The monitor has reported
        the close before the new peer could send anything; so the monitor is read first.
        """
        if peer in self._gone:
            return
        self._read_monitor()
        self._leave(self._peers_by_fd.pop(fd, None))
        if fd in self._closed_fds:
            self._leave(peer)  # it has left since it sent this
        else:
            self._peers_by_fd[fd] = peer

    def _read_monitor(self) -> None:
        while not self._monitor.closed and is_readable(self._monitor):
            event = recv_monitor_message(self._monitor, zmq.NOBLOCK)
            fd = int(event["value"])
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._closed_fds.discard(fd)
            else:
                self._closed_fds.add(fd)
                self._leave(self._peers_by_fd.pop(fd, None))

    def _leave(self, peer: bytes | None) -> None:
        if peer is not None:
            self._gone[peer] = None
            if len(self._gone) > _NUM_GONE:
                del self._gone[next(iter(self._gone))]
            self._leaving.append(peer)

    def _report_leaving(self) -> None:
        while self._leaving:
            self._callbacks.lost(self._leaving.pop(0), CONNECTION_LOST)

    def _drain_monitor(self) -> None:
        self._read_monitor()
        self._drain()  # a peer's last messages are read first, so that its last results count
        self._report_leaving()


class DealerLink:
    """A replica's end. Blocking; one thread."""

    def __init__(self, address: str, config: LinkConfig, receive_timeout_s: float, *, keys: ClusterKeys | None = None) -> None:
        check_address(address, keys)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._timeout_ms = int(receive_timeout_s * 1000)
        self._socket.setsockopt(zmq.RCVTIMEO, self._timeout_ms)
        set_heartbeats(self._socket, config)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 50)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        self._socket.setsockopt(zmq.CONNECT_TIMEOUT, 1000)  # TCP itself would wait longer and longer
        secure_client(self._socket, address, keys)
        self._socket.connect(address)

    @property
    def is_connected(self) -> bool:
        """See `ReplicaEnd.is_connected`. ZeroMQ does not say."""
        return False

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends a message. Copies it: the program may reuse its buffers for the next batch."""
        self._socket.send_multipart(frames)

    def receive(self, *, is_waiting: bool = True, wake: WakeUp | None = None) -> list[Frame] | None:
        """Returns the next message; None if none came in time, none is there now, or `wake` is set. Its buffers belong to the
        caller.
        """
        if is_waiting and wake is not None:
            zmq.zmq_poll([(self._socket, zmq.POLLIN), (wake.fileno(), zmq.POLLIN)], self._timeout_ms)
            is_waiting = False
        try:
            return [part.buffer for part in self._socket.recv_multipart(0 if is_waiting else zmq.NOBLOCK, copy=False)]
        except zmq.Again:
            return None

    def close(self, linger_s: float = 1.0) -> None:
        """Closes it, once what was sent has left or `linger_s` seconds have passed."""
        self._socket.close(int(linger_s * 1000))
        terminate_context(self._context)


def is_readable(socket: "zmq.Socket[bytes]") -> bool:
    """Returns whether a message has come."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)


def set_heartbeats(socket: "zmq.Socket[bytes]", config: LinkConfig) -> None:
    """Makes ZeroMQ notice a peer that does not answer."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, int(config.heartbeat_interval_s * 1000))
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(config.heartbeat_timeout_s * 1000))
