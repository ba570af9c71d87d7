# pyright: basic
# OpenTelemetry's types are partly unknown.
"""The current span of the users' code: the second seam to OpenTelemetry, in every process that runs programs.

A program's code that makes spans finds that of its batch as the current one. Code that does not use OpenTelemetry has not
imported it; then nothing is imported here, either. What it uses is OpenTelemetry's provider, one for the process: ours, unless
the user's code has set another.
"""

import sys
import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

import structlog

from dyorc.core.trace_context import TraceContext
from dyorc.telemetry.tracing.destination import Destination

_log = structlog.get_logger("dyorc.traces")

T = TypeVar("T")

_API = "opentelemetry.trace"
_END_S = 1.0


class ProgramSpans:
    """The destination of the spans of this process's programs. Enter it if it makes its own export, to send the rest at the end.

    Args:
        open_export: Returns a `SpanExport`. Called once, before the first span is made.
    """

    def __init__(self, open_export: Callable[[], Any]) -> None:
        self._open = open_export
        self._lock = threading.Lock()
        self._is_ready = False
        self._export: Any = None

    @classmethod
    def to(cls, destination: Destination) -> "ProgramSpans":
        """Sends them to a collector."""

        def open_export() -> Any:
            from dyorc.telemetry.tracing.otlp import SpanExport

            return SpanExport(destination)

        return cls(open_export)

    def __enter__(self) -> Self:
        """Imports what it needs, before any request waits for that, if the users' code uses OpenTelemetry."""
        if _API in sys.modules:
            self._get_ready()
        return self

    def __exit__(self, *_: object) -> None:
        if self._export is not None:
            self._export.close(_END_S)

    def run(self, span: TraceContext, function: Callable[..., T], arguments: dict[str, Any]) -> T:
        """Calls a function with its batch's span as the current one. Any thread."""
        if _API not in sys.modules:
            return function(**arguments)
        if not self._is_ready:
            self._get_ready()
        from opentelemetry import context

        token = context.attach(_context_of(span))
        try:
            return function(**arguments)
        finally:
            context.detach(token)

    def enter(self, span: TraceContext) -> None:
        """Makes a batch's span the current one in the present context, which is the batch's own. Any thread."""
        if _API not in sys.modules:
            return
        if not self._is_ready:
            self._get_ready()
        from opentelemetry import context

        context.attach(_context_of(span))

    def _get_ready(self) -> None:
        """Sets the process's provider, unless the user's code has set one. Errors are only logged: requests go on."""
        with self._lock:
            if self._is_ready:
                return
            try:
                self._provide()
            except Exception as error:
                _log.warning("program_spans_lost", error=f"{type(error).__name__}: {error}")
            self._is_ready = True

    def _provide(self) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            export = self._export = self._open()
            provider = TracerProvider(ParentBased(ALWAYS_OFF), export.resource, shutdown_on_exit=False)
            provider.add_span_processor(export.processor)
            trace.set_tracer_provider(provider)


def _context_of(span: TraceContext) -> Any:
    """Returns OpenTelemetry's context in which a span of another process is the current one."""
    from opentelemetry import trace

    state = trace.TraceState.from_header([span.state]) if span.state else None
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    context = trace.SpanContext(int(span.trace_id, 16), int(span.span_id, 16), True, flags, state)
    return trace.set_span_in_context(trace.NonRecordingSpan(context))
