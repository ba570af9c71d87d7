"""The current span of a program's code, in a separate process: OpenTelemetry's provider is one for the process and for ever."""

import subprocess
import sys

import pytest

_BEGIN = """
import sys
from dyorc.telemetry.tracing.program_spans import ProgramSpans
from dyorc.core.trace_context import TraceContext
span = TraceContext("a" * 32, "b" * 16, is_sampled=True, state="v=1")
"""
_OWN_PROVIDER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
"""

_CASES = {
    "code that does not use OpenTelemetry runs as if nothing was traced": """
def open_export(): raise AssertionError("nobody makes spans")
with ProgramSpans(open_export) as spans:
    assert spans.run(span, lambda x: x + 1, {"x": 1}) == 2
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
""",
    "a provider that the user's code has set is used": _OWN_PROVIDER
    + """
def open_export(): raise AssertionError("there is a provider")
def program(x):
    with trace.get_tracer("mine").start_as_current_span("inner"):
        return x + 1
with ProgramSpans(open_export) as spans:
    assert spans.run(span, program, {"x": 1}) == 2
(inner,) = kept.get_finished_spans()
assert inner.name == "inner"
assert (inner.parent.trace_id, inner.parent.span_id) == (int("a" * 32, 16), int("b" * 16, 16))
assert inner.context.trace_state.to_header() == "v=1"
assert not trace.get_current_span().get_span_context().is_valid, "no span is left behind"
""",
    "a program that raises leaves no span behind": _OWN_PROVIDER
    + """
def program(): raise KeyError("x")
spans = ProgramSpans(lambda: None)
try:
    spans.run(span, program, {})
except KeyError:
    pass
else:
    raise AssertionError("the error belongs to the caller")
assert not trace.get_current_span().get_span_context().is_valid
""",
    "an exporter that cannot be made is no matter of requests": """
from opentelemetry import trace
def open_export(): raise ImportError("no exporter on this node")
spans = ProgramSpans(open_export)
with spans:
    assert spans.run(span, lambda: format(trace.get_current_span().get_span_context().span_id, "x"), {}) == "b" * 16
""",
}


@pytest.mark.parametrize("case", _CASES)
def test_program_spans(case: str) -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", _BEGIN + _CASES[case]], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
