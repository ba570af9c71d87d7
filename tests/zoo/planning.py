"""Plans a captured model, runs the plan on real ranks, and compares what they compute with the module."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from dyorc.errors import DyOrcError, PlanError
from dyorc.planner.cluster import uneven_cluster
from dyorc.planner.plan import Plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.planners.auto import AUTO, plan
from dyorc.planner.program import TensorProgram
from dyorc.planner.runtime import RankOptions, Ranks
from tests.zoo.capturing import Captured
from tests.zoo.reference import TOLERANCES, largest_error, narrowest, of_program

SPEEDS: Mapping[str, Sequence[float]] = {
    "2 even": (1, 1),
    "2 of 3:1": (3, 1),
    "4 even": (1, 1, 1, 1),
    "4 of 3:1": (3, 1, 3, 1),
}
"""The clusters, by the speeds of their ranks."""
_NUM_RANKS = max(map(len, SPEEDS.values()))
_OPTIONS: Mapping[str, dict[str, Any]] = {
    AUTO: {"among": ("dp_even", "dp_proportional", "zero", "megatron")},
    "hap": {"max_states": 4, "max_rounds": 1},
    "hidup": {"max_states": 2},
}
"""Searches are kept short: what they find need not be good here, but right."""
PLANNED = (AUTO, "dp_even", "dp_proportional", "megatron", "hap", "hidup")
"""The planners that are tried."""


@dataclass(frozen=True, slots=True)
class Case:
    """A planner and a cluster."""

    planner: str
    cluster: str

    def __str__(self) -> str:
        return f"{self.planner} on {self.cluster}"


QUICK = (Case("dp_proportional", "2 of 3:1"), Case("hap", "2 of 3:1"))
"""Uneven shares, by hand and by search."""
USUAL = (
    *QUICK,
    Case("dp_even", "2 even"),
    Case("hidup", "2 even"),
    Case("megatron", "4 even"),
    Case(AUTO, "4 of 3:1"),
)
"""Each planner and each cluster at least once."""
EVERY = tuple(Case(planner, cluster) for planner in PLANNED for cluster in SPEEDS)


@dataclass(frozen=True, kw_only=True)
class PlanOutcome:
    """What came of a plan.

    Attributes:
        planner: Which.
        cluster: Its name in `SPEEDS`.
        refused: Why there is no plan; empty if there is one.
        trouble: What failed; empty if the plan ran.
        error: How far the ranks' results are from the module's; see `largest_error`.
        where: The tensor that is furthest.
        is_equal: Whether that is within the tolerance.
        planning_s: The planner's time.
        running_s: The time of one step on the ranks, with loading.
    """

    planner: str
    cluster: str
    refused: str = ""
    trouble: str = ""
    error: float = 0.0
    where: str = ""
    is_equal: bool = False
    planning_s: float = 0.0
    running_s: float = 0.0


def _plan(program: TensorProgram, case: Case) -> Plan:
    speeds = SPEEDS[case.cluster]
    cluster = uneven_cluster(speeds, flops_per_s=1e9, bytes_per_s=1e9, latency_s=1e-7)
    options = dict(_OPTIONS.get(case.planner, {}))
    if case.planner != AUTO and "ratios" in signature(PLANNERS[case.planner]).parameters:
        options["ratios"] = tuple(map(float, speeds))
    return plan(program, cluster, case.planner, **options)


class PlanChecker:
    """Four ranks that run one plan after the other. A context manager.

    Args:
        folder: Where the ranks keep what they share.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = folder
        self._ranks: Ranks | None = None

    def __enter__(self) -> "PlanChecker":
        return self

    def __exit__(self, *error: object) -> None:
        self._stop(is_abrupt=error[0] is not None)

    def check(self, captured: Captured, case: Case) -> PlanOutcome:
        """Plans a model and runs the plan."""
        began_s = time.monotonic()
        try:
            made = _plan(captured.program, case)
        except PlanError as error:
            return PlanOutcome(planner=case.planner, cluster=case.cluster, refused=_first_line(error))
        except Exception as error:  # a planner's fault is a row of the table
            return PlanOutcome(planner=case.planner, cluster=case.cluster, trouble=f"planning: {error!r}")
        planned_s = time.monotonic()
        error, where, trouble = float("inf"), "", ""
        try:
            if self._ranks is None:
                self._ranks = Ranks(RankOptions(num_ranks=_NUM_RANKS, folder=self._folder))
                self._ranks.start()
            ran = self._ranks.run(made, captured.sources)
            error, where = largest_error(captured.expected, of_program(captured.program, ran.results, captured.sources))
        except DyOrcError as failure:
            trouble = _first_line(failure)
            self._stop(is_abrupt=True)
        return PlanOutcome(
            planner=case.planner,
            cluster=case.cluster,
            trouble=trouble,
            error=error,
            where=where,
            is_equal=not trouble and error <= TOLERANCES[narrowest(captured.program)],
            planning_s=planned_s - began_s,
            running_s=time.monotonic() - planned_s,
        )

    def _stop(self, *, is_abrupt: bool) -> None:
        if self._ranks is not None:
            self._ranks.stop(is_abrupt=is_abrupt)
            self._ranks = None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
