"""HAP (EuroSys'24): the distributed program and the shares of the ranks, improved in turn.

Given shares, the frontier search finds the program that takes least time; given the program, a linear program finds the shares.
Either is repeated until neither helps. The search begins with what other plans chose: it first recombines their strategies, and
then keeps the states of what it found while it goes through everything. The best pair, by the simulator, is kept from the first
moment: at first it is plain data parallel, so that a search can be interrupted at any time.

The paper's costs add up, as if nothing ran at the same time. Where it does, communication of gradients and parameters mostly
hides behind computation: so programs are searched with a lower weight for it as well, and the simulator decides.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan, Provenance
from dyorc.planner.planners import Progress
from dyorc.planner.planners.ending import check_deadline
from dyorc.planner.planners.hap.frontier import Frontier, Solution, solve_by_a_star
from dyorc.planner.planners.hap.problem import Pricing, SynthesisProblem, SynthesisSpace, alternatives_of
from dyorc.planner.planners.hap.ratios import best_ratios, terms_of
from dyorc.planner.planners.hap.search_moves import moves_of
from dyorc.planner.planners.hap.synthesized_plan import DistributedProgram, build_plan, distributed_program
from dyorc.planner.planners.pricing import BY_HAND, BestPlan, by_hand
from dyorc.planner.planners.strategy_assignment import assignments_of, ratios_of, replicated_assignment
from dyorc.planner.program import TensorProgram

Search: TypeAlias = Literal["frontier", "known", "a_star"]
_KEPT_BYTE_S = (0.0, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8)
"""What keeping a byte costs: nothing, unless no plan fits otherwise."""
_OVERLAP_WEIGHTS = (0.25, 0.02)
"""Weights of communication during computation, tried besides 1: to minimize the larger of two sums, minimize weighted ones."""
_NUM_WIDE = 1
"""In how many rounds everything is searched; in later ones, only what any plan so far has chosen."""
_FIRST = ("dp_proportional", *(name for name in BY_HAND if name != "dp_proportional"))
_MADE_BY = {"dp_proportional": "data parallel"}


def hap(
    program: TensorProgram,
    cluster: Cluster,
    *,
    known: Iterable[Plan] | None = None,
    ratios: Sequence[float] | None = None,
    adapt_ratios: bool = True,
    whole_parameters: bool = False,
    overlap: bool = True,
    search: Search = "frontier",
    max_states: int = 64,
    max_rounds: int = 6,
    deadline_s: float | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Plans a program along one mesh axis of all ranks.

    Args:
        program: What to plan.
        cluster: Where it runs.
        known: Plans that compete, and whose choices the search begins with; the plans that people would write if None. Only
            data parallel competes if the parameters have to be whole or the shares stay.
        ratios: The shares to begin with; in proportion to the ranks' speeds if None.
        adapt_ratios: Whether the shares are changed at all.
        whole_parameters: Whether every rank keeps all parameters, as in data parallel.
        overlap: Whether ranks compute while they communicate. False is the paper's HAP.
        search: How programs are searched: by frontier search; by frontier search of what `known` chose alone, which is quick; or
            by A*, which takes long for more than small graphs.
        max_states: How many states the frontier search keeps at one place.
        max_rounds: How often program and shares take turns at most.
        deadline_s: After how many seconds the search ends with the best that it has.
        progress: Called with each better plan.

    Raises:
        PlanError: No plan was found that fits into the memory of the ranks.
        KeyboardInterrupt: Ctrl-C, or the deadline, before there was one.
    """
    best = BestPlan(program, cluster, progress=progress, overlap=overlap, must_fit=True)
    planning = _Planning(program, cluster, best, None if deadline_s is None else time.monotonic() + deadline_s, overlap)
    with best.until_stopped():
        is_free = adapt_ratios and not whole_parameters
        planning.begin_with(known if known is not None else by_hand(program, cluster, _FIRST), is_free)
        planning.begin(search, max_states, whole_parameters)
        planning.take_turns(tuple(ratios or cluster.flops_ratios), adapt_ratios, max_rounds)
    return planning.best_plan()


class _Turn(NamedTuple):
    """A program that was found, and the problem that it solves."""

    problem: SynthesisProblem
    distributed: DistributedProgram
    solution: Solution


class _Made(NamedTuple):
    """How the best plan was made."""

    by: str
    solution: Solution | None
    ratios: tuple[float, ...]


class _Planning:
    """Keeps the best plan while program and shares take turns."""

    def __init__(self, program: TensorProgram, cluster: Cluster, best: BestPlan, deadline_s: float | None, overlap: bool) -> None:
        self._program = program
        self._cluster = cluster
        self._deadline_s = deadline_s
        self._weights = _OVERLAP_WEIGHTS if overlap else ()
        self._best = best
        self._made: _Made | None = None
        self._plans: list[Plan] = []
        self._tried: set[tuple[tuple[int, ...], tuple[float, ...]]] = set()
        self._kept_byte_s = 0.0
        self._done_ratio = 0.0

    def begin_with(self, known: Iterable[Plan], is_free: bool) -> None:
        """Offers known plans; if something is not free, only data parallel."""
        for plan in known:
            self._plans.append(plan)
            if is_free or plan.provenance.planner == "dp_proportional":
                self.try_plan(plan, _MADE_BY.get(plan.provenance.planner, plan.provenance.planner))

    def begin(self, search: Search, max_states: int, whole_parameters: bool) -> None:
        self._search = search
        self._frontier = Frontier(max_states)
        self._space = SynthesisSpace.of(self._program, whole_parameters)
        self._seeds = [
            replicated_assignment(self._program, self._space.strategies),
            *assignments_of(self._plans, self._space.strategies),
        ]
        self._check()

    def take_turns(self, ratios: tuple[float, ...], adapt_ratios: bool, max_rounds: int) -> None:
        """Program, shares, program, shares, until neither changes; with smaller and smaller parameters until a plan fits."""
        for kept_byte_s in _KEPT_BYTE_S:
            self._kept_byte_s = kept_byte_s
            self._take_turns(ratios, adapt_ratios, max_rounds)
            if self._best.has_plan:
                return

    def _take_turns(self, ratios: tuple[float, ...], adapt_ratios: bool, max_rounds: int) -> None:
        seen: set[tuple[float, ...]] = set()
        solutions: list[Solution] = []
        even = (1.0 / self._cluster.num_ranks,) * self._cluster.num_ranks
        while len(seen) < max_rounds and _rounded(ratios) not in seen:
            seen.add(_rounded(ratios))
            self._done_ratio = len(seen) / (max_rounds + 1)
            is_wide = self._search != "known" and len(seen) <= _NUM_WIDE
            turn = self._program_for(ratios) if is_wide else self._recombine(ratios, 1.0, *solutions)
            solutions.append(turn.solution)
            plan = self._try(turn, ratios)
            for weight in self._weights:
                weighted = self._recombine(ratios, weight, *solutions)
                for shares in (ratios, even) if adapt_ratios else (ratios,):
                    self._try_once(weighted, shares)
            if not adapt_ratios:
                return
            better = best_ratios(terms_of(plan, turn.distributed, self._space.costs, self._cluster), self._cluster)
            if better is None:
                return
            ratios = better.ratios
            self._try_once(turn, ratios)

    def _program_for(self, ratios: tuple[float, ...]) -> _Turn:
        """Searches everything."""
        problem = Pricing(self._space, self._cluster, ratios, self._kept_byte_s).problem()
        moves = moves_of(problem)
        if self._search == "a_star":
            return self._turn(problem, solve_by_a_star(moves, self._check))
        known, among = None, self._among(problem)
        if among:
            known = self._frontier.solve(moves, self._check, among=among)
        return self._turn(problem, self._frontier.solve(moves, self._check, known=known))

    def _recombine(self, ratios: tuple[float, ...], weight: float, *known: Solution) -> _Turn:
        """Searches only what is known, with another weight for communication during computation."""
        problem = Pricing(self._space, self._cluster, ratios, self._kept_byte_s, weight).problem()
        return self._turn(problem, self._frontier.solve(moves_of(problem), self._check, among=self._among(problem, *known)))

    def _among(self, problem: SynthesisProblem, *more: Solution) -> list[tuple[int, ...]]:
        """For each choice, what any of the known plans chose."""
        known = [numbers for seed in self._seeds if (numbers := alternatives_of(self._space, problem, seed))]
        columns = zip(*known, *(solution.numbers for solution in more), strict=True)
        return [tuple(sorted(set(numbers))) for numbers in columns]

    def _turn(self, problem: SynthesisProblem, solution: Solution) -> _Turn:
        return _Turn(problem, distributed_program(self._space, problem, solution.numbers), solution)

    def _try_once(self, turn: _Turn, ratios: tuple[float, ...]) -> None:
        if (turn.solution.numbers, _rounded(ratios)) not in self._tried:
            self._try(turn, ratios)

    def _try(self, turn: _Turn, ratios: tuple[float, ...]) -> Plan:
        self._tried.add((turn.solution.numbers, _rounded(ratios)))
        pricing = Pricing(self._space, self._cluster, ratios, self._kept_byte_s)
        plan = build_plan(self._space, pricing, turn.problem, turn.distributed, self._cluster, Provenance(planner="hap"))
        self.try_plan(plan, "A*" if self._search == "a_star" else "frontier search", turn.solution, ratios)
        return plan

    def try_plan(
        self, plan: Plan, made_by: str, solution: Solution | None = None, ratios: tuple[float, ...] | None = None
    ) -> None:
        """Keeps a plan if it is better."""
        if self._best.offer(plan):
            self._made = _Made(made_by, solution, ratios or ratios_of(plan) or self._cluster.flops_ratios)
            if self._best.has_plan:
                self._best.report(self._done_ratio)
        self._check()

    def _check(self) -> None:
        check_deadline(self._deadline_s)

    def best_plan(self) -> Plan:
        """The best plan.

        Raises:
            PlanError: No plan fits.
        """
        notes: dict[str, str] = {}
        if made := self._made:
            total = sum(made.ratios)
            notes |= {"ratios": ", ".join(f"{ratio / total:.4f}" for ratio in made.ratios), "found by": made.by}
            if made.solution:
                notes["is the optimum without overlap"] = "yes" if made.solution.is_optimal else "unknown: states were left out"
                notes["most states"] = str(made.solution.num_states)
        error = f"no plan of {self._program.name} was found that fits into the memory of {self._cluster.name}"
        return self._best.finish(error, Provenance(planner="hap", notes=notes))


def _rounded(ratios: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(ratio, 6) for ratio in ratios)
