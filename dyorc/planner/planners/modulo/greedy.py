"""Schedules without a search: what the search begins with, and what is kept if it finds nothing better."""

from collections.abc import Mapping

from dyorc.errors import PlanError
from dyorc.planner.planners.modulo.modulo_blocks import ModuloProblem
from dyorc.planner.planners.modulo.timeline import Repetend

_MAX_TRIED = 32


def one_by_one(problem: ModuloProblem) -> Repetend:
    """Returns the schedule in which each repetition begins when the one before has ended.

    Raises:
        PlanError: Not even one repetition fits into the memory.
    """
    starts: dict[str, int] = {}
    free: dict[str, int] = {}
    for block in problem.blocks:
        ready = [starts[name] + problem.named[name].span for name in block.after]
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
        ready = max((starts[name] + problem.named[name].span for name in block.after), default=0)
        places = (at for at in range(ready, ready + period) if _fits(taken, block.resources, at, block.span, period))
        start = next(places, None)
        if start is None:
            return None
        starts[block.name] = start
        for resource in block.resources:
            taken[resource].update((start + step) % period for step in range(block.span))
    repetend = Repetend(problem, period, starts)
    is_small = all(peak <= problem.capacities.get(resource, peak) for resource, peak in repetend.peaks.items())
    is_apart = all(starts[name] + problem.named[name].span <= starts[later] + period for name, later in problem.carried)
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
