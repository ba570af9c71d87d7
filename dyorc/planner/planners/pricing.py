"""What a plan costs in the end, for all planners alike: the simulator's seconds, in the better of two orders of its steps."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan
from dyorc.planner.plan.rewrites import communicate_early
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram
from dyorc.planner.simulate import Simulation, check_memory, simulate

BY_HAND = ("dp_even", "dp_proportional", "zero", "megatron", "expert_parallel")
"""The planners that search nothing: what searches begin with, and must not be slower than."""


@dataclass(frozen=True, slots=True)
class PricedPlan:
    """A plan with its seconds in its provenance, and what they were found by.

    Attributes:
        plan: In the order that is quicker: its planner's, or with communication as early as possible.
        simulation: Of this order.
        does_fit: Whether every rank has the memory for it.
    """

    plan: Plan
    simulation: Simulation
    does_fit: bool

    @property
    def rank(self) -> tuple[bool, float]:
        """The sort key of plans: fitting plans first, then the quickest."""
        return not self.does_fit, self.simulation.total_s


_MAX_REMEMBERED_STEPS = 5_000
_remembered: deque[tuple[Plan, TensorProgram, Cluster, bool, PricedPlan]] = deque(maxlen=24)
"""Planners begin with what others found, so the same plans are priced again and again. Large ones are let go."""


def price_plan(plan: Plan, program: TensorProgram, cluster: Cluster, *, overlap: bool = True) -> PricedPlan:
    """Simulates a plan as it is, and if ranks compute while they communicate, in the other order as well."""
    for of_plan, of_program, of_cluster, with_overlap, known in _remembered:
        if of_plan is plan and of_program is program and of_cluster is cluster and with_overlap is overlap:
            return known
    price = _as_it_is(plan, program, cluster, overlap)
    early = communicate_early(plan) if overlap else plan
    if early.steps != plan.steps:
        price = min(price, _as_it_is(early, program, cluster, overlap), key=lambda each: each.rank)
    if len(plan.steps) <= _MAX_REMEMBERED_STEPS:
        _remembered.append((plan, program, cluster, overlap, price))
    return price


def _as_it_is(plan: Plan, program: TensorProgram, cluster: Cluster, overlap: bool) -> PricedPlan:
    simulation = simulate(plan, program, cluster, overlap=overlap)
    does_fit = False
    with suppress(PlanError):
        check_memory(simulation, cluster)
        does_fit = True
    made = replace(plan.provenance, cost_s=simulation.total_s)
    return PricedPlan(replace(plan, provenance=made), simulation, does_fit)


def by_hand(program: TensorProgram, cluster: Cluster, names: Iterable[str] = BY_HAND) -> Iterator[Plan]:
    """Yields the plans that people would write, as far as there are any for this program and cluster."""
    for name in names:
        with suppress(PlanError):
            yield PLANNERS[name](program, cluster)


class BestPlan:
    """The best plan so far, by its price."""

    def __init__(self, program: TensorProgram, cluster: Cluster, *, overlap: bool = True) -> None:
        self._program = program
        self._cluster = cluster
        self._overlap = overlap
        self.price: PricedPlan | None = None
        self.totals: dict[str, float] = {}
        """The seconds of each planner's best plan, whether it fits or not."""

    @property
    def cost_s(self) -> float | None:
        """The seconds of the best plan, if there is one."""
        return self.price.simulation.total_s if self.price else None

    def offer(self, plan: Plan) -> PricedPlan:
        """Prices a plan, keeps it if it is better, and returns its price."""
        new = price_plan(plan, self._program, self._cluster, overlap=self._overlap)
        if self.price is None or new.rank < self.price.rank:
            self.price = new
        name, total_s = plan.provenance.planner, new.simulation.total_s
        self.totals[name] = min(total_s, self.totals.get(name, total_s))
        return new
