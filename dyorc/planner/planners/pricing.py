"""What a plan costs, for all planners alike: the simulator's seconds, in the better of two orders of its steps; and the best plan
of a
search."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from time import perf_counter

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan, Provenance, SearchEnd
from dyorc.planner.plan.rewrites import communicate_early
from dyorc.planner.planners import PLANNERS, Progress
from dyorc.planner.planners.ending import end_of
from dyorc.planner.program import TensorProgram
from dyorc.planner.simulate import Simulation, check_memory, simulate

BY_HAND = ("dp_even", "dp_proportional", "zero", "megatron", "expert_parallel")
"""The planners that search nothing. Searches begin with their plans, and must not be slower."""


@dataclass(frozen=True, slots=True)
class PricedPlan:
    """A plan with its seconds in its provenance, and the simulation that they are from.

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
"""Planners begin with the plans of others, so the same plans are priced again and again. Large ones are not remembered."""


def price_plan(plan: Plan, program: TensorProgram, cluster: Cluster, *, overlap: bool = True) -> PricedPlan:
    """Simulates a plan as it is, and if ranks compute while they communicate, in the other order as well."""
    for of_plan, of_program, of_cluster, with_overlap, known in _remembered:
        if of_plan is plan and of_program is program and of_cluster is cluster and with_overlap is overlap:
            return known
    price = _price_as_it_is(plan, program, cluster, overlap=overlap)
    early = communicate_early(plan) if overlap else plan
    if early.steps != plan.steps:
        price = min(price, _price_as_it_is(early, program, cluster, overlap=overlap), key=lambda each: each.rank)
    if len(plan.steps) <= _MAX_REMEMBERED_STEPS:
        _remembered.append((plan, program, cluster, overlap, price))
    return price


def _price_as_it_is(plan: Plan, program: TensorProgram, cluster: Cluster, *, overlap: bool) -> PricedPlan:
    simulation = simulate(plan, program, cluster, overlap=overlap)
    does_fit = False
    with suppress(PlanError):
        check_memory(simulation, cluster)
        does_fit = True
    made = replace(plan.provenance, cost_s=simulation.total_s)
    return PricedPlan(replace(plan, provenance=made), simulation, does_fit)


def by_hand(program: TensorProgram, cluster: Cluster, names: Iterable[str] = BY_HAND) -> Iterator[Plan]:
    """Yields the plans that people would write, where they exist for this program and cluster."""
    for name in names:
        with suppress(PlanError):
            yield PLANNERS[name](program, cluster)


class BestPlan:
    """The best plan of a search so far, by its price; how long the search has taken, and how it ended.

    Attributes:
        price: Of the best plan, whether it fits or not.
        totals: The seconds of each planner's best plan, whether it fits or not.
        ended: How the search ended.
    """

    def __init__(
        self,
        program: TensorProgram,
        cluster: Cluster,
        *,
        progress: Progress | None = None,
        overlap: bool = True,
        reorder: bool = True,
        must_fit: bool = False,
    ) -> None:
        """Begins a search.

        Args:
            program: What is planned.
            cluster: Where it runs.
            progress: Called with the progress of the search.
            overlap: Whether ranks compute while they communicate.
            reorder: Whether plans are priced in the better of two orders, and not only as they are.
            must_fit: Whether a plan that needs more memory than there is counts as none.
        """
        self._program = program
        self._cluster = cluster
        self._progress = progress
        self._overlap = overlap
        self._reorder = reorder
        self._must_fit = must_fit
        self._begun_s = perf_counter()
        self.price: PricedPlan | None = None
        self.totals: dict[str, float] = {}
        self.ended = SearchEnd.FINISHED

    @property
    def has_plan(self) -> bool:
        """Whether there is a plan, which fits if it must."""
        return self.price is not None and (self.price.does_fit or not self._must_fit)

    @property
    def search_s(self) -> float:
        """For how long the search has been going on."""
        return perf_counter() - self._begun_s

    def offer(self, plan: Plan) -> bool:
        """Prices a plan, and keeps it if it is better; returns whether it is."""
        price = price_plan if self._reorder else _price_as_it_is
        new = price(plan, self._program, self._cluster, overlap=self._overlap)
        name, total_s = plan.provenance.planner, new.simulation.total_s
        self.totals[name] = min(total_s, self.totals.get(name, total_s))
        if self.price is not None and new.rank >= self.price.rank:
            return False
        self.price = new
        return True

    def report(self, done_ratio: float) -> None:
        """Reports the part of the search that is done, and the seconds of the best plan."""
        if self._progress:
            self._progress(done_ratio, self.price.simulation.total_s if self.price and self.has_plan else None)

    @contextmanager
    def until_stopped(self) -> Generator[None]:
        """Runs a search: Ctrl-C or a deadline ends it with the best plan so far.

        Raises:
            KeyboardInterrupt: It came before there was a plan.
        """
        try:
            yield
        except KeyboardInterrupt as stop:
            if not self.has_plan:
                raise
            self.ended = end_of(stop)

    def finish(self, error: str, provenance: Provenance | None = None) -> Plan:
        """Returns the best plan with its seconds, those of the search, and how it ended.

        Args:
            error: What is wrong if there is no plan.
            provenance: What else the plan says about its origin; if None, what it says already.

        Raises:
            PlanError: There is no plan.
        """
        if self.price is None or not self.has_plan:
            raise PlanError(error)
        plan, cost_s = self.price.plan, self.price.simulation.total_s
        made = replace(provenance or plan.provenance, cost_s=cost_s, search_s=self.search_s, ended=self.ended)
        return replace(plan, provenance=made)
