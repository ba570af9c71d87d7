"""The planner: searches with more and more states, simulates what it finds, and returns the quickest plan."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan, Provenance
from dyorc.planner.planners import Progress
from dyorc.planner.planners.hidup.halves import Halves, halves_of
from dyorc.planner.planners.hidup.interleaved_plan import build_plan, stages_of
from dyorc.planner.planners.hidup.items import Hints, items_of
from dyorc.planner.planners.hidup.microbatch_costs import MicrobatchCosts, Wrong
from dyorc.planner.planners.hidup.pareto_search import DuplexProgram, ParetoSearch
from dyorc.planner.planners.pricing import BestPlan, by_hand
from dyorc.planner.planners.strategy_assignment import (
    StrategyAssignment,
    assignments_of,
    replicated_assignment,
    strategies_by_node,
)
from dyorc.planner.program import Strategy, TensorProgram
from dyorc.planner.simulate import simulate


def hidup(
    program: TensorProgram,
    cluster: Cluster,
    *,
    known: Iterable[Plan] | None = None,
    ratios: Sequence[float] | None = None,
    hints: Hints | None = None,
    max_states: int | None = 12,
    progress: Progress | None = None,
) -> Plan:
    """Plans two interleaved microbatches: one communicates while the other computes.

    Ctrl-C ends the search with the best plan so far; before there is one, it is passed on.

    Args:
        program: What is distributed.
        cluster: Where it runs.
        known: Plans whose choices the search begins with, if there are no hints; the plans that people would write if None.
        ratios: The share of each rank; even if None.
        hints: Placements along the ranks that the user wants, by the name of the value.
        max_states: How many states the search keeps at each cut; None keeps all that may lead to the optimum.
        progress: Called with the progress of the search.

    Raises:
        PlanError: The program's batch cannot be halved, or the hints contradict each other.
    """
    ratios = tuple(ratios or (1.0,) * len(cluster.devices))
    duplex = Duplex(program, cluster, hints or {})
    if max_states is not None and not hints:
        duplex.begin_with(known if known is not None else by_hand(program, cluster))
    return duplex.best(ratios, max_states, progress)


@dataclass(frozen=True)
class _Space:
    """What a search may choose from: axes to split along, and strategies of each node; any if None."""

    axes: frozenset[int] | None = None
    among: Mapping[str, Set[Strategy]] | None = None


class Duplex:
    """One program and cluster, for searches under several ratios."""

    def __init__(self, program: TensorProgram, cluster: Cluster, hints: Hints, wrong: Wrong | None = None) -> None:
        self.program = program
        self.cluster = cluster
        self.halves = halves_of(program)
        self.items = items_of(program, self.halves, hints)
        self.seeds: list[StrategyAssignment] = []
        self._wrong = wrong

    def begin_with(self, plans: Iterable[Plan]) -> None:
        """Seeds searches with the choices of plans, and with full replication."""
        strategies = self.halves.strategies
        self.seeds = [replicated_assignment(self.program, strategies), *assignments_of(plans, strategies)]

    def best(self, ratios: Sequence[float], max_states: int | None, progress: Progress | None = None) -> Plan:
        """Returns the quickest plan that widening searches find, by the simulator."""
        best = BestPlan(self.program, self.cluster, progress=progress)
        with best.until_stopped():
            for program in self.searches(ratios, max_states, best.report):
                best.offer(self.plan(program, ratios))
        return best.finish(f"no plan was found for {self.program.name}")

    def searches(
        self,
        ratios: Sequence[float],
        max_states: int | None,
        on_progress: Callable[[float], None] = lambda done_ratio: None,
        known: DuplexProgram | None = None,
    ) -> Iterator[DuplexProgram]:
        """Yields better and better programs: first the seeds' strategies recombined, then what is split along the batch alone,
        then along each kind of axis besides.

        Without a limit of states, one search over everything, which is exact. What is known already is improved on.
        """
        known = known or self._best_seed(ratios)
        if known:
            yield known
        spaces = [_Space()] if max_states is None else self._spaces()
        for number, space in enumerate(spaces):

            def on_item(done: int, total: int, number: int = number) -> None:
                on_progress((number + done / total) / len(spaces))

            program = self._search(ratios, max_states, space, known).run(on_item)
            if known is None or program.cost_s < known.cost_s:
                known = program
                yield program

    def recombine(self, ratios: Sequence[float], max_states: int, known: DuplexProgram) -> DuplexProgram:
        """Improves a program by the seeds' strategies alone, which is quick."""
        program = self._search(ratios, max_states, _Space(None, strategies_by_node(self.seeds)), known).run()
        return program if program.cost_s < known.cost_s else known

    def _search(
        self, ratios: Sequence[float], max_states: int | None, space: "_Space", known: DuplexProgram | None
    ) -> ParetoSearch:
        return ParetoSearch(
            self.items, self.costs(ratios), max_states=max_states, axes=space.axes, among=space.among, known=known
        )

    def _spaces(self) -> list["_Space"]:
        batch = self.halves.batch
        spaces = [_Space(kind | {batch}) for kind in axis_kinds(self.program, self.halves)]
        return [_Space(None, strategies_by_node(self.seeds)) if self.seeds else _Space(frozenset((batch,))), *spaces]

    def _best_seed(self, ratios: Sequence[float]) -> DuplexProgram | None:
        best: DuplexProgram | None = None
        for seed in self.seeds:
            with suppress(PlanError):  # a plan may do more than choose strategies, such as compute again
                timed = self.time_assignment(seed, ratios)
                best = timed if best is None or timed.cost_s < best.cost_s else best
        return best

    def time_assignment(self, assignment: StrategyAssignment, ratios: Sequence[float]) -> DuplexProgram:
        """Cuts a program whose strategies are chosen into stages.

        Raises:
            PlanError: The strategies do not fit together, or to the hints.
        """
        return ParetoSearch(self.items, self.costs(ratios), max_states=4, fixed=assignment).run()

    def costs(self, ratios: Sequence[float]) -> MicrobatchCosts:
        """The costs under some ratios."""
        return MicrobatchCosts(self.program, self.halves, self.cluster, tuple(ratios), self._wrong)

    def plan(
        self, program: DuplexProgram, ratios: Sequence[float], planner: str = "hidup", *, is_interleaved: bool = True
    ) -> Plan:
        """Builds the plan of what a search found, and simulates it."""
        notes = {
            "psi_s": f"{program.cost_s:.9g}",
            "stages": str(len(stages_of(program))),
            "ratios": " ".join(f"{ratio:.6g}" for ratio in ratios),
        }
        made = Provenance(planner=planner, notes=notes)
        plan = build_plan(self.program, self.halves, program, self.cluster, ratios, made, is_interleaved=is_interleaved)
        return replace(plan, provenance=replace(made, cost_s=simulate(plan, self.program, self.cluster).total_s))


def axis_kinds(program: TensorProgram, halves: Halves) -> list[frozenset[int]]:
    """Groups the axes other than the batch by extent: in each layer, there is one like those of the other layers.

    Only axes that products are computed along count; axes with most bytes of parameters come first.
    """
    weights: dict[int, int] = {}
    for name in program.parameters:
        for axis in halves.axes.outermost[name]:
            if axis is not None and axis != halves.batch:
                weights[axis] = weights.get(axis, 0) + program.values[name].num_bytes
    for node in program.nodes:
        if node.op == "aten.bmm.default":
            weights |= {
                s.axis: weights.get(s.axis, 0) for s in halves.strategies[node.name] if s.axis not in (None, halves.batch)
            }
    kinds: dict[int, set[int]] = {}
    for axis in sorted(weights, key=lambda axis: -weights[axis]):
        kinds.setdefault(halves.axes.extents[axis], set()).add(axis)
    return [frozenset(kind) for kind in kinds.values()]
