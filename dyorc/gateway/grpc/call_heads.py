"""The headers of gRPC calls. A client sends the same ones with each call, so they are read once.

Source: gRPC over HTTP/2 (doc/PROTOCOL-HTTP2.md of grpc/grpc).
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from dyorc.gateway.known_heads import KnownHeads
from dyorc.protocol.header_names import PRIORITY, REQUEST_ID, TRACEPARENT

Headers = Sequence[tuple[bytes, bytes]]

_MAX_KEPT_BYTES = 2048
_FIELD_BYTES = 32
"""What HTTP/2 counts for each field besides its name and value."""
_RESERVED = frozenset(
    {
        b":method", b":scheme", b":authority", b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding",
        b"grpc-message-type",
    }
)  # fmt: skip
_GRPC = b"application/grpc"
_POST, _TE = (b":method", b"POST"), (b"te", b"trailers")
"""Headers of every call."""
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT = re.compile(rb" *([0-9]+) *([HMSmun]) *")
"""With what grpcio accepts besides the specification: blanks, and any number of digits."""
_MAX_DIGITS = 8
"""A longer time is without limit, as in grpcio."""
_OF_ONE_REQUEST = frozenset({REQUEST_ID, TRACEPARENT})
_READ = _OF_ONE_REQUEST | {PRIORITY}


class HeadFault(Enum):
    """Why headers are no call's. grpcio names the header in the call's status, except in the first two cases."""

    NOT_GRPC = "content-type"
    NOT_A_CALL = "GET, PUT, or no te"
    TIMEOUT = "grpc-timeout"
    METHOD = ":method"


class CallHead(NamedTuple):
    """What the headers of a call say.

    Attributes:
        path: Of its method.
        fault: Why it is none; None if it is a call by gRPC.
        metadata: What its client added.
        is_named: Whether that has the request's id, or its place in a trace.
        is_plain: Whether it has neither these nor a priority.
        timeout_s: How long it may take; None: without limit.
        encoding: How its messages are compressed; empty if they are not.
        num_bytes: The size of all headers, as HTTP/2 counts it.
    """

    path: str
    fault: HeadFault | None
    metadata: Sequence[tuple[str, str | bytes]]
    is_named: bool
    is_plain: bool
    timeout_s: float | None
    encoding: bytes
    num_bytes: int


class CallHeadCache:
    """The heads of one server's calls."""

    def __init__(self) -> None:
        self._known = KnownHeads[Headers, CallHead]()

    def read(self, headers: Headers) -> CallHead:
        """Returns what headers say."""
        head = self._known.find(headers)
        if head is None:
            head = read_call_head(headers)
            is_of_one_call = head.is_named or head.timeout_s is not None
            if not is_of_one_call and head.num_bytes <= _MAX_KEPT_BYTES:
                self._known.add(headers, head)
        return head


def read_call_head(headers: Headers) -> CallHead:
    """Returns what headers say."""
    path = content_type = encoding = b""
    timeout: bytes | None = None
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
        elif name not in _RESERVED and name[:1] != b":":
            metadata.append((name.decode("latin-1"), _binary(value) if name.endswith(b"-bin") else value.decode("latin-1")))
    duration = None if timeout is None else _TIMEOUT.fullmatch(timeout)
    is_call = _POST in headers and _TE in headers and (timeout is None or duration is not None)
    fault = None if is_call and content_type.startswith(_GRPC) else _fault_of(dict(headers))
    names = {name for name, _ in metadata}
    return CallHead(
        path.decode("latin-1"), fault, tuple(metadata), not names.isdisjoint(_OF_ONE_REQUEST), names.isdisjoint(_READ),
        None if duration is None else _seconds_of(duration), encoding, num_bytes,
    )  # fmt: skip


def _seconds_of(duration: re.Match[bytes]) -> float | None:
    digits = duration[1].lstrip(b"0")
    return int(digits or b"0") * _UNITS_S[duration[2]] if len(digits) <= _MAX_DIGITS else None


def _fault_of(fields: Mapping[bytes, bytes]) -> HeadFault:
    """Returns what is wrong with the headers of no call: of several faults the one that grpcio answers."""
    if not fields.get(b"content-type", b"").startswith(_GRPC):
        return HeadFault.NOT_GRPC
    if not _TIMEOUT.fullmatch(fields.get(b"grpc-timeout", b"1S")):
        return HeadFault.TIMEOUT
    return HeadFault.METHOD if fields.get(b":method") not in (b"POST", b"GET", b"PUT") else HeadFault.NOT_A_CALL


def _binary(value: bytes) -> bytes:
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4))
    except binascii.Error:
        return b""
