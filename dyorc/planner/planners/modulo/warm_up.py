"""Warm-up and cool-down: what comes before the first whole period and after the last.

Cutting off the periods at both ends is a warm-up and a cool-down, too, but each block then waits for its turn in a period that
is not full. Here both are scheduled by themselves, once for any number of repetitions.
"""

import itertools
from dataclasses import dataclass

from ortools.sat.python import cp_model

from dyorc.planner.plan import SearchEnd
from dyorc.planner.planners.cp_sat import solve
from dyorc.planner.planners.modulo.modulo_blocks import ModuloBlock, ModuloProblem
from dyorc.planner.planners.modulo.timeline import Repetend, UnrolledTimeline, in_order

Order = list[tuple[int, ModuloBlock]]


@dataclass(frozen=True)
class PipelinedSchedule:
    """A schedule of any number of repetitions.

    Attributes:
        repetend: What is repeated.
        warm_up: What is done before the first whole period, in order.
        cool_down: What is done after the last if there are as many repetitions as `repetend.depth`, in order.
        ended: How the search for both ended.
    """

    repetend: Repetend
    warm_up: Order
    cool_down: Order
    ended: SearchEnd = SearchEnd.FINISHED

    def unroll(self, num_parts: int) -> UnrolledTimeline:
        """Schedules a number of repetitions: the better of this and of periods that are cut off at both ends."""
        plain, more = self.repetend.unroll(num_parts), num_parts - self.repetend.depth
        if more < 0:
            return plain
        steady = [(part + period, block) for period in range(more + 1) for part, block in _window(self.repetend)]
        order = [*self.warm_up, *steady, *((part + more, block) for part, block in self.cool_down)]
        return min(plain, in_order(self.repetend.problem, order), key=lambda timeline: timeline.makespan)


def _window(repetend: Repetend) -> Order:
    """The blocks of the first whole period."""
    placed = [(*divmod(repetend.starts[block.name], repetend.period), block) for block in repetend.problem.blocks]
    at = {block.name: number for number, block in enumerate(repetend.problem.blocks)}
    placed.sort(key=lambda one: (one[1], at[one[2].name]))
    return [(repetend.depth - 1 - k, block) for k, _, block in placed]


def with_ends(repetend: Repetend, *, work: float = 2.0) -> PipelinedSchedule:
    """Schedules warm-up and cool-down so that as many repetitions as are in one period end as early as possible.

    Args:
        repetend: What is repeated.
        work: CP-SAT's deterministic time. If it is not enough, the best schedule so far is kept.
    """
    problem, plain = repetend.problem, repetend.unroll(repetend.depth)
    steady = {block.name: part for part, block in _window(repetend)}
    model = cp_model.CpModel()
    starts = {
        (entry.block.name, entry.part): model.new_int_var(0, plain.makespan - entry.block.span, "") for entry in plain.entries
    }
    for entry in plain.entries:
        model.add_hint(starts[entry.block.name, entry.part], entry.start)
        for name in entry.block.after:
            model.add(starts[name, entry.part] + problem.by_name[name].span <= starts[entry.block.name, entry.part])
        for name, later in problem.carried:
            if later == entry.block.name and entry.part:
                model.add(starts[name, entry.part - 1] + problem.by_name[name].span <= starts[later, entry.part])
    _keep_window(model, starts, repetend, steady)
    _keep_resources(model, starts, problem, repetend.depth)
    end = model.new_int_var(0, plain.makespan, "end")
    for entry in plain.entries:
        model.add(starts[entry.block.name, entry.part] + entry.block.span <= end)
    model.minimize(end)
    solved = solve(model, limit=work)
    time_of = {key: solved.value(start) for key, start in starts.items()} if solved.has_solution else {}
    if not time_of:
        time_of = {(entry.block.name, entry.part): entry.start for entry in plain.entries}
    order = sorted(plain.entries, key=lambda entry: time_of[entry.block.name, entry.part])
    warm_up = [(entry.part, entry.block) for entry in order if entry.part < steady[entry.block.name]]
    cool_down = [(entry.part, entry.block) for entry in order if entry.part > steady[entry.block.name]]
    return PipelinedSchedule(repetend, warm_up, cool_down, solved.ended)


def _keep_window(
    model: cp_model.CpModel, starts: dict[tuple[str, int], cp_model.IntVar], repetend: Repetend, steady: dict[str, int]
) -> None:
    """On each resource the warm-up comes first, then the whole period in its own order, then the cool-down."""
    spans = {block.name: block.span for block in repetend.problem.blocks}
    for resource in repetend.problem.resources:
        line = [(part, block) for part, block in _window(repetend) if resource in block.resources]
        for (part, block), (later, other) in itertools.pairwise(line):
            model.add(starts[block.name, part] + block.span <= starts[other.name, later])
        (first_part, first), (last_part, last) = line[0], line[-1]
        for name in (block.name for _, block in line):
            for part in range(repetend.depth):
                if part < steady[name]:
                    model.add(starts[name, part] + spans[name] <= starts[first.name, first_part])
                elif part > steady[name]:
                    model.add(starts[last.name, last_part] + last.span <= starts[name, part])


def _keep_resources(
    model: cp_model.CpModel, starts: dict[tuple[str, int], cp_model.IntVar], problem: ModuloProblem, num_parts: int
) -> None:
    for resource in problem.resources:
        mine = [(block, part) for block in problem.on(resource) for part in range(num_parts)]
        intervals = [model.new_fixed_size_interval_var(starts[block.name, part], block.span, "") for block, part in mine]
        model.add_no_overlap(intervals)
        if resource in problem.capacities:
            times = [starts[block.name, part] for block, part in mine]
            model.add_reservoir_constraint(times, [block.memory for block, _ in mine], 0, problem.capacities[resource])
