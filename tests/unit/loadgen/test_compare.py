"""Several targets in turns."""

from collections.abc import Callable

import pytest

from loadgen.compare import compare, comparison_table, spread
from loadgen.compare_cli import named_targets
from loadgen.results import RunResult
from tests.unit.loadgen.made_results import result


def target(label: str, rates: list[float], order: list[str], **more: object) -> Callable[[int], RunResult]:
    def measure(number: int) -> RunResult:
        order.append(f"{label}{number}")
        return result(label, rate_rps=rates[number], seed=number, **more)

    return measure


def test_targets_take_turns() -> None:
    order: list[str] = []
    shown: list[RunResult] = []

    found = compare({"a": target("a", [1, 2], order), "b": target("b", [3, 4], order)}, num_rounds=2, show=shown.append)

    assert order == ["a0", "b0", "a1", "b1"]
    assert found.runs == shown
    assert [run.label for run in shown] == ["a", "b", "a", "b"]


def test_medians_spreads_and_ratios() -> None:
    found = compare({"a": target("a", [100, 10_000, 110], []), "b": target("b", [220, 200, 330], [])})

    a, b = found.figures["a"]["throughput_rps"], found.figures["b"]["throughput_rps"]
    assert (a.median, a.spread, a.ratio) == (110, 99, 1)
    assert (b.median, b.spread, b.ratio) == (220, pytest.approx(0.65), 2)
    slower = compare({"a": target("a", [1], [], median_ms=4), "b": target("b", [1], [], median_ms=12)}, num_rounds=1)
    assert slower.figures["b"]["p99_ms"].ratio == pytest.approx(3)


def test_there_is_no_spread_or_ratio_to_zero() -> None:
    found = compare({"a": target("a", [0, 0], []), "b": target("b", [0, 5], [])}, num_rounds=2)

    assert found.figures["a"]["throughput_rps"].spread == 0
    assert found.figures["b"]["throughput_rps"].spread is None
    assert found.figures["b"]["throughput_rps"].ratio is None
    assert spread([2, 3]) == pytest.approx(0.5)
    assert "b" in comparison_table(found)


def test_the_table_has_errors_and_warnings() -> None:
    found = compare(
        {"a": target("a", [9, 9], [], failed=4), "b": target("b", [9, 9], [], wrong=3, client_warning="busy")}, num_rounds=2
    )

    _, a, b, *below = comparison_table(found).splitlines()
    assert a.split()[-2:] == ["8", "0"]
    assert b.split()[-2:] == ["0", "6"]
    assert below == ["warning: b: busy"]


def test_one_target_is_no_comparison() -> None:
    with pytest.raises(ValueError, match="at least two"):
        compare({"a": target("a", [1], [])})


def test_targets_are_named_by_labels() -> None:
    found = named_targets(["a=http://h:1#m", "b=grpc://h:2#x/y", "c=http://h:3/?q=1#m", "d=grpcs://h:4#m"])

    assert found == {
        "a": ("http://h:1", "m", ""),
        "b": ("grpc://h:2", "x/y", "grpc"),
        "c": ("http://h:3/?q=1", "m", ""),
        "d": ("grpcs://h:4", "m", "grpc"),
    }


@pytest.mark.parametrize(
    "targets",
    [["a=http://h:1#m"], ["a=http://h:1#m", "a=http://h:2#m"], ["http://h:1#m", "b=http://h#m"], ["a=http://h", "b=http://h#m"]],
)
def test_malformed_targets_are_refused(targets: list[str]) -> None:
    with pytest.raises(ValueError, match="expected"):
        named_targets(targets)
