"""Spans as this server makes them: plain values, whole from the start. `otlp.py` hands them to OpenTelemetry."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeAlias

import msgspec

from dyorc.core.trace_context import TraceContext

Value: TypeAlias = str | int | float | bool | Sequence[str]
Attributes: TypeAlias = Mapping[str, Value]


class SpanKind(Enum):
    """What a span is to others."""

    INTERNAL = "internal"
    SERVER = "server"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class SpanEvent(msgspec.Struct, frozen=True):
    """A moment within a span, in nanoseconds of the monotonic clock."""

    name: str
    at_ns: int
    attributes: Attributes = {}


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A span that has ended. Times are of the monotonic clock, in nanoseconds.

    Attributes:
        parent: The span above it; None if it is the first of its trace.
        links: Spans that it belongs to in another way.
        error: Why it failed; empty if it did not.
    """

    name: str
    context: TraceContext
    parent: TraceContext | None
    started_ns: int
    ended_ns: int
    kind: SpanKind = SpanKind.INTERNAL
    attributes: Attributes = {}
    happenings: Sequence[SpanEvent] = ()
    links: Sequence[TraceContext] = ()
    error: str = ""
