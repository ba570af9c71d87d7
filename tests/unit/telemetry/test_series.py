"""The recent past is kept in rings of fixed size: by second, then by minute."""

import math

import pytest

from dyorc.engine.estimators import LATENCY_BOUNDS_NS, Histogram
from dyorc.telemetry.levels import Levels, ProgramLevels, WorkflowLevels, sum_of
from dyorc.telemetry.series import NUM_SECONDS, History, Ring, Series, SeriesWindow

_NOW_S = 1_800_000_000
"""A whole minute."""


def counts_of(took_ns: int, number: int) -> list[int]:
    """Returns the histogram of requests that all took so long."""
    histogram = Histogram(LATENCY_BOUNDS_NS)
    histogram.add(took_ns, number)
    return histogram.counts


def test_a_ring_keeps_the_latest_rows_and_says_where_one_is_missing() -> None:
    ring = Ring(width=1, length=4)
    for step in (10, 11, 13):
        ring.put(step, [float(step)])

    (column,) = ring.columns(4)

    assert column[0] == 10
    assert column[1] == 11
    assert math.isnan(column[2])
    assert column[3] == 13
    assert ring.means(4) == [(10 + 11 + 13) / 3]


def test_a_ring_forgets_everything_after_a_long_gap() -> None:
    ring = Ring(width=2, length=3)
    ring.put(1, [1, 1])
    ring.put(1000, [2, 3])

    assert [[value for value in column if not math.isnan(value)] for column in ring.columns(3)] == [[2], [3]]


def test_a_clock_that_is_set_back_harms_nothing() -> None:
    ring = Ring(width=1, length=3)
    ring.put(100, [1])
    ring.put(50, [2])
    ring.put(51, [3])

    (column,) = ring.columns(2)
    assert column == [2, 3]
    assert ring.last == 51


def test_what_is_gone_is_forgotten_after_a_while_unless_nothing_is_there_at_all() -> None:
    history, program = History(), ProgramLevels()
    history.sample(Levels(programs={"p": program, "p@1": program}, workflows={"w@1": WorkflowLevels()}), _NOW_S, 10**9)
    history.sample(Levels(programs={"p": program}, workflows={}), _NOW_S + NUM_SECONDS, 2 * 10**9)
    assert (list(history.programs), list(history.workflows), list(history.latencies)) == (["p", "p@1"], ["w@1"], ["w@1"])
    history.sample(Levels(programs={"p": program}, workflows={}), _NOW_S + NUM_SECONDS + 1, 3 * 10**9)
    assert (list(history.programs), list(history.workflows), list(history.latencies)) == (["p"], [], [])
    history.sample(Levels(programs={}, workflows={}), _NOW_S + 9 * NUM_SECONDS, 4 * 10**9)
    assert list(history.programs) == ["p"]


def test_minutes_are_the_means_of_their_seconds() -> None:
    series = Series(["rate"])
    for second in range(150):
        series.put(_NOW_S + second, [second])

    seconds, minutes = series.span(NUM_SECONDS), series.span(86_400)

    assert seconds.step_s == 1
    assert seconds.values["rate"][-150:] == [float(second) for second in range(150)]
    assert seconds.from_s + len(seconds.values["rate"]) - 1 == _NOW_S + 149
    assert minutes.step_s == 60
    assert minutes.values["rate"][-2:] == [sum(range(60)) / 60, sum(range(60, 120)) / 60]
    assert minutes.from_s + 60 * len(minutes.values["rate"]) == _NOW_S + 120


def test_the_pasts_of_two_processes_are_added_at_the_same_times() -> None:
    one = SeriesWindow(from_s=100, step_s=1, values={"rate": [1, 2, 3]})
    other = SeriesWindow(from_s=101, step_s=1, values={"rate": [10, None, 30]})

    assert one.plus(other) == SeriesWindow(from_s=101, step_s=1, values={"rate": [12, 3, 30]})
    assert other.plus(one) == one.plus(other)


def test_rates_are_what_was_counted_between_samples() -> None:
    history = History()
    for second in range(4):
        levels = Levels(
            programs={"large": ProgramLevels(num_calls=100 + 30 * second, num_queued=second)},
            workflows={"classify": WorkflowLevels(num_ended=10 * second, num_failed=second)},
        )
        history.sample(levels, _NOW_S + second, (1 + 2 * second) * 10**9)  # the monotonic clock says that 2 s have passed

    span = history.programs["large"].span(4)

    assert span.values["calls_per_s"] == [0, 15, 15, 15]
    assert span.values["num_queued"] == [0, 1, 2, 3]
    assert span.values["forecast_per_s"] == [None] * 4
    assert history.workflows["classify"].span(3).values["requests_per_s"] == [5, 5, 5]
    assert history.workflows["classify"].span(3).values["failed_per_s"] == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("seconds", "times_s", "expected"),
    [
        pytest.param((0, 1, 1, 2), (1.0, 2.0, 2.6, 3.0), [0, 10, 10], id="twice in a second, since the clock was set back"),
        pytest.param((0, 1, 1, 2), (1.0, 2.0, 2.001, 3.0), [0, 10, 10], id="twice in a second, since a timer was early"),
        pytest.param((0, 1, 2, 3), (1.0, 2.9, 3.0, 4.0), [0, 10, None, 10], id="late, and soon after that"),
    ],
)
def test_every_request_is_in_one_row(seconds: list[int], times_s: list[float], expected: list[float | None]) -> None:
    """Ten requests a second come, and few of them in the time between two samples that are close together."""
    history = History()
    for second, time_s in zip(seconds, times_s, strict=True):
        levels = Levels(
            programs={"p": ProgramLevels(num_calls=round(20 * time_s))},
            workflows={"w": WorkflowLevels(num_ended=round(10 * time_s))},
        )
        history.sample(levels, _NOW_S + second, round(time_s * 1e9))

    num_rows = len(expected)
    assert history.workflows["w"].span(num_rows).values["requests_per_s"] == [approximately(value) for value in expected]
    calls = [None if value is None else 2 * value for value in expected]
    assert history.programs["p"].span(num_rows).values["calls_per_s"] == [approximately(value) for value in calls]


def approximately(value: float | None) -> object:
    return None if value is None else pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize("took_ms", [0.03, 0.3, 1.7, 62, 99, 1240, 45_000, 400_000])
def test_quantiles_are_right_to_five_percent(took_ms: float) -> None:
    history = History()
    latency = counts_of(round(took_ms * 1e6), 1000)
    history.sample(Levels(workflows={"w": WorkflowLevels(num_ended=1000, latency=latency)}), _NOW_S, 10**9)

    values = history.workflows["w"].span(1).values
    assert (values["p50_ms"], values["p99_ms"]) == ([pytest.approx(took_ms, rel=0.05)], [pytest.approx(took_ms, rel=0.05)])


def test_counts_that_begin_again_are_counted_from_zero() -> None:
    history = History()
    latency = counts_of(8_000_000, 40)
    afterwards = [count // 8 for count in latency]
    for second, (num_ended, counts) in enumerate([(40, latency), (5, afterwards)]):  # another process leads
        levels = Levels(workflows={"w": WorkflowLevels(num_ended=num_ended, latency=counts)})
        history.sample(levels, _NOW_S + second, (1 + second) * 10**9)

    assert history.workflows["w"].span(1).values["requests_per_s"] == [5]
    assert history.workflows["w"].span(1).values["p50_ms"] == [pytest.approx(8, rel=0.05)]
    assert history.latencies["w"] == afterwards


def test_rates_of_now_are_those_of_the_last_seconds() -> None:
    history = History()
    for second in range(20):
        num_calls = 1000 if second >= 15 else 0
        history.sample(Levels(programs={"p": ProgramLevels(num_calls=num_calls)}), _NOW_S + second, (1 + second) * 10**9)

    assert history.rates()["programs"]["p"]["calls_per_s"] == 200


def test_what_has_left_has_no_rates_of_now() -> None:
    history = History()
    double = ProgramLevels()
    for second in range(3):
        ended = WorkflowLevels(num_ended=10 * second)
        history.sample(Levels(programs={"double": double}, workflows={"flow": ended}), second, 10**9 * (second + 1))
    assert history.rates()["workflows"]["flow"]["requests_per_s"] > 0
    newer = WorkflowLevels(num_ended=4)
    history.sample(Levels(programs={"double@2": double}, workflows={"flow@2": newer}), 3, 4 * 10**9)
    rates = history.rates()
    assert (set(rates["programs"]), set(rates["workflows"])) == ({"double@2"}, {"flow@2"}), "those of the version that left"


def test_a_workflow_that_is_new_since_the_last_sample_counts_from_zero() -> None:
    history = History()
    history.sample(Levels(), _NOW_S, 10**9)
    history.sample(Levels(workflows={"w": WorkflowLevels(num_ended=7)}), _NOW_S + 1, 2 * 10**9)

    assert history.workflows["w"].span(1).values["requests_per_s"] == [7]


def test_levels_of_processes_add_up() -> None:
    one = Levels(
        programs={"p": ProgramLevels(num_queued=1, forecast_per_s=2.0, reason="busy", fit=(0.1, 0.2))}, link={"num_sent": 3}
    )
    other = Levels(
        programs={"p": ProgramLevels(num_queued=4, num_running=5), "q": ProgramLevels()},
        workflows={"w": WorkflowLevels(in_flight=6)},
        link={"num_sent": 7},
    )

    together = sum_of([one, other])

    assert together.programs["p"] == ProgramLevels(num_queued=5, num_running=5, forecast_per_s=2.0, reason="busy", fit=(0.1, 0.2))
    assert set(together.programs) == {"p", "q"}
    assert together.workflows["w"].in_flight == 6
    assert together.link == {"num_sent": 10}


def test_latencies_are_those_of_the_last_seconds() -> None:
    history = History()
    counts = counts_of(8_000_000, 7)
    history.sample(Levels(workflows={"w": WorkflowLevels(num_ended=7, latency=counts)}), _NOW_S, 10**9)

    values = history.workflows["w"].span(1).values

    assert values["p50_ms"] == [pytest.approx(8, rel=0.05)]
    assert values["p99_ms"] == [pytest.approx(8, rel=0.05)]
    assert history.latencies["w"] == counts


def test_of_the_latencies_of_two_processes_the_larger_counts() -> None:
    one = SeriesWindow(from_s=100, step_s=1, values={"p99_ms": [1, None]})
    other = SeriesWindow(from_s=100, step_s=1, values={"p99_ms": [3, 4]})

    assert one.plus(other).values == {"p99_ms": [3, 4]}
