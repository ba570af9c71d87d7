"""Results as text."""

import pytest

from loadgen.tables import align_columns, milliseconds, percent, rate_text, run_table
from tests.unit.loadgen.made_results import branch, latencies, result


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
