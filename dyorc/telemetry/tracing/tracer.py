"""Decides which requests are traced, and makes and sends their spans on a separate thread once they have ended.

Without an endpoint in the settings, nothing is imported, made or started. `begin` and `take` are called on the event loop and
only decide and put requests aside. Spans are made a moment later: by then the answer has been written, and batches of wrong
guesses that still ran when their request ended have ended, too.
"""

import importlib
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from random import Random
from typing import NamedTuple, Protocol, Self

from dyorc.config import TelemetryConfig, TracesConfig
from dyorc.core.trace_context import TraceContext, new_trace
from dyorc.system import extras
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings
from dyorc.telemetry.record import Origin, RequestRecord
from dyorc.telemetry.tracing.destination import Destination, destination_of
from dyorc.telemetry.tracing.program_spans import ProgramSpans
from dyorc.telemetry.tracing.request_spans import spans_of
from dyorc.telemetry.tracing.spans import Span

_random = Random()
"""Not the process's own, which users' code may seed."""

_LOOK_S = 0.2
_MAX_WAIT_S = 10.0
"""So long, a request waits for batches that it does not need."""
_MAX_WAITING = 4096
"""Requests beyond that are not traced."""
_END_S = 3.0
"""Time for sending what is left at the end."""


class Export(Protocol):
    """Sends spans."""

    def send(self, spans: Iterable[Span]) -> None:
        """Sends spans soon. Must not block."""
        ...

    def report(self) -> Mapping[str, int]:
        """Returns how many spans were sent (`num_spans`), and how many were lost (`num_dropped`)."""
        ...

    def close(self, timeout_s: float) -> None:
        """Sends what is left, for at most this time."""
        ...


class Tracer:
    """Traces requests while entered (`dyorc.telemetry.record.Sink`).

    Args:
        slow_s: What takes longer is slow.

    Attributes:
        num_dropped: Requests that should have been traced, but too many waited.
    """

    def __init__(self, export: Export, config: TracesConfig, slow_s: float) -> None:
        self._export = export
        self._config = config
        self._slow_ns = round(slow_s * 1e9)
        self._waiting: deque[tuple[float, RequestRecord, TraceContext]] = deque()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="dyorc-traces", daemon=True)
        self.num_dropped = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(_END_S)
        self._export.close(_END_S)

    # On the event loop

    def begin(self, caller: TraceContext | None) -> TraceContext | None:
        """Returns the span of a request that has come, if it is to be traced: its caller decides, or else chance.

        Args:
            caller: The caller's span, if it sent one.
        """
        if caller is not None:
            return caller.new_child(is_sampled=True) if caller.is_sampled else None
        return new_trace(is_sampled=True) if _random.random() < self._config.ratio else None

    def take(self, record: RequestRecord) -> None:
        """Puts a request aside that has ended, if it is traced."""
        span = record.origin.span
        if span is None and self._is_worth_it(record):
            span = _begin_late(record.origin)
        if span is None:
            return
        record.trace_id = span.trace_id
        if len(self._waiting) < _MAX_WAITING:
            self._waiting.append((time.monotonic(), record, span))
        else:
            self.num_dropped += 1

    def send(self, span: Span) -> None:
        """Sends a span that is not part of a request."""
        self._export.send([span])

    def measure(self, readings: Readings) -> None:
        """Adds what metrics show of it."""
        report = self._export.report()
        readings.add(catalogue.SPANS_SENT, report["num_spans"])
        readings.add(catalogue.SPANS_DROPPED, report["num_dropped"])
        readings.add(catalogue.TRACES_DROPPED, self.num_dropped)

    def _is_worth_it(self, record: RequestRecord) -> bool:
        if not self._config.slow_or_failed:
            return False
        return record.outcome != "ok" or record.duration_ns > self._slow_ns

    # On the thread

    def _main(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            self._send_ended()
        self._send_ended(is_last=True)

    def _send_ended(self, *, is_last: bool = False) -> None:
        """Sends the spans of requests whose batches have ended. The others wait on."""
        now_s = time.monotonic()
        for _ in range(len(self._waiting)):
            since_s, record, span = self._waiting.popleft()
            age_s = now_s - since_s
            if is_last or age_s > _MAX_WAIT_S or (age_s > _LOOK_S and not _is_running(record)):
                self._export.send(spans_of(record, span))
            else:
                self._waiting.append((since_s, record, span))


def _begin_late(origin: Origin) -> TraceContext:
    return new_trace(is_sampled=True) if origin.trace is None else origin.trace.new_child(is_sampled=True)


def _is_running(record: RequestRecord) -> bool:
    return record.story is not None and any(batch.outcome == "running" for call in record.story.calls for batch in call.batches)


class TraceOutput(NamedTuple):
    """What a process that traces has.

    Attributes:
        destination: Where spans go, for replicas.
        tracer: Makes spans of requests.
        spans: For programs in this process.
    """

    destination: Destination
    tracer: Tracer
    spans: ProgramSpans


@contextmanager
def tracing(config: TelemetryConfig, environment: Mapping[str, str]) -> Generator[TraceOutput | None]:
    """Traces requests while entered; yields None if nothing is to be traced. At the end, sends what is left, for a few seconds.

    Args:
        environment: Where OpenTelemetry's own settings are.

    Raises:
        ConfigurationError: If the settings for traces are wrong.
        MissingLibraryError: If OpenTelemetry is not installed.
    """
    destination = destination_of(config.traces, environment)
    if destination is None:
        yield None
        return
    export = _export_to(destination)
    with Tracer(export, config.traces, config.records.slow_s) as tracer:
        yield TraceOutput(destination, tracer, ProgramSpans(lambda: export))


def _export_to(destination: Destination) -> Export:
    extras.require("traces", f"sending traces to {destination.url}")
    return importlib.import_module("dyorc.telemetry.tracing.otlp").SpanExport(destination)
