"""Plans pipelines: tries placements, searches the schedule of least idle time for each, and keeps the plan that is quickest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan, SearchEnd
from dyorc.planner.plan.rewrites import communicate_early
from dyorc.planner.planners.baselines.assemble import build_plan
from dyorc.planner.planners.baselines.data_parallel import parts_along
from dyorc.planner.planners.baselines.follow import Choices, batch_of, choices_of
from dyorc.planner.planners.baselines.pipeline import order_passes
from dyorc.planner.planners.ending import end_of
from dyorc.planner.planners.modulo.period_search import PeriodSearchLimits, shortest_period
from dyorc.planner.planners.modulo.timeline import Entry, PeriodSearchResult, UnrolledTimeline
from dyorc.planner.planners.modulo.warm_up import with_ends
from dyorc.planner.planners.pricing import price_plan
from dyorc.planner.planners.tessel.passes import Passes
from dyorc.planner.planners.tessel.placements import PLACEMENTS
from dyorc.planner.program import Shard, TensorProgram

_MICROBATCHES_PER_RANK = 4
_WORK = 1.0
"""CP-SAT's deterministic time for each period that is tried."""


def tessel(
    program: TensorProgram,
    cluster: Cluster,
    *,
    placements: Sequence[str] = tuple(PLACEMENTS),
    microbatches: int | None = None,
    depth: int = 12,
    progress: Callable[[float, float | None], None] = lambda done_ratio, cost_s: None,
) -> Plan:
    """Plans a pipeline.

    Ctrl-C ends the search with the best plan so far.

    Args:
        program: What is planned.
        cluster: Where it runs.
        placements: Names in `PLACEMENTS`; a placement that does not fit the program is left out.
        microbatches: How many parts of the batch go through the pipeline; by default the most that the batch can be cut into, up
            to four for each rank.
        depth: Of how many microbatches blocks may be in one period (N_R).
        progress: Called with the part of the search that is done, and the simulated seconds of the best plan so far.

    Raises:
        PlanError: None of the placements fits.
    """
    for name in placements:
        if name not in PLACEMENTS:
            raise PlanError(f"unknown placement {name!r}; choose from {', '.join(PLACEMENTS)}")
    choices = choices_of(program)
    num_parts = microbatches or _most_parts(choices, _MICROBATCHES_PER_RANK * cluster.num_ranks)
    search = _Search(choices, cluster, num_parts, depth)
    best: Plan | None = None
    errors: list[str] = []
    for number, name in enumerate(placements):
        progress(number / len(placements), best.provenance.cost_s if best else None)
        try:
            plan = search.plan(name)
        except PlanError as error:
            errors.append(f"  {name}: {error}")
            continue
        except KeyboardInterrupt as stop:
            if best is None:
                raise
            return _with_end(best, end_of(stop))
        if best is None or (plan.provenance.cost_s or 0.0) < (best.provenance.cost_s or 0.0):
            best = plan
        if plan.provenance.ended is not SearchEnd.FINISHED:
            return _with_end(best, plan.provenance.ended)
    if best is None:
        raise PlanError(f"no placement of a pipeline fits {program.name} on {cluster.name}:\n" + "\n".join(errors))
    return best


def _with_end(plan: Plan, ended: SearchEnd) -> Plan:
    return replace(plan, provenance=replace(plan.provenance, ended=ended))


@dataclass(frozen=True)
class _Search:
    choices: Choices
    cluster: Cluster
    num_parts: int
    depth: int

    def plan(self, placement: str) -> Plan:
        """Returns the plan of one placement.

        Raises:
            PlanError: The program is not made so, or a microbatch does not fit into the memory.
        """
        program = self.choices.program
        stages = PLACEMENTS[placement](self.choices, self.cluster.num_ranks)
        time = parts_along(self.choices, self.num_parts)
        passes = Passes(self.choices, stages, self.num_parts, self.cluster)
        result = shortest_period(passes.problem(), PeriodSearchLimits(depth=self.depth, work=_WORK))
        ends = with_ends(result.repetend, work=_WORK if result.ended is SearchEnd.FINISHED else 0.0)
        timeline = ends.unroll(self.num_parts)
        turns = passes.turns()
        queue = [replace(turns[e.block.name], part=e.part) for e in _sorted(timeline) if e.block.name in turns]
        order = order_passes(self.choices, time[0], stages, [queue])
        if order is None:
            raise PlanError(
                f"microbatches of {program.name} depend on each other, so that they cannot follow each other in a pipeline"
            )
        # A rank begins to send when it reaches the step: in any other order, the next stage waits for what has long been made.
        early = communicate_early(build_plan(self.choices, time, stages, order, "tessel", self.cluster))
        plan = price_plan(early, program, self.cluster).plan
        notes = self._notes(placement, result, timeline)
        return replace(plan, provenance=replace(plan.provenance, ended=max(result.ended, ends.ended, key=_is_early), notes=notes))

    def _notes(self, placement: str, result: PeriodSearchResult, timeline: UnrolledTimeline) -> dict[str, str]:
        repetend = result.repetend
        bound = "the least possible" if result.is_optimal else f"at least {result.bound}"
        return {
            "placement": placement,
            "microbatches": str(self.num_parts),
            "period": f"{repetend.period} units of time; the busiest rank idles {repetend.bubbles}; {bound}",
            "microbatches in a period": str(repetend.depth),
            "idle": f"{1 - repetend.problem.load * self.num_parts / timeline.makespan:.1%} of the step on the busiest rank",
        }


def _is_early(ended: SearchEnd) -> bool:
    return ended is not SearchEnd.FINISHED


def _sorted(timeline: UnrolledTimeline) -> list[Entry]:
    return sorted(timeline.entries, key=lambda entry: entry.start)


def _most_parts(choices: Choices, limit: int) -> int:
    """The most microbatches, up to a limit, into which the batch can be cut evenly.

    Raises:
        PlanError: Not even into two.
    """
    batch = batch_of(choices)
    extents = {choices.axes.extent_of(name, placement.dim) for name, placement in batch.items() if isinstance(placement, Shard)}
    rows = max(extents, default=1)
    num_parts = max(parts for parts in range(1, limit + 1) if rows % parts == 0)
    if num_parts == 1:
        raise PlanError(f"a pipeline needs microbatches, and the batch of {choices.program.name} has {rows} rows")
    return num_parts
