"""Pictures of comparisons: latency against load, and scaling over time. They need matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dyorc.simulation.scaling.policy_comparison import ORACLE, POLICIES, PolicyComparison
from dyorc.simulation.scaling.replay import BIN_NS
from dyorc.simulation.simulate import Row
from dyorc.system import extras

_NUM_COLUMNS = 4
_MAX_FACTOR = 2.2
"""Panels end at this multiple of the best policy's highest p99."""
_BIN_MIN = BIN_NS / 60e9
_COLORS = {name: f"C{at}" for at, name in enumerate(POLICIES)} | {ORACLE: "black"}
_SHOWN_OVER_TIME = ("reactive", "reactive0", "predictive", ORACLE)
"""More lines would hide each other."""


def draw_latencies(rows: Sequence[Row], path: Path) -> None:
    """Draws the rows of `compare` into a file: a panel per workload, p50 as a line and p99 dashed.

    A policy far from the others, like one whose queues only grow, leaves the panel: otherwise it alone would be visible.

    Raises:
        MissingLibraryError: If matplotlib is not installed.
    """
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    num_columns = min(_NUM_COLUMNS, len(workloads))
    num_lines = -(-len(workloads) // num_columns)
    figure = _figure(4.2 * num_columns, 3.4 * num_lines)
    panels = figure.subplots(num_lines, num_columns, squeeze=False).ravel()
    for panel, workload in zip(panels, workloads, strict=False):
        by_policy = _by_policy(rows, workload)
        for at, chosen in enumerate(by_policy):
            loads = [row["load"] for row in chosen]
            panel.plot(loads, [row["p50_ms"] for row in chosen], f"C{at}o-", label=chosen[0]["policy"])
            panel.plot(loads, [row["p99_ms"] for row in chosen], f"C{at}x--")
        top_ms = _MAX_FACTOR * min(max(row["p99_ms"] for row in shown) for shown in by_policy)
        panel.set(title=workload, ylim=(0, top_ms), xlabel="load (rate / saturation rate)", ylabel="ms: p50 -, p99 - -")
        panel.grid(visible=True, alpha=0.3)
    for panel in panels[len(workloads) :]:
        panel.set_visible(False)
    panels[0].legend()
    figure.savefig(path, dpi=120)


def _by_policy(rows: Sequence[Row], workload: str) -> list[list[Row]]:
    """Returns a workload's rows, by policy."""
    own = [row for row in rows if row["workload"] == workload]
    return [[row for row in own if row["policy"] == policy] for policy in dict.fromkeys(row["policy"] for row in own)]


def draw_scaling(comparisons: Mapping[str, PolicyComparison], path: Path) -> None:
    """Draws comparisons into a file, each in its own row, under its trace's name.

    On the left are warm replicas over time (starting ones included) above the demand; on the right, misses caused by cold starts
    against replica-seconds, parked ones left out.

    Raises:
        MissingLibraryError: If matplotlib is not installed.
    """
    figure = _figure(14.0, 3.0 * len(comparisons))
    panels = figure.subplots(len(comparisons), 2, squeeze=False, width_ratios=(2.4, 1.0))
    for (over_time, against), (name, comparison) in zip(panels, comparisons.items(), strict=True):
        _draw_courses(over_time, name, comparison)
        _draw_misses(against, comparison)
    panels[0][0].legend(loc="upper right", ncols=5, fontsize="small")
    panels[0][1].legend(loc="upper right", fontsize="small")
    figure.savefig(path, dpi=110)


def _draw_courses(panel: Any, name: str, comparison: PolicyComparison) -> None:
    minutes = [at * _BIN_MIN for at in range(len(comparison.demand))]
    panel.fill_between(minutes, comparison.demand, color="0.85", step="mid", label="demand")
    for policy, course in comparison.courses.items():
        if policy in _SHOWN_OVER_TIME or len(comparison.courses) <= len(_SHOWN_OVER_TIME):
            panel.step(minutes, course.warm, where="mid", color=_COLORS[policy], label=policy, linewidth=1.0)
    panel.set(title=name, xlabel="minutes", ylabel="warm replicas", ylim=(0, None))
    panel.grid(visible=True, alpha=0.3)


def _draw_misses(panel: Any, comparison: PolicyComparison) -> None:
    for policy, result in comparison.results.items():
        panel.plot(result.warm_s / 3600, result.cold_misses, "o", color=_COLORS[policy], label=policy)
    panel.set_yscale("symlog", linthresh=1)
    panel.set(xlabel="replica-hours", ylabel="misses by cold starts", xlim=(0, None), ylim=(-0.3, None))
    panel.grid(visible=True, alpha=0.3)


def _figure(width: float, height: float) -> Any:
    """Returns an empty figure, in inches."""
    extras.require("simulation", "a picture")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
