# pyright: basic
# zmq's and multiprocessing's types are partly unknown.
"""DyOrc's own tiers, behind the same Protocol as their peers: the parts of a replica, without program and scheduler.

The producer writes a batch of one call with `Outbox` and tells the consumer with the header that a batch has, over ZeroMQ's ipc;
the consumer reads it with `Inbox` and answers. `message` is that message alone: what every tier here costs, whatever it moves.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection

import msgspec
import numpy as np
import zmq

from benchmarks.focused.transport.hop import Bytes, HopError, Pool, reply_to, time_hops
from benchmarks.focused.transport.processes import Child, receive_json, send_json
from dyorc.config import TransportConfig
from dyorc.transport.arena import Arena
from dyorc.transport.arena_views import ArenaView
from dyorc.transport.column_codec import ColumnHeader, Frame, StoredColumn, StoredRows
from dyorc.transport.grpc_tensors import Endpoint, GrpcTensorServer, GrpcTier
from dyorc.transport.inbox import BatchBuffers, Inbox
from dyorc.transport.messages import BatchRequest, ResidentColumn, decode, encode
from dyorc.transport.outbox import Outbox
from dyorc.transport.tier_routes import Routes
from dyorc.transport.tiers import TensorHolder
from dyorc.transport.view_tiers import InPlaceTier, SharedMemoryTier
from dyorc.transport.zmq_security import ClusterKeys
from dyorc.transport.zmq_tensors import ZmqTensorServer, ZmqTier

_FOLDER = "/dev/shm"
_ARENA_BYTES = 512 * 2**20
_CONFIG = TransportConfig()
_REPLY_TIMEOUT_MS = 60_000
_NUM_ENDS = 2

_COPIES = {"message": 0, "inline": 2, "in_place": 1, "shared_memory_view": 1, "shared_memory_again": 0, "shared_memory_empty": 0}
_COPIES |= {"shared_memory_gather": 2, "zmq_tensors": 5, "zmq_tensors_curve": 7, "grpc_tensors": 6}
"""Copies: 1 into the arena; 1 into a batch; over a wire, into its frame, into the kernel, out of it, and into the batch's buffer,
plus those of CURVE and gRPC. `Outbox` and `Inbox` count their own, which tests/unit/replica/test_copies.py checks."""


class Tier:
    """One of DyOrc's ways from a producer to a consumer, by name. `again` reads what is in the arena already, `empty` what a
    program has written there itself."""

    def __init__(self, pool: Pool, name: str) -> None:
        self.name = name
        self._pool = pool
        self._number = 0
        self._blocks: list[int] = []
        self._written: tuple[tuple[ColumnHeader, ...], list[Frame]] = ((), [])

    def start(self) -> None:
        """Starts the consumer and the servers that it reads from."""
        self._stack = ExitStack()
        self._arena = self._stack.enter_context(Arena(_FOLDER, _ARENA_BYTES))
        self._outbox = Outbox(self._arena, 2**40 if self.name in ("message", "inline") else 0)
        keys = ClusterKeys.generate() if self.name == "zmq_tensors_curve" else None
        token = secrets.token_hex(16)
        self._holder = TensorHolder("producer", "here", self._arena.name, *self._serve(keys, token))
        if self.name == "in_place":
            own = InPlaceTier("producer", ArenaView(_FOLDER, self._arena.name))
            self._stack.callback(own.close)
            self._inbox = Inbox(Routes((own,)))
            return
        address = f"ipc://@hop-{secrets.token_hex(8)}"
        key_pair = (keys.public.decode(), keys.secret.decode()) if keys else ("", "")
        child = Child("benchmarks.focused.transport.dyorc_tiers:consume", address, self.name, *key_pair, token)
        self._stack.callback(child.stop)
        receive_json(child.start())
        context = self._stack.enter_context(zmq.Context())
        self._socket = self._stack.enter_context(context.socket(zmq.DEALER))
        self._socket.setsockopt(zmq.RCVTIMEO, _REPLY_TIMEOUT_MS)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(address)

    def _serve(self, keys: ClusterKeys | None, token: str) -> tuple[str, str]:
        """Returns the addresses from which the consumer can fetch, by ZeroMQ and by gRPC."""
        source = ArenaView(_FOLDER, self._arena.name)
        self._stack.callback(source.close)
        if self.name.startswith("zmq_tensors"):
            return self._stack.enter_context(ZmqTensorServer(source, "127.0.0.1", _CONFIG, keys)).address, ""
        if self.name == "grpc_tensors":
            return "", self._stack.enter_context(GrpcTensorServer(source, Endpoint("127.0.0.1"), _CONFIG, token)).address
        return "", ""

    def time_hops(self, num_bytes: int, num_hops: int) -> list[float]:
        """Makes hops; see `Hop`."""
        if self.name == "shared_memory_empty":
            return [self._time_reserved(num_bytes, stamp % 251) for stamp in range(num_hops)]
        if self.name != "shared_memory_again":
            return time_hops(self._carry, self._pool.arrays(num_bytes), num_hops)
        source = self._pool.arrays(num_bytes)[0]
        self._write(source)
        taken_us: list[float] = []
        for _ in range(num_hops):
            began_ns = time.perf_counter_ns()
            reply = self._tell()
            taken_us.append((time.perf_counter_ns() - began_ns) / 1e3)
            if reply != reply_to(source):
                raise HopError(f"of {num_bytes} bytes the ends came as {reply!r}")
        self._free()
        return taken_us

    def _time_reserved(self, num_bytes: int, stamp: int) -> float:
        """Makes a hop of what a program has written straight into the arena, with `dyorc.empty`."""
        memory = self._outbox.reserve(num_bytes)
        assert memory is not None
        source = np.frombuffer(memory, np.uint8)
        source[0] = source[-1] = stamp
        began_ns = time.perf_counter_ns()
        self._write(source)
        reply = self._tell()
        taken_us = (time.perf_counter_ns() - began_ns) / 1e3
        if reply != bytes((stamp, stamp)):
            raise HopError(f"of {num_bytes} bytes, both ends are {stamp}; the reply is {reply!r}")
        self._free()
        return taken_us

    def _carry(self, source: Bytes) -> bytes:
        self._write(source)
        reply = self._read_here() if self.name == "in_place" else self._tell()
        self._free()
        return reply

    def _write(self, source: Bytes) -> None:
        if self.name == "message":
            source = source[[0, -1]]
        halves = np.split(source, 2) if self.name == "shared_memory_gather" else [source]
        written = [self._outbox.write([half[None]]) for half in halves]
        stored = [header for headers, _ in written for header in headers if isinstance(header, StoredColumn)]
        if not stored:
            self._written = written[0]
            return
        parts = tuple(part for header in stored for part in header.parts)
        self._blocks = [part.block for part in parts if isinstance(part, StoredRows)]
        self._written = ((msgspec.structs.replace(stored[0], parts=parts),), [])

    def _tell(self) -> bytes:
        headers, frames = self._written
        self._number += 1
        message = encode(BatchRequest(self._number, headers, (), (self._holder,)))
        self._socket.send_multipart([message, *frames], copy=not frames)
        return self._socket.recv()

    def _read_here(self) -> bytes:
        (rows,) = self._inbox.read(self._written[0], [], (self._holder,))
        reply = reply_to(rows[0])
        self._inbox.done()
        return reply

    def _free(self) -> None:
        for block in self._blocks:
            self._arena.free(block)
        self._blocks.clear()

    def copies(self, num_bytes: int) -> int | None:
        """The number of copies of the bytes; see `Hop`."""
        return _COPIES[self.name]

    def stop(self) -> None:
        """Ends everything."""
        if hasattr(self, "_stack"):
            self._written = ((), [])
            self._stack.close()


TIERS = tuple(_COPIES)


def consume(pipe: Connection, address: str, name: str, public: str, secret: str, token: str) -> None:
    """Answers until it is stopped."""
    keys = ClusterKeys(public.encode(), secret.encode()) if public else None
    if name.startswith("zmq_tensors"):
        routes = Routes((), (ZmqTier(_CONFIG, keys),))
    elif name == "grpc_tensors":
        routes = Routes((), (GrpcTier(_CONFIG, token),))
    else:
        routes = Routes((SharedMemoryTier("here", _FOLDER),))
    inbox, batch = Inbox(routes, BatchBuffers().take), BatchBuffers()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(address)
        send_json(pipe, "ready")
        while True:
            peer, header, *frames = (frame.buffer for frame in router.recv_multipart(copy=False))
            message = decode(header)
            assert isinstance(message, BatchRequest)
            columns = [column for column in message.columns if not isinstance(column, ResidentColumn)]
            (rows,) = inbox.read(columns, frames, message.holders)
            if len(rows) == _NUM_ENDS and name == "shared_memory_gather":
                rows = _gather(batch, list(rows))  # as a replica's executor does
            router.send_multipart([bytes(peer), reply_to(np.asarray(rows[0]))])
            inbox.done()


def _gather(buffers: BatchBuffers, rows: Sequence[Bytes]) -> Bytes:
    whole = np.frombuffer(buffers.take(0, sum(row.nbytes for row in rows)), np.uint8)
    at = 0
    for row in rows:
        np.copyto(whole[at : at + row.nbytes], row)
        at += row.nbytes
    return whole[None]
