"""Places in traces: headers are read as the standard says, and spans below a span have ids of their own, always the same."""

import pytest

from dyorc.core.trace_context import TraceContext, new_trace, read_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_header_is_read_and_written() -> None:
    context = read_traceparent(f"00-{TRACE}-{SPAN}-01", "vendor=1")
    assert context == TraceContext(TRACE, SPAN, is_sampled=True, state="vendor=1")
    assert context.traceparent == f"00-{TRACE}-{SPAN}-01"
    assert not TraceContext(TRACE, SPAN).traceparent.endswith("1")


def test_flags_besides_sampled_and_later_versions_are_understood() -> None:
    assert read_traceparent(f"00-{TRACE}-{SPAN}-02") == TraceContext(TRACE, SPAN)
    assert read_traceparent(f"cc-{TRACE}-{SPAN}-03-what-comes") == TraceContext(TRACE, SPAN, is_sampled=True)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "garbage",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-0x",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 1000}",
    ],
)
def test_malformed_header_starts_a_new_trace(header: str) -> None:
    assert read_traceparent(header) is None


def test_unusable_state_is_dropped_alone() -> None:
    assert read_traceparent(f"00-{TRACE}-{SPAN}-01", "x" * 1000) == TraceContext(TRACE, SPAN, is_sampled=True)
    assert read_traceparent(f"00-{TRACE}-{SPAN}-01", "a=1\n") == TraceContext(TRACE, SPAN, is_sampled=True)


def test_children_are_known_in_advance() -> None:
    root = new_trace(is_sampled=True)
    assert root.child("call 1") == root.child("call 1")
    assert root.child("call 1").trace_id == root.trace_id
    ids = {root.child(f"call {at}").child(f"batch {other}").span_id for at in range(40) for other in range(40)}
    assert len(ids) == 1600


def test_requests_of_one_trace_have_spans_of_their_own() -> None:
    caller = TraceContext(TRACE, SPAN, is_sampled=False, state="v=1")
    first, second = (caller.new_child(is_sampled=True) for _ in range(2))
    assert first.span_id != second.span_id
    assert (first.trace_id, first.is_sampled, first.state) == (TRACE, True, "v=1")
