"""The picture of comparisons: replicas over time, and misses against what they cost."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dyorc.errors import DefinitionError
from dyorc.simulation.scaling.policy_comparison import ORACLE, POLICIES, PolicyComparison
from dyorc.simulation.scaling.watch import BIN_NS

_BIN_MIN = BIN_NS / 60e9
_COLORS = {name: f"C{at}" for at, name in enumerate(POLICIES)} | {ORACLE: "black"}
_SHOWN_OVER_TIME = ("reactive", "reactive0", "predictive", ORACLE)
"""More lines would hide each other."""


def draw_picture(comparisons: Mapping[str, PolicyComparison], path: Path) -> None:
    """Draws comparisons into a file, each by its trace's name in a row of its own.

    On the left are warm replicas over time (starting ones included) above the demand; on the right, misses caused by cold starts
    against replica-seconds, parked ones left out.

    Raises:
        DefinitionError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise DefinitionError("a picture needs matplotlib: pip install 'dyorc[simulation]'") from error

    figure = Figure(figsize=(14.0, 3.0 * len(comparisons)), layout="constrained")
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
