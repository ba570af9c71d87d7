# pyright: basic
# gRPC ships no types.
"""The peers of DyOrc's tiers, each a `Hop` and, below it, the function that its consumer process carries out.

Each is used in the fastest way for whole tensors, short of writing a transport. How often each copies the bytes (`copies`) is
known from how the libraries work, not measured.
"""

from __future__ import annotations

import secrets
import socket
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import grpc
import numpy as np
import zmq

from benchmarks.focused.transport.hop import Bytes, Pool, reply_to, time_hops
from benchmarks.focused.transport.processes import Child, receive_json, send_json

_HEADER_BYTES = 8
_REPLY_TIMEOUT_S = 60.0
_METHOD = "/bench.Hop/Carry"
_NO_LIMITS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Memcpy:
    """The lower bound for ways that copy: one `np.copyto` between warm arrays within one process, without a reply."""

    name = "memcpy"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._copies = Pool()

    def start(self) -> None:
        """Does nothing: there is nothing to start."""

    def time_hops(self, num_bytes: int, num_hops: int) -> list[float]:
        """Makes hops; see `Hop`."""
        sources, targets = self._pool.arrays(num_bytes), self._copies.arrays(num_bytes)
        target_of = {id(source): target for source, target in zip(sources, targets, strict=True)}

        def carry(source: Bytes) -> Bytes:
            target = target_of[id(source)]
            np.copyto(target, source)
            return target

        return time_hops(carry, sources, num_hops)

    def copies(self, num_bytes: int) -> int:
        """One."""
        return 1

    def stop(self) -> None:
        """Does nothing: there is nothing to stop."""


class PipePeer:
    """`multiprocessing.Pipe`: `send_bytes` there, `recv_bytes` here."""

    name = "pipe"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._child = Child("benchmarks.focused.transport.peers:consume_pipe")

    def start(self) -> None:
        """Starts the consumer."""
        self._pipe = self._child.start()

    def time_hops(self, num_bytes: int, num_hops: int) -> list[float]:
        """Makes hops; see `Hop`."""
        return time_hops(self._carry, self._pool.arrays(num_bytes), num_hops)

    def _carry(self, source: Bytes) -> bytes:
        self._pipe.send_bytes(source.data)
        return self._pipe.recv_bytes()

    def copies(self, num_bytes: int) -> int:
        """Into the kernel, out of it in pieces, into one buffer; up to 16 KiB also together with the length, before."""
        return 3 if num_bytes > 16384 else 4

    def stop(self) -> None:
        """Ends the consumer."""
        self._child.stop()


def consume_pipe(pipe: Connection) -> None:
    """Answers until it is stopped."""
    while True:
        pipe.send_bytes(reply_to(np.frombuffer(pipe.recv_bytes(), np.uint8)))


class RawZmq:
    """Plain ZeroMQ: DEALER to ROUTER, the tensor as one frame, no copy on either side of the sockets.

    Args:
        protocol: ``ipc`` (a Unix socket) or ``tcp`` (over loopback).
    """

    def __init__(self, pool: Pool, protocol: str) -> None:
        self.name = f"raw_zmq_{protocol}"
        self._pool = pool
        self._protocol = protocol

    def start(self) -> None:
        """Starts the consumer and connects to it."""
        # "@": Linux's abstract names, which have no file
        address = f"ipc://@hop-{secrets.token_hex(8)}" if self._protocol == "ipc" else "tcp://127.0.0.1:*"
        self._child = Child("benchmarks.focused.transport.peers:consume_zmq", address)
        address = receive_json(self._child.start())
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.RCVTIMEO, int(_REPLY_TIMEOUT_S * 1000))
        self._socket.connect(address)

    def time_hops(self, num_bytes: int, num_hops: int) -> list[float]:
        """Makes hops; see `Hop`."""
        return time_hops(self._carry, self._pool.arrays(num_bytes), num_hops)

    def _carry(self, source: Bytes) -> bytes:
        self._socket.send(source.data, copy=False)
        return self._socket.recv()

    def copies(self, num_bytes: int) -> int:
        """Into the kernel and out of it; small frames (ZeroMQ's batches of 8 KiB) pass a buffer on both sides."""
        return 2 if num_bytes > 8192 else 3

    def stop(self) -> None:
        """Disconnects, and ends the consumer."""
        if hasattr(self, "_socket"):
            self._socket.close(0)
            self._context.term()
        if hasattr(self, "_child"):
            self._child.stop()


def consume_zmq(pipe: Connection, address: str) -> None:
    """Answers until it is stopped."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(address)
        send_json(pipe, router.getsockopt_string(zmq.LAST_ENDPOINT))
        while True:
            peer, frame = router.recv_multipart(copy=False)
            router.send_multipart([peer.bytes, reply_to(np.frombuffer(frame.buffer, np.uint8))])


class RawSocket:
    """A TCP connection over loopback, with a length before each tensor. The consumer allocates its buffer beforehand."""

    name = "raw_socket"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._child = Child("benchmarks.focused.transport.peers:consume_socket")

    def start(self) -> None:
        """Starts the consumer and connects to it."""
        port = receive_json(self._child.start())
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_REPLY_TIMEOUT_S)
        self._socket.settimeout(None)  # with a timeout, Python would poll before every call
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def time_hops(self, num_bytes: int, num_hops: int) -> list[float]:
        """Makes hops; see `Hop`."""
        return time_hops(self._carry, self._pool.arrays(num_bytes), num_hops)

    def _carry(self, source: Bytes) -> bytes:
        # The length and the bytes leave together; otherwise a short tensor would be two packets.
        num_sent = self._socket.sendmsg([source.nbytes.to_bytes(_HEADER_BYTES, "little"), source.data])
        self._socket.sendall(source.data[max(0, num_sent - _HEADER_BYTES) :])
        return self._socket.recv(2, socket.MSG_WAITALL)

    def copies(self, num_bytes: int) -> int:
        """Into the kernel and out of it."""
        return 2

    def stop(self) -> None:
        """Disconnects, and ends the consumer."""
        if hasattr(self, "_socket"):
            self._socket.close()
        self._child.stop()


def consume_socket(pipe: Connection) -> None:
    """Answers until the producer disconnects."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        send_json(pipe, server.getsockname()[1])
        connection, _ = server.accept()
    pool = Pool()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while header := connection.recv(_HEADER_BYTES, socket.MSG_WAITALL):
            received = pool.arrays(int.from_bytes(header, "little"))[0]
            connection.recv_into(received.data, received.nbytes, socket.MSG_WAITALL)
            connection.sendall(reply_to(received))


class GrpcUnary:
    """A plain unary gRPC call over loopback, with the bytes as the message and no limit on its size."""

    name = "grpc"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._child = Child("benchmarks.focused.transport.peers:consume_grpc")

    def start(self) -> None:
        """Starts the server and connects to it."""
        port = receive_json(self._child.start())
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=_NO_LIMITS)
        self._call = self._channel.unary_unary(_METHOD)

    def time_hops(self, num_bytes: int, num_hops: int) -> list[float]:
        """Makes hops; see `Hop`."""
        return time_hops(self._carry, self._pool.arrays(num_bytes), num_hops)

    def _carry(self, source: Bytes) -> bytes:
        return self._call(source.tobytes(), timeout=_REPLY_TIMEOUT_S)

    def copies(self, num_bytes: int) -> int:
        """Into `bytes`, into gRPC's slice, into the kernel, out of it, and from gRPC's slices into `bytes` again."""
        return 5

    def stop(self) -> None:
        """Disconnects, and ends the server."""
        if hasattr(self, "_channel"):
            self._channel.close()
        self._child.stop()


def consume_grpc(pipe: Connection) -> None:
    """Answers until it is stopped."""

    def carry(request: bytes, _: grpc.ServicerContext) -> bytes:
        return reply_to(np.frombuffer(request, np.uint8))

    service, _, method = _METHOD[1:].partition("/")
    handler = grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(carry)})
    server = grpc.server(ThreadPoolExecutor(1), handlers=[handler], options=_NO_LIMITS)
    send_json(pipe, server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()
