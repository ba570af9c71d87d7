"""Results as text."""

import pytest

from loadgen.report.page import page
from loadgen.results import ServerFigures, Tail, TailStage
from loadgen.tables import align_columns, milliseconds, percent, rate_text, run_table, tail_text
from tests.unit.loadgen.made_results import branch, latencies, result
from tests.unit.loadgen.pages import Page


def test_each_result_and_branch_has_a_row() -> None:
    values = latencies(500, median_ms=40)
    found = result(
        "mine", failed=3, wrong=2, errors={"HTTP 503: busy": 3}, branches={"large": branch(values)}, client_warning="late"
    )

    head, row, below, *remarks = run_table([found]).splitlines()

    named = ["rate", "p50 ms", "p90 ms", "p99 ms", "max ms", "goodput %", "req/s", "errors", "wrong", "unanswered"]
    assert " ".join(head.split()) == " ".join(named)
    latency = found.latency_ms
    shown = [milliseconds(value) for value in (latency.p50, latency.p90, latency.p99, latency.max)]
    assert row.split() == ["mine", "200/s", *shown, "100.0", "200.0", "3", "2", "0"]
    assert below.startswith("  large (500)")
    assert milliseconds(branch(values).latency_ms.p99) in below
    assert remarks == ["mine: 3 x HTTP 503: busy", "warning: mine: late"]


def test_columns_are_aligned() -> None:
    assert align_columns([("", "x"), ("name", "1"), ("n", "1,000")]) == "          x\nname      1\nn     1,000"


@pytest.mark.parametrize(("ratio", "text"), [(1, "100.0"), (0.99999, "99.9"), (0.9994, "99.9"), (0.5, "50.0"), (0, "0.0")])
def test_nearly_all_is_not_shown_as_all(ratio: float, text: str) -> None:
    assert percent(ratio) == text


@pytest.mark.parametrize(
    ("load", "text"),
    [
        ({}, "200/s"),
        ({"arrivals": "closed", "num_clients": 8}, "8 clients"),
        ({"arrivals": "ramp", "start_rps": 50.0}, "50–200/s"),
        ({"arrivals": "trace"}, "200/s"),
        ({"arrivals": "trace", "rate_rps": 0.0}, "trace, 200/s"),
        ({"rate_rps": 9050.97}, "9,051/s"),
        ({"rate_rps": 12800.0}, "12,800/s"),
        ({"rate_rps": 0.25}, "0.25/s"),
    ],
)
def test_loads_are_described_in_words(load: dict[str, object], text: str) -> None:
    found = result()
    assert (
        rate_text(type(found)(**({name: getattr(found, name) for name in found.__struct_fields__} | {"load": found.load | load})))
        == text
    )


def tail(num_requests: int, num_slowest: int = 1, *, slowest_ms: float = 9.0) -> Tail:
    stages = [TailStage(stage="compute", slowest_ms=slowest_ms, typical_ms=2.0, num_caused=1)]
    return Tail(num_requests=num_requests, num_slowest=num_slowest, from_ms=12.0, stages=stages if num_slowest else [])


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        (ServerFigures(tail=tail(21)), "the slowest 1 of 21 recorded, from 12.0 ms: compute 9.00 ms, typically 2.00"),
        (ServerFigures(tail=tail(0, 0)), "no tail: the server remembers no request of the measured time"),
        (ServerFigures(tail=tail(3)), "no tail: the server remembers 3 requests of the measured time, too few to compare"),
        (
            ServerFigures(tail=tail(21, slowest_ms=2.0)),
            "no tail: the slowest 1 of 21 recorded, from 12.0 ms, took no longer than typical ones in any stage",
        ),
        (ServerFigures(no_tail="it is asked for only over HTTP"), "no tail: it is asked for only over HTTP"),
        (ServerFigures(), ""),
    ],
    ids=["a tail", "nothing recorded", "too few", "no excess", "not asked", "no server"],
)
def test_one_line_says_where_the_tail_comes_from_or_why_there_is_none(figures: ServerFigures, text: str) -> None:
    assert tail_text(figures) == text
    *_, last = run_table([result(server=figures)]).splitlines()
    assert last.endswith(f"dyorc: {text}") is bool(text)
    read = Page(page([result(server=figures)])).text
    assert ("Where the slowest requests" in read) is bool(text)
    assert ("dyorc: no tail: " in read) is text.startswith("no tail")
