"""Finds the caller's place in its trace, in what came with a request."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from dyorc.core.trace_context import TraceContext, read_traceparent
from dyorc.protocol.header_names import TRACEPARENT, TRACESTATE, Header
from dyorc.telemetry.metrics.readings import Readings
from dyorc.telemetry.tracing.spans import Span

TRACEPARENT_NAME, TRACESTATE_NAME = TRACEPARENT.encode(), TRACESTATE.encode()
"""Of headers, encoded."""


class Tracing(Protocol):
    """Decides what is traced."""

    def begin(self, caller: TraceContext | None) -> TraceContext | None:
        """Returns the span of a request that has come, if it is to be traced."""
        ...

    def send(self, span: Span) -> None:
        """Sends a span that is not part of a request."""
        ...

    def measure(self, readings: Readings) -> None:
        """Adds what metrics show of it."""
        ...


class Traced(NamedTuple):
    """A request's place in a trace.

    Attributes:
        caller: The caller's span, if it sent one.
        span: The request's own span, if it is traced.
    """

    caller: TraceContext | None
    span: TraceContext | None


UNTRACED = Traced(None, None)


def begun(tracing: Tracing, caller: TraceContext | None) -> Traced:
    """Returns the place of a request that has come."""
    span = tracing.begin(caller)
    return UNTRACED if span is None and caller is None else Traced(caller, span)


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
