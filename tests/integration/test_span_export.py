"""Spans reach a collector by OTLP, over gRPC and HTTP; one that is dead costs spans, and nothing else."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from structlog.testing import capture_logs

from dyorc.config import TelemetryConfig, TracesConfig
from dyorc.core.trace_context import TraceContext, new_trace
from dyorc.errors import ConfigurationError
from dyorc.telemetry.tracing import otlp
from dyorc.telemetry.tracing.destination import Destination
from dyorc.telemetry.tracing.otlp import SpanExport
from dyorc.telemetry.tracing.request_spans import spans_of
from dyorc.telemetry.tracing.spans import Span, SpanKind
from dyorc.telemetry.tracing.tracer import tracing
from tests.collector import Collector, collecting_by_grpc, collecting_by_http
from tests.unit.telemetry.recorded import batch_of, call_in, record_of

CALLER = TraceContext("a" * 32, "b" * 16, is_sampled=True)


@pytest.mark.parametrize(
    ("collecting", "is_grpc", "path"), [(collecting_by_grpc, True, ""), (collecting_by_http, False, "/v1/traces")]
)
def test_spans_arrive_as_they_are(
    collecting: Callable[[], AbstractContextManager[Collector]], is_grpc: bool, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    with collecting() as collector:
        export = SpanExport(Destination(collector.url + path, is_grpc))
        root = CALLER.new_child(is_sampled=True)
        batch = batch_of(1, 2)
        other = new_trace(is_sampled=True)
        call = call_in(batch)
        record = record_of(call, span=root, caller=CALLER, outcome="deadline")
        before_ns = time.time_ns() - time.monotonic_ns()
        spans = spans_of(record, root)
        batch.spans = (*batch.spans, other)
        export.send(spans_of(record, root))
        export.close(30)
        assert export.report() == {"num_spans": len(spans), "num_dropped": 0}
    found = {span.name: span for span in collector.spans}
    request, call_span, shown = found["infer classify"], found["call small"], found["batch small"]
    assert (request.trace_id, request.span_id, request.parent_id) == (root.trace_id, root.span_id, CALLER.span_id)
    assert request.kind == 2, "SERVER"
    assert request.is_error
    assert abs(request.started_ns - record.arrived_ns - before_ns) < 1e9
    assert request.ended_ns - request.started_ns == record.duration_ns
    assert request.attributes["dyorc.workflow"] == "classify"
    assert request.service["service.name"] == "shop"
    assert request.service["deployment.environment"] == "test"
    assert shown.parent_id == call_span.span_id
    assert shown.links == [(other.trace_id, other.span_id)]
    assert call_span.events == ["inputs are there"]


def test_a_dead_collector_neither_blocks_nor_fills_the_memory() -> None:
    with socket.socket() as deaf, capture_logs() as logs:
        deaf.bind(("127.0.0.1", 0))
        export = SpanExport(Destination(f"http://127.0.0.1:{deaf.getsockname()[1]}"))
        began_s = time.monotonic()
        num_spans = 2 * otlp.MAX_UNSENT_SPANS
        export.send(_plain() for _ in range(num_spans))
        sent_s = time.monotonic()
        export.close(0.2)
        assert time.monotonic() - sent_s < 10, "closing is bounded, however long the exporter would try"
        report = export.report()
    assert report["num_spans"] == 0
    assert report["num_dropped"] >= otlp.MAX_UNSENT_SPANS
    assert sent_s - began_s < 30, "sending waits for nobody"
    assert len([entry for entry in logs if entry["event"] == "spans_not_sent"]) <= 1, "it is said now and then, not each time"


def test_tracing_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    config = TelemetryConfig(traces=TracesConfig(endpoint="http://127.0.0.1:4317"))
    with pytest.raises(ConfigurationError, match=r"pip install 'dyorc-core\[traces\]'"), tracing(config, {}):
        pass


def test_without_an_endpoint_nothing_is_imported() -> None:
    """But for OpenTelemetry's interface, which FastAPI imports if it is there."""
    code = (
        "import sys, dyorc.cells.orchestrator_cell, dyorc.gateway.http.app; from dyorc.config import TelemetryConfig;"
        "from dyorc.telemetry.tracing.tracer import tracing\n"
        "with tracing(TelemetryConfig(), {}) as found: assert found is None\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def _plain() -> Span:
    now_ns = time.monotonic_ns()
    return Span(
        name="s", context=new_trace(is_sampled=True), parent=None, started_ns=now_ns, ended_ns=now_ns, kind=SpanKind.INTERNAL
    )
