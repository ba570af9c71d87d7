"""Finds the shortest period by CP-SAT, and for that period the schedule with the least latency.

Of each block the model knows s, when it starts within the period, and k, how many periods earlier its repetition began, so that
it starts at s + T k. Per pair of blocks on one resource it knows which s is smaller. With that everything is linear:

* u before v: s_u + T k_u + span_u <= s_v + T k_v.
* u of the repetition before v: the same with one more period on the right.
* p and q on one resource, s_p smaller: s_p + span_p <= s_q and s_q + span_q <= s_p + T, or the next p would come too early.
* Memory when c starts: sum over i of memory_i ([s_i <= s_c] - k_i), since each repetition gives back all it takes.

A longer period than a feasible one is feasible, too: the same s and k fit it, because k never falls along a dependency, and by
one at most to the next repetition. So the period is found by bisection.

The search begins with a schedule that needs none (`best_without_search`), and returns it if it finds nothing better.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ortools.sat.python import cp_model

from dyorc.errors import PlanError
from dyorc.planner.plan import SearchEnd
from dyorc.planner.planners.cp_sat import CpSatSolution, SolverStatus, solve
from dyorc.planner.planners.ending import end_of
from dyorc.planner.planners.modulo.modulo_blocks import ModuloBlock, ModuloProblem
from dyorc.planner.planners.modulo.timeline import PeriodSearchResult, Repetend

_MAX_TRIED = 32


def one_by_one(problem: ModuloProblem) -> Repetend:
    """Returns the schedule in which each repetition begins when the one before has ended.

    Raises:
        PlanError: Not even one repetition fits into the memory.
    """
    starts: dict[str, int] = {}
    free: dict[str, int] = {}
    for block in problem.blocks:
        ready = [starts[name] + problem.by_name[name].span for name in block.after]
        starts[block.name] = max([free.get(resource, 0) for resource in block.resources] + ready, default=0)
        free |= dict.fromkeys(block.resources, starts[block.name] + block.span)
    serial = Repetend(problem, max(starts[block.name] + block.span for block in problem.blocks), starts)
    for resource, peak in serial.peaks.items():
        if peak > (room := problem.capacities.get(resource, peak)):
            raise PlanError(f"one repetition alone needs {peak:,} units of memory on {resource}, which has {room:,}")
    return serial


def as_soon_as_possible(problem: ModuloProblem, period: int, max_depth: int) -> Repetend | None:
    """Places each block as early as its resources allow in every period; None if that does not work out.

    Args:
        problem: What is scheduled.
        period: When the next repetition starts after each.
        max_depth: Blocks of how many repetitions may be in one period.
    """
    taken: dict[str, set[int]] = {resource: set() for resource in problem.resources}
    starts: dict[str, int] = {}
    for block in problem.blocks:
        ready = max((starts[name] + problem.by_name[name].span for name in block.after), default=0)
        places = (at for at in range(ready, ready + period) if _fits(taken, block.resources, at, block.span, period))
        start = next(places, None)
        if start is None:
            return None
        starts[block.name] = start
        for resource in block.resources:
            taken[resource].update((start + step) % period for step in range(block.span))
    repetend = Repetend(problem, period, starts)
    is_small = all(peak <= problem.capacities.get(resource, peak) for resource, peak in repetend.peaks.items())
    is_apart = all(starts[name] + problem.by_name[name].span <= starts[later] + period for name, later in problem.carried)
    return repetend if is_small and is_apart and repetend.depth <= max_depth else None


def _fits(taken: Mapping[str, set[int]], resources: tuple[str, ...], start: int, span: int, period: int) -> bool:
    if span > period:
        return False
    steps = [(start + step) % period for step in range(span)]
    return all(taken[resource].isdisjoint(steps) for resource in resources)


def best_without_search(problem: ModuloProblem, max_depth: int) -> Repetend:
    """Returns the better of the two: what `as_soon_as_possible` finds for the shortest of some periods, or `one_by_one`.

    Raises:
        PlanError: Not even one repetition fits into the memory.
    """
    serial = one_by_one(problem)
    step = max(1, (serial.period - problem.load) // _MAX_TRIED)
    candidates = (as_soon_as_possible(problem, period, max_depth) for period in range(problem.load, serial.period, step))
    return next((candidate for candidate in candidates if candidate), serial)


PeriodCallback = Callable[[int, int], None]
"""Called with the proved lower bound of the period, and the best period so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodSearchLimits:
    """How far a search goes.

    Attributes:
        depth: Blocks of how many repetitions may be in one period: Tessel's N_R.
        work: CP-SAT's deterministic time for each period that is tried, and for the latency.
        shorten: Whether the latency is minimised once the period is known.
    """

    depth: int = 12
    work: float = 5.0
    shorten: bool = True


def shortest_period(
    problem: ModuloProblem, limits: PeriodSearchLimits | None = None, on_change: PeriodCallback = lambda bound, best: None
) -> PeriodSearchResult:
    """Searches for the shortest period.

    Ctrl-C ends the search with the best schedule so far.

    Args:
        problem: What is scheduled.
        limits: How far the search goes.
        on_change: Called with each change of the bound and of the best period.

    Raises:
        PlanError: Not even one repetition fits into the memory.
    """
    return _Search(problem, limits or PeriodSearchLimits(), on_change).run()


class _Search:
    def __init__(self, problem: ModuloProblem, limits: PeriodSearchLimits, on_change: PeriodCallback) -> None:
        self._problem = problem
        self._limits = limits
        self._on_change = on_change
        self._bound = problem.load
        self._ended = SearchEnd.FINISHED
        self._num_solved = 0

    def run(self) -> PeriodSearchResult:
        began_s = time.perf_counter()
        best = best_without_search(self._problem, self._limits.depth)
        self._on_change(self._bound, best.period)
        try:
            for better in self._better(best):
                best = better
                self._on_change(self._bound, best.period)
            if self._limits.shorten and self._ended is SearchEnd.FINISHED:
                _, shorter = self._schedule(best.period, best)
                best = shorter or best
        except KeyboardInterrupt as stop:  # between two searches of the solver, which hears it itself
            self._ended = end_of(stop)
        return PeriodSearchResult(
            repetend=best,
            bound=self._bound,
            ended=self._ended,
            took_s=time.perf_counter() - began_s,
            num_solved=self._num_solved,
        )

    def _better(self, best: Repetend) -> Iterator[Repetend]:
        """Yields the best schedule after each search."""
        low, high = self._problem.load, best.period  # periods below `low` are infeasible, or were given up
        while low < high and self._ended is SearchEnd.FINISHED:
            period = low if low == self._problem.load else (low + high) // 2  # the least one is mostly feasible
            outcome, repetend = self._schedule(period)
            if repetend:
                best, high = repetend, period
            else:
                if outcome is SolverStatus.INFEASIBLE:
                    self._bound = period + 1
                low = period + 1
            yield best

    def _schedule(self, period: int, shorten: Repetend | None = None) -> tuple[SolverStatus, Repetend | None]:
        """Searches for any schedule of a period, or for the one of least latency."""
        model = _Model(self._problem, period, max(self._limits.depth, shorten.depth if shorten else 1))
        if shorten:
            model.shorten(shorten)
        solved = solve(model.model, limit=self._limits.work)
        self._num_solved += 1
        if solved.ended is not SearchEnd.FINISHED:
            self._ended = solved.ended
        return solved.outcome, model.read(solved) if solved.has_solution else None


class _Model:
    def __init__(self, problem: ModuloProblem, period: int, depth: int) -> None:
        self.model = cp_model.CpModel()
        self._problem = problem
        self._period = period
        blocks, model = problem.blocks, self.model
        self._s = {block.name: model.new_int_var(0, period - 1, f"s {block.name}") for block in blocks}
        self._k = {block.name: model.new_int_var(0, depth - 1, f"k {block.name}") for block in blocks}
        self._is_first: dict[tuple[str, str], cp_model.LiteralT] = {}
        for block in blocks:
            for name in block.after:
                model.add(self._start(name) + problem.by_name[name].span <= self._start(block.name))
        for name, later in problem.carried:
            model.add(self._start(name) + problem.by_name[name].span <= self._start(later) + period)
        for p, q in problem.pairs:
            self._apart(p, q)
        for resource in problem.resources:
            self._turns(resource)
        for resource in problem.capacities.keys() & set(problem.resources):
            self._limit(resource)
        for number, roots in enumerate(problem.roots):
            if (
                len(roots) == 1
            ):  # what nothing else waits for may be shifted by whole periods, and everything together by any time
                model.add(self._k[roots[0]] == 0)
                if not number:
                    model.add(self._s[roots[0]] == 0)

    def _start(self, name: str) -> cp_model.LinearExpr:
        return self._s[name] + self._period * self._k[name]

    def _apart(self, p: ModuloBlock, q: ModuloBlock) -> None:
        s, model = self._s, self.model
        is_first = model.new_bool_var(f"{p.name} < {q.name}")
        self._is_first[p.name, q.name], self._is_first[q.name, p.name] = is_first, is_first.negated()
        for first, second, when in ((p, q, is_first), (q, p, is_first.negated())):
            model.add(s[first.name] + first.span <= s[second.name]).only_enforce_if(when)
            model.add(s[second.name] + second.span <= s[first.name] + self._period).only_enforce_if(when)

    def _turns(self, resource: str) -> None:
        """What the order of pairs says already, once more in a form from which the solver sees more at once."""
        twice = [
            self.model.new_fixed_size_interval_var(self._s[block.name] + shift, block.span, f"{block.name} on {resource}")
            for block in self._problem.on(resource)
            for shift in (0, self._period)
        ]
        self.model.add_no_overlap(twice)

    def _limit(self, resource: str) -> None:
        mine = [block for block in self._problem.on(resource) if block.memory]
        held = sum(-block.memory * self._k[block.name] for block in mine)
        for now in mine:
            if now.memory > 0:
                before = [block.memory * self._is_first[block.name, now.name] for block in mine if block is not now]
                self.model.add(held + now.memory + cp_model.LinearExpr.sum(before) <= self._problem.capacities[resource])

    def shorten(self, hint: Repetend) -> None:
        """Asks for the least latency."""
        end = self.model.new_int_var(0, max(hint.starts.values()) + hint.latency, "end")
        begin = self.model.new_int_var(0, max(hint.starts.values()), "begin")
        for block in self._problem.blocks:
            self.model.add(self._start(block.name) + block.span <= end)
            self.model.add(self._start(block.name) >= begin)
            k, s = divmod(hint.starts[block.name], self._period)
            self.model.add_hint(self._s[block.name], s)
            self.model.add_hint(self._k[block.name], k)
        self.model.add(end - begin <= hint.latency)
        self.model.minimize(end - begin)

    def read(self, solved: CpSatSolution) -> Repetend:
        starts = {block.name: solved.value(self._start(block.name)) for block in self._problem.blocks}
        first = min(starts.values()) // self._period * self._period
        return Repetend(self._problem, self._period, {name: start - first for name, start in starts.items()})
