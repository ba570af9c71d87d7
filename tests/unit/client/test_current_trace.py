"""The client passes the current span on, if its process has one, and imports nothing if not."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace

from dyorc.client.http import ServerEndpoint
from dyorc.protocol.inference_request import PreparedRequest

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
_CONNECTION = ServerEndpoint.to("http://127.0.0.1:1", None, 1000)


@pytest.fixture
def current_span() -> Iterator[None]:
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    context = trace.SpanContext(int(TRACE_ID, 16), int(SPAN_ID, 16), False, flags)
    with trace.use_span(trace.NonRecordingSpan(context)):
        yield


def test_a_request_carries_the_current_span(current_span: None) -> None:
    assert _sent()["traceparent"] == f"00-{TRACE_ID}-{SPAN_ID}-01"


def test_without_a_current_span_nothing_is_added() -> None:
    assert "traceparent" not in _sent()


def test_a_process_without_opentelemetry_does_not_import_it() -> None:
    code = (
        "import sys; from dyorc.client.http import current_trace; assert current_trace() == [];"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _sent() -> dict[str, str]:
    return dict(_CONNECTION.request(PreparedRequest("GET", "/v2"), {}).headers)
