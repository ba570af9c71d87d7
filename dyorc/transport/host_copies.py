"""Copies of results on a device, made on the host when somebody there asks for them.

A replica may leave results on its device (`DevicePlace`). Processes that can open that memory read it there. All others read
the block in the replica's arena, and have it filled first: by a request to a socket of the replica, which a thread of its own
answers, while a batch runs. Other nodes fetch the block as any other, and the server that they fetch from fills it.

    request, 9 bytes    | C or L | number of the block, uint64, big-endian |      C: copy it, L: it is damaged, free it
    answer, 1 byte      | 1: the block has its bytes | 0: it is gone |

The socket has a name in Linux's abstract namespace, after the arena, so nothing is left of it. Only processes of the same user
are answered.
"""

import os
import selectors
import socket
import struct
import threading
from typing import Protocol, Self

import structlog

from dyorc.errors import TensorLostError
from dyorc.transport.tiers import BlockSource, TensorHolder

_log = structlog.get_logger("dyorc.transport")

_REQUEST = struct.Struct("!cQ")
_COPY, _LOSE = b"C", b"L"
_THERE, _GONE = b"1", b"0"
_CREDENTIALS = struct.Struct("3i")
_BACKLOG = 64
_TIMEOUT_S = 30.0
"""A copy takes milliseconds; a process that is stopped for longer counts as gone."""


class HostCopier(Protocol):
    """What a process has on its device. Any thread."""

    def copy(self, block: int) -> bool:
        """Has a block of its arena filled, unless it was or lies on no device. Returns False if it was released."""
        ...

    def lose(self, block: int) -> None:
        """Frees a block whose elements on the device are wrong, so that readers find it gone and it is computed again."""
        ...


def _address(arena: str) -> str:
    return f"\0dyorc-{os.getuid()}-{arena}"


class HostCopyServer:
    """Answers requests for copies while entered, on a thread.

    Args:
        arena: The name of this process's arena.
    """

    def __init__(self, arena: str, copier: HostCopier) -> None:
        self._address = _address(arena)
        self._copier = copier
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, name="dyorc-copies", daemon=True)

    def __enter__(self) -> Self:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self._address)
        self._listener.listen(_BACKLOG)
        self._stop, stopped = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(stopped, selectors.EVENT_READ, data="stop")
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.close()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data == "stop":
                    return
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj is self._listener:
                    self._accept()
                elif not self._answer(key.fileobj):
                    self._selector.unregister(key.fileobj)
                    key.fileobj.close()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if uid == os.getuid():
            self._selector.register(connection, selectors.EVENT_READ)
        else:
            connection.close()

    def _answer(self, connection: socket.socket) -> bool:
        """Answers one request. Returns False if the connection is over."""
        try:
            request = connection.recv(_REQUEST.size + 1)
            if len(request) != _REQUEST.size:
                return False
            connection.send(_THERE if self._carry_out(*_REQUEST.unpack(request)) else _GONE)
        except OSError:
            return False
        return True

    def _carry_out(self, kind: bytes, block: int) -> bool:
        """Returns whether a block has its bytes now."""
        try:
            if kind == _COPY:
                return self._copier.copy(block)
            self._copier.lose(block)
        except Exception:  # of the device's library; the block counts as lost, and others are answered
            _log.exception("device_not_copied", block=block)
        return False


class HostCopyClient:
    """Asks processes of this node for copies, also its own. Blocking; each thread has its own."""

    def __init__(self) -> None:
        self._connections: dict[str, tuple[str, socket.socket]] = {}  # by holder, each with its arena

    def copy(self, holder: TensorHolder, block: int) -> None:
        """Has a holder fill a block of its arena.

        Raises:
            TensorLostError: If it no longer has the block, or does not answer.
        """
        if not self._ask(holder, _COPY, block):
            raise TensorLostError(f"holder {holder.holder_id!r} no longer has block {block} on its device")

    def lose(self, holder: TensorHolder, block: int) -> None:
        """Has a holder free a block that is damaged.

        Raises:
            TensorLostError: If it does not answer.
        """
        self._ask(holder, _LOSE, block)

    def _ask(self, holder: TensorHolder, kind: bytes, block: int) -> bool:
        try:
            connection = self._connection(holder)
            connection.send(_REQUEST.pack(kind, block))
            answer = connection.recv(1)
            if not answer:
                raise ConnectionResetError("it closed the connection")
        except OSError as error:
            self.forget(holder.holder_id)
            raise TensorLostError(f"holder {holder.holder_id!r} does not copy block {block} from its device: {error}") from error
        return answer == _THERE

    def _connection(self, holder: TensorHolder) -> socket.socket:
        arena, connection = self._connections.get(holder.holder_id, ("", None))
        if connection is not None and arena == holder.arena:
            return connection
        self.forget(holder.holder_id)  # it has restarted
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(_TIMEOUT_S)
        try:
            connection.connect(_address(holder.arena))
        except OSError:
            connection.close()
            raise
        self._connections[holder.holder_id] = (holder.arena, connection)
        return connection

    def forget(self, holder_id: str) -> None:
        """Closes the connection to a holder."""
        _, connection = self._connections.pop(holder_id, ("", None))
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Closes all connections."""
        for holder_id in list(self._connections):
            self.forget(holder_id)


class FilledSource:
    """A `BlockSource` that fills blocks before it shows them.

    Attributes:
        copier: What this process has on its device; None: nothing.
    """

    def __init__(self, source: BlockSource) -> None:
        self._source = source
        self.copier: HostCopier | None = None

    def read_only(self, block_id: int, offset: int, num_bytes: int) -> memoryview:
        """Returns bytes of a block; see `BlockSource`."""
        if self.copier is not None:
            self.copier.copy(block_id)
        return self._source.read_only(block_id, offset, num_bytes)

    def is_intact(self, block_id: int) -> bool:
        """Returns whether the block is still there."""
        return self._source.is_intact(block_id)
