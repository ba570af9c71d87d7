# pyright: basic
# The exporters' types are partly unknown.
"""The seam to OpenTelemetry's exporters: sends spans by OTLP. A collector that is slow or dead costs spans, and nothing else.

`SpanExport.send` and `close` may be called by any thread; threads of OpenTelemetry's own do the rest.
"""

import importlib
import logging
import os
import threading
import time
from collections.abc import Iterable
from typing import Any

import structlog
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags, TraceState
from opentelemetry.trace import SpanKind as OtlpSpanKind

from dyorc.core.trace_context import TraceContext
from dyorc.telemetry.tracing.destination import Destination
from dyorc.telemetry.tracing.spans import Span, SpanEvent, SpanKind

_log = structlog.get_logger("dyorc.traces")

MAX_UNSENT_SPANS = 16_384
"""Spans beyond that are dropped."""
_EXPORTED_AT_ONCE = 512
_DELAY_S = 1.0
"""After which spans are sent even if there are few."""
_SAY_AGAIN_S = 60.0
_KINDS = {
    SpanKind.INTERNAL: OtlpSpanKind.INTERNAL,
    SpanKind.SERVER: OtlpSpanKind.SERVER,
    SpanKind.PRODUCER: OtlpSpanKind.PRODUCER,
    SpanKind.CONSUMER: OtlpSpanKind.CONSUMER,
}
_FROM_OUTSIDE = (SpanKind.SERVER, SpanKind.CONSUMER)
_SCOPE = InstrumentationScope("dyorc")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class SpanExport:
    """Sends spans to a collector until it is closed.

    Attributes:
        resource: Who sends them.
        processor: Takes spans of OpenTelemetry's own.
    """

    def __init__(self, destination: Destination) -> None:
        self.resource = _resource()
        self._exporter = _Counted(_exporter(destination), destination.url)
        batching = BatchSpanProcessor(
            self._exporter,
            max_queue_size=2 * MAX_UNSENT_SPANS,  # never full: it would complain of each span
            schedule_delay_millis=1e3 * _DELAY_S,
            max_export_batch_size=_EXPORTED_AT_ONCE,
        )
        self.processor: SpanProcessor = _Bounded(batching, self._exporter)

    def send(self, spans: Iterable[Span]) -> None:
        """Sends spans soon."""
        offset_ns = time.time_ns() - time.monotonic_ns()
        for span in spans:
            self.processor.on_end(_readable(span, self.resource, offset_ns))

    def report(self) -> dict[str, int]:
        """Returns how many spans were sent, and how many were lost because the collector is slow, dead or refuses them."""
        return {"num_spans": self._exporter.num_sent, "num_dropped": self._exporter.num_dropped}

    def close(self, timeout_s: float) -> None:
        """Sends what is left, for at most this time."""
        closing = threading.Thread(target=self.processor.shutdown, name="dyorc-traces-end", daemon=True)
        closing.start()
        closing.join(timeout_s)
        if closing.is_alive():
            self._exporter.shutdown()  # ends the attempt that is under way


class _Bounded(SpanProcessor):
    """Drops spans for which there is no room, and counts them."""

    def __init__(self, inner: BatchSpanProcessor, exporter: "_Counted") -> None:
        self._inner = inner
        self._exporter = exporter

    def on_end(self, span: ReadableSpan) -> None:
        if self._exporter.has_room():
            self._inner.on_end(span)

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class _Counted(SpanExporter):
    """Counts the spans of an exporter, and logs now and then that it cannot send them."""

    def __init__(self, inner: SpanExporter, url: str) -> None:
        self._inner = inner
        self._url = url
        self._lock = threading.Lock()
        self._num_unsent = 0
        self._is_closed = False
        self._said_s = -_SAY_AGAIN_S
        self._complaints = _Complaints()
        self.num_sent = self.num_dropped = 0

    def has_room(self) -> bool:
        """Counts another span, if there is room for it; else counts that it is dropped."""
        with self._lock:
            if self._num_unsent >= MAX_UNSENT_SPANS:
                self.num_dropped += 1
                return False
            self._num_unsent += 1
            return True

    def export(self, spans: Any) -> SpanExportResult:
        result = self._try_export(spans)
        is_sent = result is SpanExportResult.SUCCESS
        with self._lock:
            self._num_unsent -= len(spans)
            self.num_sent += len(spans) if is_sent else 0
            self.num_dropped += 0 if is_sent else len(spans)
        if not is_sent and time.monotonic() - self._said_s > _SAY_AGAIN_S:
            self._said_s = time.monotonic()
            _log.warning("spans_not_sent", endpoint=self._url, reason=self._complaints.last, num_dropped=self.num_dropped)
        return result

    def _try_export(self, spans: Any) -> SpanExportResult:
        with self._complaints:
            try:
                return self._inner.export(spans)
            except Exception as error:
                self._complaints.last = f"{type(error).__name__}: {error}"
                return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed:
            self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class _Complaints(logging.Handler):
    """While entered, keeps what exporters log from the console: with a dead collector, they repeat it every second."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._logger = logging.getLogger("opentelemetry.exporter.otlp")
        self.last = ""

    def __enter__(self) -> None:
        self._logger.propagate = False
        self._logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def _exporter(destination: Destination) -> SpanExporter:
    wire = "grpc" if destination.is_grpc else "http"
    module = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{wire}.trace_exporter")
    return module.OTLPSpanExporter(endpoint=destination.url)


def _resource() -> Resource:
    """Returns who we are. ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` come first."""
    attributes: dict[str, Any] = {"process.pid": os.getpid()}
    resource = Resource.create(attributes)
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "dyorc"}))
    return resource


def _readable(span: Span, resource: Resource, offset_ns: int) -> ReadableSpan:
    """Returns a span as OpenTelemetry's processors take it."""
    parent = None if span.parent is None else _span_context(span.parent, is_remote=span.kind in _FROM_OUTSIDE)
    return ReadableSpan(
        name=span.name,
        context=_span_context(span.context),
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        events=[_event(happening, offset_ns) for happening in span.happenings],
        links=[Link(_span_context(linked)) for linked in span.links],
        kind=_KINDS[span.kind],
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
        start_time=span.started_ns + offset_ns,
        end_time=max(span.started_ns, span.ended_ns) + offset_ns,
        instrumentation_scope=_SCOPE,
    )


def _span_context(context: TraceContext, *, is_remote: bool = False) -> SpanContext:
    """Returns a place in a trace that is kept, as OpenTelemetry has it."""
    state = TraceState.from_header([context.state]) if context.state else None
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote, _SAMPLED, state)


def _event(happening: SpanEvent, offset_ns: int) -> Event:
    return Event(happening.name, happening.attributes, happening.at_ns + offset_ns)
