"""The headers of gRPC calls. A client sends the same ones with each call, so they are read once.

Source: gRPC over HTTP/2 (doc/PROTOCOL-HTTP2.md of grpc/grpc).
"""

import base64
import binascii
from collections.abc import Sequence
from typing import NamedTuple

from dyorc.protocol.header_names import PRIORITY, REQUEST_ID, TRACEPARENT

Headers = Sequence[tuple[bytes, bytes]]

_MAX_HEADS = 1024
"""Clients that write something else into each head must not fill the memory."""
_MAX_KEPT_BYTES = 2048
_FIELD_BYTES = 32
"""What HTTP/2 counts for each field besides its name and value."""
_RESERVED = frozenset({b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding", b"grpc-message-type"})
_OF_ONE_REQUEST = frozenset({REQUEST_ID, TRACEPARENT})
_READ = _OF_ONE_REQUEST | {PRIORITY}


class CallHead(NamedTuple):
    """What the headers of a call say.

    Attributes:
        path: Of its method.
        is_grpc: Whether it is a call by gRPC at all.
        metadata: What its client added.
        is_named: Whether that has the request's id, or its place in a trace.
        is_plain: Whether it has neither these nor a priority.
        timeout: How long it may take, in gRPC's form; empty: without limit.
        encoding: How its messages are compressed; empty if they are not.
        num_bytes: The size of all headers, as HTTP/2 counts it.
    """

    path: str
    is_grpc: bool
    metadata: Sequence[tuple[str, str | bytes]]
    is_named: bool
    is_plain: bool
    timeout: bytes
    encoding: bytes
    num_bytes: int


class CallHeadCache:
    """The heads of one server's calls.

    There are two generations; the older is dropped when the younger is full.
    """

    def __init__(self) -> None:
        self._young: dict[Headers, CallHead] = {}
        self._old: dict[Headers, CallHead] = {}

    def read(self, headers: Headers) -> CallHead:
        """Returns what headers say."""
        head = self._young.get(headers) or self._old.get(headers)
        if head is None:
            head = read_call_head(headers)
            if not (head.is_named or head.timeout or head.num_bytes > _MAX_KEPT_BYTES):  # those differ for each call
                if len(self._young) >= _MAX_HEADS:
                    self._old, self._young = self._young, {}
                self._young[headers] = head
        return head


def read_call_head(headers: Headers) -> CallHead:
    """Returns what headers say."""
    path = content_type = timeout = encoding = b""
    num_bytes = 0
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in headers:
        num_bytes += len(name) + len(value) + _FIELD_BYTES
        if name == b":path":
            path = value
        elif name == b"content-type":
            content_type = value
        elif name == b"grpc-timeout":
            timeout = value
        elif name == b"grpc-encoding":
            encoding = b"" if value == b"identity" else value
        elif name[:1] != b":" and name not in _RESERVED:
            metadata.append((name.decode("latin-1"), _binary(value) if name.endswith(b"-bin") else value.decode("latin-1")))
    names = {name for name, _ in metadata}
    return CallHead(
        path.decode("latin-1"), content_type.startswith(b"application/grpc"), tuple(metadata),
        not names.isdisjoint(_OF_ONE_REQUEST), names.isdisjoint(_READ), timeout, encoding, num_bytes,
    )  # fmt: skip


def _binary(value: bytes) -> bytes:
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4))
    except binascii.Error:
        return b""
