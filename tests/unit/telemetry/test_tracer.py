"""Which requests are traced, and when their spans are sent."""

import threading
from collections.abc import Iterable

import pytest

from dyorc.config import TracesConfig
from dyorc.core.trace_context import TraceContext
from dyorc.errors import ConfigurationError
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings
from dyorc.telemetry.tracing.destination import Destination, destination_of
from dyorc.telemetry.tracing.spans import Span
from dyorc.telemetry.tracing.tracer import Tracer
from tests.unit.telemetry.recorded import MS, batch_of, call_in, record_of

CALLER = TraceContext("a" * 32, "b" * 16, is_sampled=True, state="v=1")


class Kept:
    """Keeps spans instead of sending them."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.has_come = threading.Event()

    def send(self, spans: Iterable[Span]) -> None:
        self.spans.extend(spans)
        self.has_come.set()

    def report(self) -> dict[str, int]:
        return {"num_spans": len(self.spans), "num_dropped": 3}

    def close(self, timeout_s: float) -> None:
        pass

    def roots(self) -> list[Span]:
        return [span for span in self.spans if span.name == "infer classify"]


def tracer_of(kept: Kept, ratio: float = 0.0, *, slow_or_failed: bool = True, slow_s: float = 1.0) -> Tracer:
    return Tracer(kept, TracesConfig(ratio=ratio, slow_or_failed=slow_or_failed), slow_s)


def test_a_caller_decides_for_its_requests() -> None:
    always, never = tracer_of(Kept(), ratio=1.0), tracer_of(Kept(), ratio=0.0)
    span = never.begin(CALLER)
    assert span is not None
    assert (span.trace_id, span.state, span.is_sampled) == (CALLER.trace_id, "v=1", True)
    assert span.span_id != CALLER.span_id
    assert always.begin(TraceContext("a" * 32, "b" * 16)) is None


def test_chance_decides_for_others() -> None:
    tracer = tracer_of(Kept(), ratio=0.25)
    num_traced = sum(tracer.begin(None) is not None for _ in range(4000))
    assert 800 < num_traced < 1200
    assert tracer_of(Kept(), ratio=1.0).begin(None) is not None


def test_a_traced_request_is_sent_with_its_own_span() -> None:
    kept = Kept()
    with tracer_of(kept, ratio=1.0) as tracer:
        record = record_of(call_in(batch_of(1)), span=tracer.begin(CALLER), caller=CALLER)
        tracer.take(record)
        assert kept.has_come.wait(30)
    (root,) = kept.roots()
    assert (root.context, root.parent) == (record.origin.span, CALLER)
    assert record.trace_id == CALLER.trace_id


@pytest.mark.parametrize(("outcome", "slow_s"), [("deadline", 1.0), ("ok", 0.01)])
def test_a_slow_or_failed_request_is_traced_although_chance_was_against_it(outcome: str, slow_s: float) -> None:
    kept = Kept()
    with tracer_of(kept, slow_s=slow_s) as tracer:
        record = record_of(call_in(batch_of(1)), outcome=outcome)
        tracer.take(record)
    (root,) = kept.roots()
    assert (root.context.trace_id, root.parent) == (record.trace_id, None)
    assert root.context.is_sampled


def test_a_failed_request_joins_the_trace_of_a_caller_that_does_not_keep_it() -> None:
    kept = Kept()
    caller = TraceContext("a" * 32, "b" * 16)
    with tracer_of(kept) as tracer:
        assert tracer.begin(caller) is None
        tracer.take(record_of(caller=caller, outcome="deadline"))
    (root,) = kept.roots()
    assert (root.parent, root.context.trace_id) == (caller, caller.trace_id)


def test_a_request_that_was_refused_is_traced() -> None:
    kept = Kept()
    with tracer_of(kept) as tracer:
        refused = record_of(outcome="capacity", caller=CALLER)
        refused.story = None
        tracer.take(refused)
    (root,) = kept.roots()
    assert (root.attributes["dyorc.outcome"], root.error, root.parent) == ("capacity", "it broke", CALLER)


def test_other_requests_are_not_traced() -> None:
    kept = Kept()
    with tracer_of(kept) as tracer:
        usual = record_of(call_in(batch_of(1)))
        tracer.take(usual)
    with tracer_of(kept, slow_or_failed=False) as tracer:
        tracer.take(record_of(outcome="deadline"))
    assert not kept.spans
    assert usual.trace_id == ""


def test_what_is_lost_is_counted_in_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dyorc.telemetry.tracing.tracer._MAX_WAITING", 1)
    tracer, readings = tracer_of(Kept(), ratio=1.0), Readings()
    for number in range(3):
        tracer.take(record_of(number=number, span=tracer.begin(None)))
    with tracer:
        pass  # makes the spans of the one that waits
    tracer.measure(readings)
    dropped = [readings.of(metric)[()] for metric in (catalogue.TRACES_DROPPED, catalogue.SPANS_DROPPED)]
    assert dropped == [2, 3]
    assert readings.of(catalogue.SPANS_SENT)[()] == 2, "the request, and how it was read"


def test_a_request_waits_for_the_batch_of_its_wrong_guess() -> None:
    kept = Kept()
    running = batch_of(1, outcome="running")
    with tracer_of(kept, ratio=1.0) as tracer:
        tracer.take(record_of(call_in(running, outcome="squashed"), number=1, span=tracer.begin(None)))
        tracer.take(record_of(number=2, span=tracer.begin(None)))
        assert kept.has_come.wait(30)
        assert [span.attributes["dyorc.request_id"] for span in kept.roots()] == ["r2"], "the other still runs"
        kept.has_come.clear()
        running.ended_ns, running.outcome = 900 * MS, "done"
        assert kept.has_come.wait(30)
    (batch,) = [span for span in kept.spans if span.name == "batch small"]
    assert batch.ended_ns == 900 * MS


def test_without_an_endpoint_there_is_no_destination() -> None:
    assert destination_of(TracesConfig(), {}) is None
    assert destination_of(TracesConfig(endpoint="http://h:4317"), {"OTEL_SDK_DISABLED": "true"}) is None


@pytest.mark.parametrize(
    ("config", "environment", "expected"),
    [
        ({"endpoint": "http://h:4317"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:1"}, Destination("http://h:4317")),
        ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4317"}, Destination("http://h:4317")),
        (
            {},
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318/", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            Destination("http://h:4318/v1/traces", is_grpc=False),
        ),
        (
            {"endpoint": "http://h/v1/traces", "protocol": "http/protobuf"},
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            Destination("http://h/v1/traces", is_grpc=False),
        ),
    ],
)
def test_settings_come_before_the_environment(config: dict[str, str], environment: dict[str, str], expected: Destination) -> None:
    assert destination_of(TracesConfig.model_validate(config), environment) == expected


def test_what_cannot_be_an_endpoint_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'h:4317', expected a URL"):
        destination_of(TracesConfig(endpoint="h:4317"), {})
    with pytest.raises(ConfigurationError, match="'http/json', expected one of"):
        destination_of(TracesConfig(endpoint="http://h:4317"), {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})
