"""Tessel's two searches, as a second opinion on ours.

`enumerate_schedules` is the paper's own; it shares neither solver nor model with `planners/modulo`. Every block of the repetend
is given the index of a microbatch, which never grows along a dependency. For each such candidate the blocks are put in order on
each device, by branch and bound; once the order is known, the earliest starts follow from longest paths. The repetend's blocks
need not start within one window of time for all devices, only for each.

Source: Tessel (HPCA'24), section 4; its candidates are those of one chain, ours also those of several branches.

`least_makespan` schedules all microbatches at once: exact, and exponential in their number. The paper compares its search with
it, and it checks ours: each further microbatch adds the period of a schedule without bubbles.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from dyorc.errors import PlanError
from dyorc.planner.planners.cp_sat import SolverStatus, solve
from dyorc.planner.planners.modulo.modulo_blocks import ModuloProblem
from dyorc.planner.planners.modulo.period_search import one_by_one
from dyorc.planner.planners.modulo.timeline import Entry, Repetend, UnrolledTimeline

_NEVER = -(10**9)


@dataclass(frozen=True, kw_only=True)
class EnumerationResult:
    """What the search found.

    Attributes:
        repetend: The best schedule: no candidate has a shorter period.
        num_tried: How many candidates were tried, for all periods together.
        took_s: How long it took.
    """

    repetend: Repetend
    num_tried: int
    took_s: float


def enumerate_schedules(problem: ModuloProblem, depth: int) -> EnumerationResult:
    """Tries all candidates, for longer and longer periods, until one fits.

    Args:
        problem: One microbatch.
        depth: From how many microbatches a repetend's blocks may be (N_R).

    Raises:
        PlanError: Not even one microbatch fits into the memory.
    """
    began_s, num_tried = time.perf_counter(), 0
    for period in range(problem.load, sum(block.span for block in problem.blocks) + 1):
        for indices in candidates(problem, depth):
            num_tried += 1
            starts = _Candidate(problem, period, indices).starts()
            if starts is not None:
                repetend = _repetend(problem, period, indices, starts)
                return EnumerationResult(repetend=repetend, num_tried=num_tried, took_s=time.perf_counter() - began_s)
    raise PlanError("not even one microbatch fits into the memory")


def candidates(problem: ModuloProblem, depth: int) -> Iterator[tuple[int, ...]]:
    """Yields how many microbatches before the latest of the repetend each block's is; groups of blocks begin with 0."""
    at = {block.name: number for number, block in enumerate(problem.blocks)}
    roots = {names[0] for names in problem.roots}

    def extend(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == len(problem.blocks):
            yield chosen
            return
        block = problem.blocks[len(chosen)]
        least = max((chosen[at[name]] for name in block.after), default=0)
        for index in [0] if block.name in roots else range(least, depth):
            yield from extend((*chosen, index))

    return extend(())


def _repetend(problem: ModuloProblem, period: int, ages: Sequence[int], starts: Sequence[int]) -> Repetend:
    times = {block.name: start + period * age for block, start, age in zip(problem.blocks, starts, ages, strict=True)}
    first = min(times.values())
    return Repetend(problem, period, {name: start - first for name, start in times.items()})


class _Candidate:
    """Puts the blocks of one candidate in order. `longest[i][j]`: how much later than i block j must start at least."""

    def __init__(self, problem: ModuloProblem, period: int, ages: tuple[int, ...]) -> None:
        self._problem = problem
        self._period = period
        self._ages = ages
        self._size = len(problem.blocks)
        self._spans = [block.span for block in problem.blocks]

    def starts(self) -> list[int] | None:
        """Returns when each block starts, or None if no order fits the period."""
        longest = [[0 if i == j else _NEVER for j in range(self._size)] for i in range(self._size)]
        at = {block.name: number for number, block in enumerate(self._problem.blocks)}
        for block in self._problem.blocks:
            for name in block.after:
                u, v = at[name], at[block.name]
                if not self._add(longest, u, v, self._spans[u] - self._period * (self._ages[v] - self._ages[u])):
                    return None
        for name, later in self._problem.carried:
            u, v = at[name], at[later]
            if not self._add(longest, u, v, self._spans[u] - self._period * (self._ages[v] - self._ages[u] + 1)):
                return None
        pairs = [(at[p.name], at[q.name]) for p, q in self._problem.pairs]
        for p, q in pairs:  # on each device, all blocks are in one window as long as the period
            if not all(
                self._add(longest, first, second, self._spans[first] - self._period) for first, second in ((p, q), (q, p))
            ):
                return None
        return self._ordered(longest, {}, pairs)

    def _ordered(
        self, longest: list[list[int]], order: Mapping[tuple[int, int], bool], pairs: Sequence[tuple[int, int]]
    ) -> list[int] | None:
        """Decides pair after pair; first those for which only one order is left."""
        order, pairs = dict(order), list(pairs)
        while True:
            open_pairs: list[tuple[int, int]] = []
            for p, q in pairs:
                can_p, can_q = self._can_precede(longest, p, q), self._can_precede(longest, q, p)
                if not can_p and not can_q:
                    return None
                if can_p and can_q:
                    open_pairs.append((p, q))
                elif not self._decide(longest, order, p if can_p else q, q if can_p else p):
                    return None
            if len(open_pairs) == len(pairs):
                break
            pairs = open_pairs
        if not self._fits(order):
            return None
        if not pairs:
            return [max(row[block] for row in longest) for block in range(self._size)]
        for first, second in (pairs[0], pairs[0][::-1]):
            copy, decided = [row[:] for row in longest], dict(order)
            if self._decide(copy, decided, first, second) and (starts := self._ordered(copy, decided, pairs[1:])) is not None:
                return starts
        return None

    def _can_precede(self, longest: list[list[int]], p: int, q: int) -> bool:
        return longest[q][p] <= -self._spans[p] and longest[p][q] <= self._period - self._spans[q]

    def _decide(self, longest: list[list[int]], order: dict[tuple[int, int], bool], p: int, q: int) -> bool:
        order[p, q], order[q, p] = True, False
        return self._add(longest, p, q, self._spans[p]) and self._add(longest, q, p, self._spans[q] - self._period)

    def _add(self, longest: list[list[int]], i: int, j: int, weight: int) -> bool:
        """Adds that j starts at least `weight` later than i; False if that is a contradiction."""
        if longest[i][j] >= weight:
            return True
        if longest[j][i] + weight > 0:
            return False
        after = longest[j]
        for row in longest:
            if row[i] > _NEVER:
                base = row[i] + weight
                for k in range(self._size):
                    if after[k] > _NEVER and base + after[k] > row[k]:
                        row[k] = base + after[k]
        return True

    def _fits(self, order: Mapping[tuple[int, int], bool]) -> bool:
        """Whether the memory can still be enough: undecided pairs are taken for what needs least."""
        blocks, ages = self._problem.blocks, self._ages
        for resource, room in self._problem.capacities.items():
            mine = [at for at, block in enumerate(blocks) if resource in block.resources and block.memory]
            held = -sum(blocks[at].memory * ages[at] for at in mine)
            for now in mine:
                least = [blocks[at].memory if order.get((at, now), blocks[at].memory < 0) else 0 for at in mine if at != now]
                if held + blocks[now].memory + sum(least) > room:
                    return False
        return True


@dataclass(frozen=True, kw_only=True)
class MakespanSchedule:
    """What the search found.

    Attributes:
        timeline: The best schedule.
        is_optimal: Whether no other ends sooner.
        took_s: How long it took.
    """

    timeline: UnrolledTimeline
    is_optimal: bool
    took_s: float


def least_makespan(problem: ModuloProblem, num_parts: int, *, work: float = 30.0) -> MakespanSchedule:
    """Searches for the schedule of some microbatches that ends first.

    Args:
        problem: One microbatch.
        num_parts: How many there are.
        work: CP-SAT's deterministic time.

    Raises:
        PlanError: Nothing was found in that time.
    """
    began_s = time.perf_counter()
    model, horizon = cp_model.CpModel(), one_by_one(problem).period * num_parts
    parts, blocks = range(num_parts), problem.blocks
    starts = {(block.name, part): model.new_int_var(0, horizon - block.span, "") for block in blocks for part in parts}
    for block in blocks:
        for part in parts:
            for name in block.after:
                model.add(starts[name, part] + problem.by_name[name].span <= starts[block.name, part])
            if part:  # microbatches are alike
                model.add(starts[block.name, part - 1] <= starts[block.name, part])
    for resource in problem.resources:
        mine = [(block, part) for block in problem.on(resource) for part in parts]
        model.add_no_overlap([model.new_fixed_size_interval_var(starts[b.name, part], b.span, "") for b, part in mine])
        if resource in problem.capacities:
            times, changes = [starts[b.name, part] for b, part in mine], [b.memory for b, _ in mine]
            model.add_reservoir_constraint(times, changes, 0, problem.capacities[resource])
    end = model.new_int_var(0, horizon, "end")
    for block in blocks:
        model.add(starts[block.name, num_parts - 1] + block.span <= end)
    model.minimize(end)
    solved = solve(model, limit=work)
    if not solved.has_solution:
        raise PlanError(f"no schedule of {num_parts} microbatches was found within {work:g} units of work")
    entries = sorted((solved.value(starts[b.name, part]), part, at) for at, b in enumerate(blocks) for part in parts)
    timeline = UnrolledTimeline(problem, tuple(Entry(start, part, blocks[at]) for start, part, at in entries))
    return MakespanSchedule(
        timeline=timeline, is_optimal=solved.outcome is SolverStatus.OPTIMAL, took_s=time.perf_counter() - began_s
    )
