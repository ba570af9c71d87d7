"""The link over a Unix socket: replicas of the orchestrator's own machine dial in.

`UnixRouterLink` lives on the orchestrator's event loop, `UnixDealerLink` on a replica's worker thread; `unix_framing` shows the
layout of messages. There is no thread between the two: what one writes wakes the other.

Peers are identified by their connection. A dead one is noticed at once by its end, a stopped one by its state, which the
orchestrator checks every `LinkConfig.heartbeat_interval_s` (`peer_process`).
"""

import asyncio
import contextlib
import errno
import itertools
import os
import socket
import stat
import struct
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Self

import structlog

from dyorc.config import LinkConfig
from dyorc.errors import TransportError
from dyorc.system.log_throttle import LogThrottle
from dyorc.transport.column_codec import Frame
from dyorc.transport.peer_process import CONNECTION_LOST, PROCESS_ENDED, LinkCallbacks, PeerEnding, PeerProcess
from dyorc.transport.unix_framing import MessageReader, drop, pack
from dyorc.transport.wake_up import WakeUp

SCHEME = "unix://"

_log = structlog.get_logger("dyorc.transport")

_MAX_PATH_BYTES = 107
"""Linux's limit. Other systems have a lower one, and report it themselves."""
_BUFFER_BYTES = 2**20
"""Bytes that the kernel buffers, so that a batch of small tensors leaves at once. Kernels may allow less."""
_MAX_PIECES = 1024
"""Linux accepts no more in one `sendmsg`."""
_MAX_READS = 32
"""After this many reads in a row, it is another peer's turn."""
_BACKLOG = 1024
_ACCEPT_PAUSE_S = 1.0
"""Delay after a connection could not be accepted, for example because descriptors ran out."""
_REDIAL_S, _MAX_REDIAL_S = 0.05, 1.0
_END_WAIT_S = 0.2
"""After a connection has ended, how long to wait for its process to end, to learn how it did."""
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
_LINGER_S = 1.0
"""How long an end that closes lets slow peers take what was sent: a stop must not lose its last answers."""
_LINGER_POLL_S = 0.01


class _Peer:
    """One connection of the router's."""

    def __init__(self, key: bytes, connection: socket.socket) -> None:
        self.key = key
        self.connection = connection
        self.process = PeerProcess(connection)
        self.reader = MessageReader()
        self.waiting: deque[Frame] = deque()
        self.has_spoken = False
        self.is_deaf = False
        self.stopped_since_s: float | None = None
        self.end_timer: asyncio.TimerHandle | None = None


class UnixRouterLink:
    """The orchestrator's end.

    Args:
        address: Where to listen: ``unix:///path``. The file is created, and removed at the end. It replaces that of a dead
            orchestrator.
        callbacks: Called with messages, and with the loss of a peer that has sent any.

    Attributes:
        num_bytes_sent: Of all messages so far; `num_bytes_received` likewise.
    """

    def __init__(self, address: str, config: LinkConfig, callbacks: LinkCallbacks) -> None:
        self.address = address
        self._config = config
        self._callbacks = callbacks
        self._peers: dict[bytes, _Peer] = {}
        self._keys = itertools.count(1)
        self._is_drained_due = False
        self._is_open = False
        self._unaccepted = LogThrottle(_log, "replica_not_accepted")
        self._refused = LogThrottle(_log, "peer_refused")
        self.num_bytes_sent = 0
        self.num_bytes_received = 0

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._path = path_of(self.address)
        self._listener = _listen(self._path)
        self._file = _identity(self._path)
        self._is_open = True
        self._loop.add_reader(self._listener.fileno(), self._accept)
        self._pause: asyncio.TimerHandle | None = None
        self._timer = self._loop.call_later(self._config.heartbeat_interval_s, self._look)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._is_open = False
        self._timer.cancel()
        if self._pause is not None:
            self._pause.cancel()
        if _identity(self._path) == self._file:  # otherwise another process has replaced it
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for peer in self._peers.values():
            self._loop.remove_reader(peer.connection.fileno())
        give_up_s = self._loop.time() + _LINGER_S
        while any(map(_is_behind, self._peers.values())) and self._loop.time() < give_up_s:  # noqa: ASYNC110 (once, at the end)
            await asyncio.sleep(_LINGER_POLL_S)
        for peer in list(self._peers.values()):
            self._close(peer)

    def send(self, peer: bytes, frames: Sequence[Frame]) -> bool:
        """Sends a message; False if the peer is not connected. What a slow peer does not accept is copied and waits."""
        receiver = self._peers.get(peer)
        if receiver is None:
            return False
        pieces: deque[Frame] = deque(pack(frames))
        for frame in frames:
            self.num_bytes_sent += len(frame)
        if receiver.is_deaf:  # its end is about to be noticed; its last messages are still to be read
            return True
        is_first = not receiver.waiting
        if is_first:
            self._write(receiver, pieces)
        if pieces and not receiver.is_deaf:
            receiver.waiting.extend(piece if isinstance(piece, bytes) else bytes(piece) for piece in pieces)
            if is_first:
                self._loop.add_writer(receiver.connection.fileno(), self._write_waiting, receiver)
        return True

    def _write(self, peer: _Peer, pieces: deque[Frame]) -> None:
        """Writes as much as the connection accepts."""
        try:
            write_all(peer.connection, pieces)
        except BlockingIOError:
            pass
        except OSError:  # the peer has closed; its last messages and the connection's end are still to be read
            peer.is_deaf = True
            pieces.clear()

    def _write_waiting(self, peer: _Peer) -> None:
        self._write(peer, peer.waiting)
        if not peer.waiting:
            self._loop.remove_writer(peer.connection.fileno())

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ECONNABORTED:
                    continue
                self._unaccepted.report(error=str(error))
                self._loop.remove_reader(self._listener.fileno())
                self._pause = self._loop.call_later(_ACCEPT_PAUSE_S, self._accept_again)
                return
            connection.setblocking(False)
            set_buffers(connection)
            peer = _Peer(next(self._keys).to_bytes(8, "big"), connection)
            self._peers[peer.key] = peer
            self._loop.add_reader(connection.fileno(), self._read, peer)

    def _accept_again(self) -> None:
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _read(self, peer: _Peer) -> None:
        """Reads a peer's messages, and notices its end."""
        for _ in range(_MAX_READS):
            space = peer.reader.space()
            try:
                num_bytes = peer.connection.recv_into(space)
            except BlockingIOError:
                return
            except OSError:  # it left without having read everything
                num_bytes = 0
            if not num_bytes:
                self._await_end(peer)
                return
            peer.stopped_since_s = None  # it may have run briefly between two checks
            for frames in peer.reader.take(num_bytes):
                self._deliver(peer, frames)
            if peer.reader.error is not None:
                self._refused.report(error=str(peer.reader.error))
                self._leave(peer, CONNECTION_LOST)
                return
            if num_bytes < len(space):
                return

    def _deliver(self, peer: _Peer, frames: list[Frame]) -> None:
        peer.has_spoken = True
        for frame in frames:
            self.num_bytes_received += len(frame)
        if not self._is_drained_due:
            self._is_drained_due = True
            self._loop.call_soon(self._report_drained)  # once all peers that are readable in this turn have been read
        self._callbacks.received(peer.key, frames)

    def _report_drained(self) -> None:
        self._is_drained_due = False
        if self._is_open:
            self._callbacks.drained()

    def _await_end(self, peer: _Peer) -> None:
        """Waits for the end of a process whose connection has ended: it closes its files first, so how it ended is known a moment
        later.
        """
        descriptor = peer.process.end_descriptor
        if descriptor is None or not peer.has_spoken:
            self._leave(peer, PROCESS_ENDED)
            return
        peer.is_deaf = True
        self._loop.remove_reader(peer.connection.fileno())
        self._loop.remove_writer(peer.connection.fileno())
        self._loop.add_reader(descriptor, self._ended, peer)
        peer.end_timer = self._loop.call_later(_END_WAIT_S, self._leave, peer, CONNECTION_LOST)

    def _ended(self, peer: _Peer) -> None:
        self._leave(peer, peer.process.ending())

    def _leave(self, peer: _Peer, ending: PeerEnding) -> None:
        self._close(peer)
        if peer.has_spoken and self._is_open:
            self._callbacks.lost(peer.key, ending)

    def _close(self, peer: _Peer) -> None:
        del self._peers[peer.key]
        if peer.end_timer is not None:
            peer.end_timer.cancel()
        if peer.process.end_descriptor is not None:
            self._loop.remove_reader(peer.process.end_descriptor)
        descriptor = peer.connection.fileno()
        self._loop.remove_reader(descriptor)
        self._loop.remove_writer(descriptor)
        peer.connection.close()
        peer.process.close()

    def _look(self) -> None:
        """Gives up peers whose process is stopped."""
        next_s = self._config.heartbeat_interval_s
        for peer in list(self._peers.values()):
            if peer.end_timer is not None:
                continue
            if peer.process.is_running():
                peer.stopped_since_s = None
                continue
            now_s = self._loop.time()
            if peer.stopped_since_s is None:
                peer.stopped_since_s = now_s
            left_s = peer.stopped_since_s + self._config.heartbeat_timeout_s - now_s
            if left_s > 0:
                next_s = min(next_s, left_s)
                continue
            self._read(peer)
            if peer.key in self._peers and peer.end_timer is None and peer.stopped_since_s is not None:
                self._leave(peer, CONNECTION_LOST)
        self._timer = self._loop.call_later(next_s, self._look)


class UnixDealerLink:
    """A replica's end. Blocking; one thread.

    While no orchestrator is there it dials again: after 50 ms, then less and less often, finally once per second. What is sent
    meanwhile is dropped: a new orchestrator knows nothing of earlier requests.
    """

    def __init__(self, address: str, receive_timeout_s: float) -> None:
        self._path = path_of(address)
        self._timeout_s = receive_timeout_s
        self._connection: socket.socket | None = None
        self._messages: deque[list[Frame]] = deque()
        self._redial_s = _REDIAL_S
        self._has_heard = False
        self._refused = LogThrottle(_log, "orchestrator_refused")
        self._dial()

    @property
    def is_connected(self) -> bool:
        """See `ReplicaEnd.is_connected`."""
        return self._connection is not None

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends a message; waits until the kernel has all of it, so that its buffers may be reused."""
        pieces: deque[Frame] = deque(pack(frames))
        if self._connection is not None:
            try:
                write_all(self._connection, pieces)
            except OSError:
                self._hang_up()

    def receive(self, *, is_waiting: bool = True, wake: WakeUp | None = None) -> list[Frame] | None:
        """Returns the next message; None if none came in time, none is there now, or `wake` is set. Its buffers belong to the
        caller.

        Also None right after it has dialled again: a new orchestrator does not know this replica.
        """
        deadline_s = time.monotonic() + (self._timeout_s if is_waiting else 0.0)
        while not self._messages:
            if self._connection is None:
                self._redial(deadline_s, wake)
                return None
            if is_waiting and wake is not None and not wake.wait_beside(self._connection.fileno(), deadline_s - time.monotonic()):
                break
            if not self._read(self._connection, is_waiting) or (not self._messages and time.monotonic() > deadline_s):
                break
        return self._messages.popleft() if self._messages else None

    def close(self, linger_s: float = _LINGER_S) -> None:
        """Closes it. The kernel keeps what was sent for the orchestrator; nothing has to linger."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read(self, connection: socket.socket, is_waiting: bool) -> bool:
        """Reads what is there; False if nothing came in time."""
        try:
            num_bytes = connection.recv_into(self._reader.space(), 0, 0 if is_waiting else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            num_bytes = 0
        if not num_bytes:
            self._hang_up()
            return True
        self._has_heard = True
        self._messages.extend(self._reader.take(num_bytes))
        if self._reader.error is not None:
            self._refused.report(error=str(self._reader.error))
            self._hang_up()
        return True

    def _dial(self) -> bool:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)  # if too many dial at once, come back later
        try:
            connection.connect(self._path)
        except OSError:
            connection.close()
            self._wait_longer()
            return False
        connection.setblocking(True)
        # The kernel's own limit: with Python's, every receive would also poll.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(self._timeout_s))
        set_buffers(connection)
        self._connection = connection
        self._reader = MessageReader()
        self._has_heard = False
        return True

    def _redial(self, deadline_s: float, wake: WakeUp | None) -> None:
        """Dials until a process answers, the time is over, or `wake` is set."""
        pause = time.sleep if wake is None else partial(wake.wait_beside, None)
        while True:
            left_s = deadline_s - time.monotonic()
            wait_s = self._next_dial_s - time.monotonic()
            if wait_s > left_s:
                pause(max(0.0, left_s))
                return
            pause(max(0.0, wait_s))
            if wake is not None and wake.is_set:
                return
            if self._dial():
                return

    def _hang_up(self) -> None:
        self.close()
        if self._has_heard:
            self._redial_s = _REDIAL_S
        self._wait_longer()

    def _wait_longer(self) -> None:
        self._next_dial_s = time.monotonic() + self._redial_s
        self._redial_s = min(2 * self._redial_s, _MAX_REDIAL_S)


def _is_behind(peer: _Peer) -> bool:
    """Returns whether a peer has yet to take what was sent, and does."""
    return bool(peer.waiting) and not peer.is_deaf and peer.process.is_running()


def path_of(address: str) -> str:
    """Returns the path in an address.

    Raises:
        TransportError: If it has no path, or one that is too long for the kernel.
    """
    path = address.removeprefix(SCHEME)
    if not address.startswith(f"{SCHEME}/") or "\0" in path:
        raise TransportError(f"{address!r} is not an address like unix:///path")
    length = len(os.fsencode(path))
    if length > _MAX_PATH_BYTES:
        raise TransportError(
            f"the path of the socket {path!r} has {length} bytes, the kernel takes {_MAX_PATH_BYTES}: "
            "choose a shorter folder, for temporary ones by TMPDIR"
        )
    return path


def _listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        os.fchmod(listener.fileno(), 0o600)  # of the file that is made, on Linux; elsewhere its folder protects it
        try:
            listener.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_stale(path):
                raise
            os.unlink(path)
            listener.bind(path)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise TransportError(f"cannot listen on {SCHEME}{path}: {error.strerror or error}") from error
    return listener


def _is_stale(path: str) -> bool:
    """Returns whether a file is the socket of a process that no longer listens."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        return caller.connect_ex(path) == errno.ECONNREFUSED


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def set_buffers(connection: socket.socket) -> None:
    """Makes the kernel buffer more."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)


def write_all(connection: socket.socket, pieces: deque[Frame]) -> None:
    """Writes pieces, and removes what was written; raises BlockingIOError if the connection accepts no more now."""
    while pieces:
        some = pieces if len(pieces) <= _MAX_PIECES else list(itertools.islice(pieces, _MAX_PIECES))
        num_bytes = connection.sendmsg(some, (), _NO_SIGNAL)
        if some is pieces and num_bytes == sum(map(len, some)):
            pieces.clear()
        else:
            drop(pieces, num_bytes)


def _timeval(seconds: float) -> bytes:
    whole = int(seconds)
    return struct.pack("@ll", whole, max(int((seconds - whole) * 1e6), 0 if whole else 1))  # zero would mean for ever
