"""A caller's end of the link over a Unix socket, on an event loop: a gateway dials in at the orchestrator of its machine.

It does not dial again by itself: the caller decides where to dial next.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence

from dyorc.config import LinkConfig
from dyorc.errors import TransportError
from dyorc.transport.column_codec import Frame
from dyorc.transport.peer_process import PeerProcess
from dyorc.transport.unix_framing import MessageReader, pack
from dyorc.transport.unix_link import path_of, set_buffers, write_all

_MAX_READS = 32


class UnixCallerLink:
    """Connected from the start until `close`, or until the other end is gone.

    Args:
        received: Called with the frames of each message.
        lost: Called once, with the reason, when the other end is gone or stopped.

    Raises:
        TransportError: If no process listens.
    """

    def __init__(
        self, address: str, config: LinkConfig, received: Callable[[Sequence[Frame]], None], lost: Callable[[str], None]
    ) -> None:
        self._config = config
        self._received = received
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._reader = MessageReader()
        self._waiting: deque[Frame] = deque()
        self._stopped_since_s: float | None = None
        self._is_open = True
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        try:
            self._socket.connect(path_of(address))
        except OSError as error:
            self._socket.close()
            raise TransportError(f"no process answers at {address}: {error.strerror or error}") from error
        set_buffers(self._socket)
        self._process = PeerProcess(self._socket)
        self._loop.add_reader(self._socket.fileno(), self._read)
        self._timer = self._loop.call_later(config.heartbeat_interval_s, self._look)

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends a message, or drops it if the other end is gone. What does not leave at once is copied and waits."""
        if not self._is_open:
            return
        pieces: deque[Frame] = deque(pack(frames))
        is_first = not self._waiting
        if is_first:
            self._write(pieces)
        if pieces and self._is_open:
            self._waiting.extend(piece if isinstance(piece, bytes) else bytes(piece) for piece in pieces)
            if is_first:
                self._loop.add_writer(self._socket.fileno(), self._write_waiting)

    def close(self) -> None:
        """Hangs up; no callback follows."""
        if not self._is_open:
            return
        self._is_open = False
        self._timer.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._process.close()
        self._socket.close()

    def _write(self, pieces: deque[Frame]) -> None:
        try:
            write_all(self._socket, pieces)
        except BlockingIOError:
            pass
        except OSError:  # its last messages and the end are still to be read
            pieces.clear()

    def _write_waiting(self) -> None:
        self._write(self._waiting)
        if not self._waiting:
            self._loop.remove_writer(self._socket.fileno())

    def _read(self) -> None:
        for _ in range(_MAX_READS):
            space = self._reader.space()
            try:
                num_bytes = self._socket.recv_into(space)
            except BlockingIOError:
                return
            except OSError:
                num_bytes = 0
            if not num_bytes:
                self._end("its process has ended, or hung up")
                return
            self._stopped_since_s = None
            for frames in self._reader.take(num_bytes):
                self._received(frames)
                if not self._is_open:
                    return
            if self._reader.error is not None:
                self._end(str(self._reader.error))
                return
            if num_bytes < len(space):
                return

    def _end(self, reason: str) -> None:
        self.close()
        self._lost(reason)

    def _look(self) -> None:
        """Notices that the other process is stopped."""
        self._timer = self._loop.call_later(self._config.heartbeat_interval_s, self._look)
        if self._process.is_running():
            self._stopped_since_s = None
            return
        now_s = self._loop.time()
        self._stopped_since_s = self._stopped_since_s or now_s
        if now_s - self._stopped_since_s >= self._config.heartbeat_timeout_s:
            self._end("its process is stopped")
