"""Which queue discipline the benchmark calls a winner."""

import argparse

import pytest

from benchmarks.focused.order import POLICIES, judge, main, mean_rows, page
from dyorc.simulation.simulate import Row


def row(policy: str, p50: float, p99: float, rate: float = 100.0, load: float = 0.8, seed: int = 1) -> Row:
    figures = {"p50_ms": p50, "p99_ms": p99, "p999_ms": 2 * p99, "throughput_rps": rate}
    return {"workload": "one", "load": load, "policy": policy, "seed": seed, **figures}


@pytest.mark.parametrize(
    ("p50", "p99", "rate", "wins"),
    [(10, 90, 100, True), (10, 100, 100, False), (11, 90, 100, False), (10, 90, 98, False), (9, 110, 100, False)],
)
def test_a_winner_has_a_shorter_p99_and_loses_neither_p50_nor_rate(p50: float, p99: float, rate: float, wins: bool) -> None:
    results = judge([row("default", 10, 100), row("other", p50, p99, rate)], "default")
    assert results["other"]["wins"] is wins
    assert results["other"]["p99_ratio"] == pytest.approx(p99 / 100)
    assert results["default"]["wins"] is False


def test_ratios_are_geometric_means_and_the_worst_is_named() -> None:
    rows = [row("a", 10, 100), row("b", 5, 100), row("a", 10, 100, load=0.95), row("b", 20, 100, load=0.95)]
    assert judge(rows, "a")["b"]["p50_ratio"] == 1
    assert judge(rows, "a")["b"]["worst_p50_ratio"] == 2


def test_seeds_are_averaged_and_every_line_is_on_the_page() -> None:
    means = mean_rows([row("a", 10, 100), row("a", 20, 300, seed=2)])
    assert [(each["p50_ms"], each["p99_ms"]) for each in means] == [(15, 200)]
    text = page(means, judge(means, "a"), argparse.Namespace(requests=4000, seeds=2))
    assert "| `one` | 0.8 | 15 / 200 / 400 |" in text


def test_it_runs_every_policy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["order", "--requests", "40", "--processes", "1", "--workload", "cascade"])
    main()
    last = capsys.readouterr().out.splitlines()[-1]
    assert all(f'"{policy}"' in last for policy in POLICIES)
