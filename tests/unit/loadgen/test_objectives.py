"""Limits for quantiles, and a search that keeps them."""

import msgspec
import pytest

from loadgen.objectives import Objective
from loadgen.results import PartsResult, RunResult
from loadgen.sweep import sweep
from loadgen.sweep_cli import probe_line, read_objectives, summary
from tests.unit.loadgen.made_results import histogram, latencies, quantiles, result


def streamed(rate_rps: float, *, first_ms: float = 5.0, between_ms: float | None = 2.0) -> RunResult:
    first = latencies(median_ms=first_ms)
    between = None if between_ms is None else latencies(median_ms=between_ms)
    parts = PartsResult(
        num_parts=4000,
        parts_per_s=400.0,
        first_part_ms=quantiles(first),
        between_parts_ms=None if between is None else quantiles(between),
        first_part_histogram=histogram(first),
        between_parts_histogram="" if between is None else histogram(between),
    )
    return msgspec.structs.replace(result(rate_rps=rate_rps), parts=parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("first_part_p99<200ms", Objective("first_part", "p99", 200)),
        (" between_parts_max < 0.5s ", Objective("between_parts", "max", 500)),
        ("latency_p999<1.5ms", Objective("latency", "p999", 1.5)),
    ],
)
def test_an_objective_is_read(text: str, expected: Objective) -> None:
    assert Objective.parse(text) == expected
    assert Objective.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text", ["", "p99<200ms", "first_part_p99<200", "first_part_p98<2ms", "tokens_p99<2ms", "latency_p99>2ms"]
)
def test_a_malformed_objective_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected TIME_QUANTILE<LIMIT"):
        Objective.parse(text)


def test_objectives_about_parts_need_a_stream() -> None:
    assert read_objectives(["latency_p99<2ms"], is_streamed=False) == [Objective("latency", "p99", 2)]
    with pytest.raises(ValueError, match="only come with --stream"):
        read_objectives(["first_part_p99<2ms"], is_streamed=False)


def test_answers_with_one_part_meet_objectives_between_parts() -> None:
    assert Objective("between_parts", "p99", 1).is_met(streamed(1, between_ms=None))
    assert not Objective("between_parts", "p99", 1).is_met(streamed(1))


def test_a_sweep_keeps_the_objectives() -> None:
    objective = Objective("first_part", "p99", 100)
    found = sweep(
        lambda rate_rps: streamed(rate_rps, first_ms=5 if rate_rps <= 300 else 500),
        start_rps=100,
        max_rps=1e6,
        objectives=[objective],
    )

    assert 300 / 1.1 <= found.highest_rps <= 300
    assert found.objectives == ["first_part_p99<100ms"]
    assert "expected first_part_p99<100ms" in found.reason
    assert "within first_part_p99<100ms" in summary(found, None)
    assert "within 25 ms, first_part_p99<100ms" in summary(found, 25)
    assert "between parts p99" in probe_line(found.probes[0])
