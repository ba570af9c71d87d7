"""The schedule of all microbatches at once, of least makespan: exact, and exponential in their number. What the paper compares
its search with, and a check of ours: each further microbatch adds the period of a schedule without bubbles.
"""

import time
from dataclasses import dataclass

from ortools.sat.python import cp_model

from dyorc.errors import PlanError
from dyorc.planner.planners.cp_sat import SolverStatus, solve
from dyorc.planner.planners.modulo.modulo_blocks import ModuloProblem
from dyorc.planner.planners.modulo.period_search import one_by_one
from dyorc.planner.planners.modulo.timeline import Entry, UnrolledTimeline


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
                model.add(starts[name, part] + problem.named[name].span <= starts[block.name, part])
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
