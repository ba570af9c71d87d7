"""HAP's uneven shares with HiDup's overlap in one plan, which neither paper has.

It begins with the plans of other planners: the usual ones, HAP's and HiDup's. Their choices are recombined, once
in two interleaved microbatches by HiDup's search and once in one batch by HAP's, under even shares, shares in proportion to the
speeds, and HAP's shares. Then a linear program with overlap (hidup/shares.py) finds better shares for the program, the search a
better program for the shares, and so on. The simulator also judges the plans that the search began with, so the result is never
slower than any of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan
from dyorc.planner.planners import Progress
from dyorc.planner.planners.hap.hap import hap
from dyorc.planner.planners.hidup.items import Hints, NodeItem
from dyorc.planner.planners.hidup.pareto_search import DuplexProgram
from dyorc.planner.planners.hidup.plan import Duplex, hidup
from dyorc.planner.planners.hidup.shares import best_shares
from dyorc.planner.planners.pricing import BestPlan, by_hand
from dyorc.planner.planners.strategy_assignment import StrategyAssignment, ratios_of
from dyorc.planner.program import REPLICATE, Placement, TensorProgram


def duplex_hap(
    program: TensorProgram,
    cluster: Cluster,
    *,
    known: Iterable[Plan] | None = None,
    hints: Hints | None = None,
    max_states: int = 12,
    max_rounds: int = 3,
    progress: Progress | None = None,
) -> Plan:
    """Plans uneven shares and two interleaved microbatches together.

    Args:
        program: What is distributed.
        cluster: Where it runs.
        known: Plans that compete, and whose choices the search begins with; if None, the plans that people would write, HAP's
            and HiDup's. None compete if there are hints.
        hints: Placements that the user wants.
        max_states: How many states the search keeps at each cut.
        max_rounds: How often program and shares take turns.
        progress: Called with the progress of the search. Ctrl-C ends it with the best plan so far.
    """
    best, error_notes = BestPlan(program, cluster, progress=progress), dict[str, str]()
    try:
        with best.until_stopped():
            plans: list[Plan] = []
            for plan in () if hints else known if known is not None else _others(program, cluster, max_states):
                plans.append(plan)
                best.offer(plan)
            combination = _Combination(Duplex(program, cluster, hints or {}), best, max_states)
            if not hints:
                combination.recombine_in_one_batch(plans)
            combination.run(plans, max_rounds)
    except PlanError as error:  # the batch cannot be halved: the others' plans are left
        if not best.has_plan:
            raise
        error_notes = {"no microbatches": str(error)}
    assert best.price
    made = best.price.plan.provenance
    totals = {f"best_{name}_s": f"{total_s:.9g}" for name, total_s in best.totals.items()}
    return best.finish("", replace(made, notes={**made.notes, **totals, **error_notes}))


def _others(program: TensorProgram, cluster: Cluster, max_states: int) -> Iterable[Plan]:
    plans = [*by_hand(program, cluster)]
    yield from plans
    plans.append(hap(program, cluster, known=plans))
    yield plans[-1]
    yield hidup(program, cluster, known=plans, max_states=max_states)


class _Combination:
    def __init__(self, duplex: Duplex, best: BestPlan, max_states: int) -> None:
        self._duplex = duplex
        self._best = best
        self._max_states = max_states

    def recombine_in_one_batch(self, plans: Sequence[Plan]) -> None:
        """Recombines HiDup's choices by HAP, too."""
        if any(plan.provenance.planner == "hidup" for plan in plans):
            plan = hap(self._duplex.program, self._duplex.cluster, known=plans, search="known")
            self._best.offer(_named(plan))

    def run(self, plans: Sequence[Plan], max_rounds: int) -> None:
        """Goes through shares: even, in proportion to the speeds, and those of the best plan."""
        cluster = self._duplex.cluster
        self._duplex.begin_with(plans)
        of_best = self._best.price and ratios_of(self._best.price.plan)
        even = (1.0 / cluster.num_ranks,) * cluster.num_ranks
        candidates = list(dict.fromkeys(_rounded(ratios) for ratios in (even, cluster.flops_ratios, of_best or even)))
        for number, ratios in enumerate(candidates):
            self._best.report(number / len(candidates))
            self._take_turns(ratios, max_rounds)

    def _take_turns(self, ratios: tuple[float, ...], max_rounds: int) -> None:
        """Improves the program for the shares, and the shares for the program, while that helps."""
        program, last_s = self._beginning(ratios), float("inf")
        for _ in range(max_rounds):
            program = self._duplex.recombine(ratios, self._max_states, program)
            self._best.offer(self._duplex.plan(program, ratios, "duplex_hap"))
            if program.cost_s >= last_s * (1 - 1e-3):
                return
            last_s = program.cost_s
            ratios = _rounded(best_shares(program, self._duplex.costs(ratios)))
            program = self._duplex.time_assignment(choices_of_program(program, self._duplex), ratios)

    def _beginning(self, ratios: tuple[float, ...]) -> DuplexProgram:
        return next(iter(self._duplex.searches(ratios, self._max_states, self._best.report)))


def _named(plan: Plan) -> Plan:
    return replace(plan, provenance=replace(plan.provenance, planner="duplex_hap"))


def _rounded(ratios: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(ratio / sum(ratios), 9) for ratio in ratios)


def choices_of_program(program: DuplexProgram, duplex: Duplex) -> StrategyAssignment:
    """The choices of a program, without its stages."""
    strategies = {r.item.node.name: r.strategy for r in program.records if isinstance(r.item, NodeItem) and r.strategy}
    sources = dict[str, Placement](dict.fromkeys(duplex.program.sources, REPLICATE))
    for record in reversed(program.records):
        sources |= {tensor.value: placement for tensor, placement in reversed(record.begins)}
    return StrategyAssignment(strategies, sources)
