"""Drawn traces are reproducible, have the rate asked for, and change as their kind says."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dyorc.traffic.request_traces import TracedRequest, read_trace
from loadgen.cli import app
from loadgen.traces import TraceKind, TracePlan, draw_trace


@pytest.mark.parametrize("kind", TraceKind)
def test_traces_are_reproducible_and_have_their_rate(kind: TraceKind) -> None:
    plan = TracePlan(kind=kind, duration_s=1800, rate_rps=5, seed=3)
    requests = draw_trace(plan)
    times_s = np.array([request.time_s for request in requests])

    assert list(draw_trace(plan)) == list(requests)
    assert list(draw_trace(TracePlan(kind=kind, duration_s=1800, rate_rps=5, seed=4))) != list(requests)
    assert len(requests) == pytest.approx(9000, rel=0.05)
    assert np.all(np.diff(times_s) >= 0)
    assert 0 <= times_s[0] <= times_s[-1] <= 1800
    assert all(request.branch is not None and 0 <= request.branch < 1 for request in requests)


def per_s(kind: TraceKind, width_s: int) -> np.ndarray:
    """Returns requests per second over windows of `width_s`."""
    times_s = [request.time_s for request in draw_trace(TracePlan(kind=kind))]
    return np.histogram(times_s, np.arange(0, 3601, width_s))[0] / width_s


def test_rates_change_as_the_kinds_say() -> None:
    on_off, flash, bursty = per_s(TraceKind.ON_OFF, 10), per_s(TraceKind.FLASH, 10), per_s(TraceKind.BURSTY, 5)
    days = per_s(TraceKind.DIURNAL, 60).reshape(3, 20)

    assert 0.4 < (on_off == 0).mean() < 0.7
    assert 8 < flash.max() / np.median(flash) < 25
    assert bursty.max() / np.median(bursty) > 4
    assert np.all(days.max(axis=1) > 8 * days.min(axis=1))


def test_drift_moves_the_branches_and_nothing_else() -> None:
    drift = draw_trace(TracePlan(kind=TraceKind.DRIFT))
    thirds = [[r.branch for r in drift if third <= r.time_s / 1200 < third + 1] for third in range(3)]
    low = [np.mean([branch is not None and branch < 0.3 for branch in third]) for third in thirds]

    assert low[0] > 0.4 > 0.1 > low[1]
    assert per_s(TraceKind.DRIFT, 60).std() < 1


def test_the_command_writes_a_trace_with_shares(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    told = CliRunner().invoke(
        app, ["trace", "bursty", "-o", str(path), "--duration", "600", "--workflow", "a=3", "--workflow", "b", "--seed", "1"]
    )
    trace = read_trace(path)
    counts = Counter(request.workflow for request in trace)

    assert told.exit_code == 0, told.output
    assert isinstance(trace[0], TracedRequest)
    assert counts["a"] / counts["b"] == pytest.approx(3, rel=0.15)


@pytest.mark.parametrize("options", [["--duration", "1"], ["--rate", "0"], ["--workflow", "a=many"], ["--workflow", "a=0"]])
def test_the_command_refuses_what_makes_no_trace(tmp_path: Path, options: list[str]) -> None:
    told = CliRunner().invoke(app, ["trace", "flash", "-o", str(tmp_path / "trace.csv"), *options])

    assert told.exit_code == 2
    assert "expected" in told.output
