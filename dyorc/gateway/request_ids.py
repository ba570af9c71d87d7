"""The ids by which one request is known, and the caller's place in a trace: in headers and in gRPC metadata."""

import itertools
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dyorc.core.trace_context import TraceContext, read_traceparent
from dyorc.protocol.header_names import REQUEST_ID, TRACEPARENT, TRACESTATE, Header
from dyorc.telemetry.record import Origin

_MAX_ID_CHARS = 128
_FIRST_ERROR = 400
_THIS_PROCESS = secrets.token_hex(4)
_numbers = itertools.count(1)


class Ids(msgspec.Struct, eq=False):
    """The ids of one request.

    Attributes:
        request_id: From its client, or generated.
        trace_id: Of its trace; empty if it has none.
        is_given: Whether `request_id` is from its client.
        origin: Where it came from, if it is recorded.
        caller: The caller's span, if it sent one.
        is_left_out: Whether it was decided not to record it, however it ends.
    """

    request_id: str
    trace_id: str = ""
    is_given: bool = False
    origin: Origin | None = None
    caller: TraceContext | None = None
    is_left_out: bool = False

    @classmethod
    def made_up(cls) -> "Ids":
        """Returns generated ids."""
        return cls(new_request_id())

    def name(self, request_id: str) -> None:
        """Takes the id in the request's body, if it is usable. It has precedence over a header, which a proxy may have added."""
        if request_id := usable_id(request_id):
            self.request_id, self.is_given = request_id, True

    @property
    def span(self) -> TraceContext | None:
        """Its own span, or that of its caller; None without either."""
        return self.caller if self.origin is None or self.origin.span is None else self.origin.span

    @property
    def was_submitted(self) -> bool:
        """Whether it was handed to the orchestrator, as far as it is recorded."""
        return self.origin is not None and self.origin.story is not None

    @property
    def facts(self) -> dict[str, str]:
        """The fields of a log line."""
        return {"request_id": self.request_id} | ({"trace_id": self.trace_id} if self.trace_id else {})


def new_request_id() -> str:
    """Returns an id that is unique among all processes of all servers."""
    return f"{_THIS_PROCESS}-{next(_numbers):x}"


def usable_id(request_id: str) -> str:
    """Returns a client's id; empty if it does not fit into a header and a log line."""
    is_usable = len(request_id) <= _MAX_ID_CHARS and request_id.isascii() and request_id.isprintable()
    return request_id if is_usable else ""


_REQUEST_ID = REQUEST_ID.encode()
TRACEPARENT_NAME, TRACESTATE_NAME = TRACEPARENT.encode(), TRACESTATE.encode()
"""Names of headers, encoded."""


def ids_in_headers(headers: Iterable[Header]) -> Ids:
    """Returns the ids of an HTTP request, whose headers have names in lower case; with a generated id if it has none."""
    request_id = next((usable_id(value.decode("latin-1")) for name, value in headers if name == _REQUEST_ID), "")
    return _ids(request_id, caller_in_headers(headers))


def ids_in_metadata(context: Any) -> Ids:
    """Returns the same for a gRPC call."""
    metadata = context.invocation_metadata() or ()
    request_id = next((usable_id(value) for name, value in metadata if name == REQUEST_ID), "")
    return _ids(request_id, caller_in_metadata(metadata))


def headers_in_metadata(context: Any) -> Iterator[Header]:
    """Yields the texts in a gRPC call's metadata as headers. Reads nothing before it is iterated."""
    for name, value in context.invocation_metadata() or ():
        if isinstance(value, str):
            yield name.encode(), value.encode()


def _ids(request_id: str, caller: TraceContext | None) -> Ids:
    return Ids(
        request_id or new_request_id(), "" if caller is None else caller.trace_id, is_given=bool(request_id), caller=caller
    )


def header_of(ids: Ids) -> Header:
    """Returns the header of an answer that names its request."""
    return _REQUEST_ID, ids.request_id.encode()


def trace_header(ids: Ids) -> Header | None:
    """Returns the header of an answer that names its request's span, or its caller's if it has none; None without either."""
    span = ids.span
    return None if span is None else (TRACEPARENT_NAME, span.traceparent.encode())


def answer_headers(ids: Ids, status: int) -> list[Header]:
    """Returns the headers of an answer that name its request: the id, if its client gave one or something is wrong, and its place
    in a trace."""
    headers = [header_of(ids)] if ids.is_given or status >= _FIRST_ERROR else []
    place = trace_header(ids)
    return headers if place is None else [*headers, place]


def id_line(ids: Ids) -> bytes:
    return b"%b: %b\r\n" % header_of(ids)


def caller_in_headers(headers: Iterable[Header]) -> TraceContext | None:
    """Returns the caller's span, from headers with names in lower case."""
    parent = state = b""
    for name, value in headers:
        if name == TRACEPARENT_NAME:
            parent = parent or value
        elif name == TRACESTATE_NAME:
            state = state or value
    return caller_of(parent, state) if parent else None


def caller_of(parent: bytes, state: bytes) -> TraceContext | None:
    return read_traceparent(parent.decode("latin-1"), state.decode("latin-1"))


def caller_in_metadata(metadata: Any) -> TraceContext | None:
    """Returns the caller's span, from a gRPC call's metadata."""
    values: dict[str, str] = {}
    for name, value in metadata or ():
        if name in (TRACEPARENT, TRACESTATE) and isinstance(value, str):
            values.setdefault(name, value)
    return read_traceparent(values[TRACEPARENT], values.get(TRACESTATE, "")) if TRACEPARENT in values else None
