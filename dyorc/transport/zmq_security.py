"""CURVE for ZeroMQ: what leaves this machine is encrypted, and only processes of the same cluster can send or receive anything.

A cluster has one key pair, made when it starts and passed to each of its processes: owning it proves membership. A server
proves its ownership to clients, which must know its public key, and a client proves its own to the server: ZeroMQ asks the
context's authenticator (ZAP, ``inproc://zeromq.zap.01``, https://rfc.zeromq.org/spec/27) about each client's key, and it accepts
only the cluster's. Without an authenticator, ZeroMQ would admit every client that knows the server's public key.

The rule: a TCP address that is not loopback needs keys; ``ipc:``, ``inproc:`` and loopback may do without. Callers are `zmq_link`
and `zmq_tensors`. The authenticator answers in a separate thread, which ends with its context.
"""

import hmac
import re
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog
import zmq
from zmq.utils import z85

from dyorc.errors import TransportError
from dyorc.system.log_throttle import LogThrottle

_refusals = LogThrottle(structlog.get_logger("dyorc.transport"), "zmq_client_refused")

_LOCAL = re.compile(r"(ipc|inproc)://.*|tcp://(127(\.\d{1,3}){3}|localhost|\[::1\]):(\*|\d+)")
"""Addresses that only this machine reaches. All others, including invalid ones, count as open to the network."""

_ZAP_ADDRESS = "inproc://zeromq.zap.01"
_ZAP_VERSION = b"1.0"
_ZAP_DOMAIN = b"dyorc"
_KEY_CHARACTERS = 40


class ClusterKeys(msgspec.Struct, frozen=True):
    """The CURVE key pair of a cluster. Its owner can read all tensors and give all replicas work: keep it out of logs.

    Attributes:
        public: The public key, in Z85 (40 characters).
        secret: The secret key, in Z85 (40 characters).
    """

    public: bytes
    secret: bytes

    def __post_init__(self) -> None:
        for name, key in (("public", self.public), ("secret", self.secret)):
            if len(key) != _KEY_CHARACTERS:
                raise TransportError(f"a cluster's {name} key has {len(key)} characters, expected {_KEY_CHARACTERS} of Z85")

    @classmethod
    def generate(cls) -> "ClusterKeys":
        """Makes a new pair."""
        public, secret = zmq.curve_keypair()
        return cls(public, secret)

    @classmethod
    def of(cls, secret: bytes) -> "ClusterKeys":
        """Returns the pair of a secret of 32 bytes: any will do."""
        encoded = z85.encode(secret)
        return cls(zmq.curve_public(encoded), encoded)

    def __repr__(self) -> str:
        return f"ClusterKeys(public={self.public!r}, secret=<hidden>)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("public", self.public)]


def check_address(address: str, keys: ClusterKeys | None) -> None:
    """Checks the rule that only local addresses may do without keys.

    Raises:
        TransportError: If other machines can reach the address and there are no keys.
    """
    if keys is None and _LOCAL.fullmatch(address) is None:
        raise TransportError(
            f"{address!r} is not a loopback, ipc or inproc address: what leaves this machine needs the cluster's keys"
        )


def secure_client(socket: "zmq.Socket[bytes]", address: str, keys: ClusterKeys | None) -> None:
    """Sets up a socket that will connect to `address`.

    Raises:
        TransportError: If other machines can reach the address and there are no keys.
    """
    check_address(address, keys)
    if keys is not None:
        _set_pair(socket, keys)
        socket.setsockopt(zmq.CURVE_SERVERKEY, keys.public)


def secure_server(
    context: "zmq.Context[zmq.Socket[bytes]]", socket: "zmq.Socket[bytes]", address: str, keys: ClusterKeys | None
) -> None:
    """Sets up a socket that will be bound to `address`. Call it before binding, and only once per context.

    With keys, starts the context's authenticator, which ends when the context is terminated.

    Raises:
        TransportError: If other machines can reach the address and there are no keys.
    """
    check_address(address, keys)
    if keys is None:
        return
    _start_authenticator(context, keys)
    _set_pair(socket, keys)
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.ZAP_DOMAIN, _ZAP_DOMAIN)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without an authenticator, no client would be admitted


def _set_pair(socket: "zmq.Socket[bytes]", keys: ClusterKeys) -> None:
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)


def _start_authenticator(context: "zmq.Context[zmq.Socket[bytes]]", keys: ClusterKeys) -> None:
    socket = context.socket(zmq.REP)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(_ZAP_ADDRESS)
    threading.Thread(target=_authenticate, args=(socket, z85.decode(keys.public)), name="dyorc-zap", daemon=True).start()


def _authenticate(socket: "zmq.Socket[bytes]", key: bytes) -> None:
    """Answers ZeroMQ's questions until the context is terminated, which waits until the socket is closed."""
    try:
        while True:
            socket.send_multipart(answer(socket.recv_multipart(), key))
    except zmq.ContextTerminated:
        pass
    finally:
        socket.close(0)


def answer(question: Sequence[bytes], key: bytes) -> list[bytes]:
    """Answers ZeroMQ's question whether a client may connect (ZAP 1.0).

    Args:
        question: Version, request id, domain, address, routing id, mechanism, and the mechanism's credentials; CURVE's only one
            is the client's public key, 32 bytes. The client has proved that it owns the secret key.
        key: The cluster's public key, 32 bytes.
    """
    version, request_id, domain, address, _routing_id, mechanism, *credentials = [*question, *[b""] * 6][: max(6, len(question))]
    is_known = len(credentials) == 1 and hmac.compare_digest(credentials[0], key)
    if version == _ZAP_VERSION and domain == _ZAP_DOMAIN and mechanism == b"CURVE" and is_known:
        return [_ZAP_VERSION, request_id, b"200", b"OK", b"", b""]
    _refusals.report(address=address.decode(errors="replace"), mechanism=mechanism.decode(errors="replace"))
    return [_ZAP_VERSION, request_id, b"400", b"not of this cluster", b"", b""]
