"""Runs one plan on real ranks, compares each result with one device's, and has the plan proved."""

import time
from dataclasses import dataclass

import torch

from dyorc.errors import PlanError
from dyorc.planner.plan import Plan
from dyorc.planner.program import Shard
from dyorc.planner.runtime import RankOptions, Ranks
from dyorc.planner.runtime.rank_processes import StartRank
from dyorc.planner.verify import verify
from tests.equality.cases import Case
from tests.unit.planner.examples import Example

TOLERANCE = 1e-9
"""The largest difference of any element of the loss and of any gradient."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a case.

    Attributes:
        case: Which.
        refused: Why there is no plan; empty if there is one.
        error: The largest difference from one device; infinite if ranks failed.
        trouble: What the ranks or the verifier say; empty if all is well.
        is_uneven: Whether some tensor is in shares of different sizes.
        has_empty: Whether some rank's share of some tensor is empty.
        took_s: All of it.
    """

    case: Case
    refused: str = ""
    error: float = 0.0
    trouble: str = ""
    is_uneven: bool = False
    has_empty: bool = False
    took_s: float = 0.0

    @property
    def is_equal(self) -> bool:
        """Whether ranks computed the same, and the plan is proved."""
        return not self.refused and not self.trouble and self.error <= TOLERANCE


class Checker:
    """Four ranks that run one plan after the other. A context manager.

    Args:
        start_rank: See `Ranks`.
    """

    def __init__(self, start_rank: StartRank | None = None) -> None:
        self._start_rank = start_rank
        self._ranks: Ranks | None = None

    def __enter__(self) -> "Checker":
        return self

    def __exit__(self, *error: object) -> None:
        self._stop(is_abrupt=error[0] is not None)

    def check(self, case: Case) -> Outcome:
        """Plans, proves and runs a case."""
        began_s = time.monotonic()
        try:
            plan = case.plan()
        except PlanError as error:
            return Outcome(case=case, refused=str(error).partition("\n")[0], took_s=time.monotonic() - began_s)
        report = verify(case.example.program, plan)
        trouble = "" if report.is_proved else str(report)
        error = float("inf")
        try:
            error = max(self._error(case.example, plan, overlap=overlap) for overlap in (False, True))
        except PlanError as failure:
            trouble = f"{trouble} {failure}".strip()
            self._stop(is_abrupt=True)
        sizes = [p.sizes for placed in plan.tensors.values() for p in placed.layout if isinstance(p, Shard) and p.sizes]
        return Outcome(
            case=case,
            error=error,
            trouble=trouble,
            is_uneven=any(max(each) - min(each) > 1 for each in sizes),
            has_empty=any(min(each) == 0 for each in sizes),
            took_s=time.monotonic() - began_s,
        )

    def _error(self, found: Example, plan: Plan, *, overlap: bool) -> float:
        if self._ranks is None:
            self._ranks = Ranks(RankOptions(num_ranks=4), self._start_rank)
            self._ranks.start()
        results = self._ranks.run(plan, found.sources, overlap=overlap).results
        assert results.keys() == found.results.keys()
        return max(_difference(results[name], expected) for name, expected in found.results.items())

    def _stop(self, *, is_abrupt: bool) -> None:
        if self._ranks is not None:
            self._ranks.stop(is_abrupt=is_abrupt)
            self._ranks = None


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    largest = float((one - other).abs().max()) if one.numel() else 0.0
    return largest if largest == largest else float("inf")  # NaN equals nothing
