"""The ids by which one request is known, and the caller's place in a trace: in headers and in gRPC metadata."""

import itertools
import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from dyorc.core.trace_context import TraceContext, read_traceparent
from dyorc.protocol.headers import REQUEST_ID, TRACEPARENT, TRACESTATE, Header
from dyorc.telemetry.record import Origin

_MAX_ID_CHARS = 128
_THIS_PROCESS = secrets.token_hex(4)
_numbers = itertools.count(1)


class Ids(msgspec.Struct, eq=False):
    """Of one request.

    Attributes:
        request_id: Its client's, or one made up.
        trace_id: Of its trace; empty if it has none.
        caller: The caller's span, if it sent one.
        is_given: Whether `request_id` is its client's.
        origin: Where it came from, if it is recorded.
        is_left_out: Whether it was decided that it is not recorded, however it ends.
    """

    request_id: str
    trace_id: str = ""
    is_given: bool = False
    origin: Origin | None = None
    caller: TraceContext | None = None
    is_left_out: bool = False

    @classmethod
    def made_up(cls) -> "Ids":
        """Returns those of a request of which nothing is known."""
        return cls(new_request_id())

    def name(self, request_id: str) -> None:
        """Takes the id in the request's body, if it can be used. It goes before a header's, which a proxy may have added."""
        if request_id := usable(request_id):
            self.request_id, self.is_given = request_id, True

    @property
    def was_submitted(self) -> bool:
        """Whether it was handed to the orchestrator, as far as it is recorded."""
        return self.origin is not None and self.origin.story is not None

    @property
    def facts(self) -> dict[str, str]:
        """What a line of a log says."""
        return {"request_id": self.request_id} | ({"trace_id": self.trace_id} if self.trace_id else {})


def new_request_id() -> str:
    """Returns an id for a request whose client gave none. No other process of any server makes the same."""
    return f"{_THIS_PROCESS}-{next(_numbers):x}"


def usable(request_id: str) -> str:
    """Returns a client's id; empty if it cannot stand in a header and in a line of a log."""
    is_usable = len(request_id) <= _MAX_ID_CHARS and request_id.isascii() and request_id.isprintable()
    return request_id if is_usable else ""


_REQUEST_ID = REQUEST_ID.encode()
TRACEPARENT_NAME, TRACESTATE_NAME = TRACEPARENT.encode(), TRACESTATE.encode()
"""Of headers, encoded."""


def ids_in_headers(headers: Iterable[Header]) -> Ids:
    """Returns what the head of an HTTP request says, with names of headers in lower case; with an id of ours if it has none."""
    given = next((usable(value.decode("latin-1")) for name, value in headers if name == _REQUEST_ID), "")
    return _ids(given, caller_in_headers(headers))


def ids_in_metadata(context: Any) -> Ids:
    """Returns the same for a gRPC call."""
    metadata = context.invocation_metadata() or ()
    given = next((usable(value) for name, value in metadata if name == REQUEST_ID), "")
    return _ids(given, caller_in_metadata(metadata))


def _ids(given: str, caller: TraceContext | None) -> Ids:
    return Ids(given or new_request_id(), "" if caller is None else caller.trace_id, is_given=bool(given), caller=caller)


def header_of(ids: Ids) -> Header:
    """Returns the header of an answer that names its request."""
    return _REQUEST_ID, ids.request_id.encode()


def id_line(ids: Ids) -> bytes:
    """Returns the same, encoded."""
    return b"%b: %b\r\n" % header_of(ids)


def caller_in_headers(headers: Iterable[Header]) -> TraceContext | None:
    """Returns the caller's span, from headers with names in lower case."""
    parent = state = b""
    for name, value in headers:
        if name == TRACEPARENT_NAME:
            parent = value
        elif name == TRACESTATE_NAME:
            state = value
    return caller_of(parent, state) if parent else None


def caller_of(parent: bytes, state: bytes) -> TraceContext | None:
    """Returns the caller's span, from the values of both headers."""
    return read_traceparent(parent.decode("latin-1"), state.decode("latin-1"))


def caller_in_metadata(metadata: Any) -> TraceContext | None:
    """Returns the caller's span, from a gRPC call's metadata."""
    found = {name: value for name, value in metadata or () if name in (TRACEPARENT, TRACESTATE) and isinstance(value, str)}
    return read_traceparent(found[TRACEPARENT], found.get(TRACESTATE, "")) if TRACEPARENT in found else None
