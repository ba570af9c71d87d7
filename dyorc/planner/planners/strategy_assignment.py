"""The strategies that a plan chose along one axis of ranks, so that one planner can continue from another's plan."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dyorc.planner.plan import Apply, Plan
from dyorc.planner.program import REPLICATE, Placement, Shard, Strategy, TensorProgram


@dataclass(frozen=True)
class StrategyAssignment:
    """Which strategy each node takes along the ranks, and how each source lies."""

    strategies: Mapping[str, Strategy]
    sources: Mapping[str, Placement]


def assignment_of(plan: Plan, strategies: Mapping[str, Sequence[Strategy]]) -> StrategyAssignment | None:
    """Reads the choices of a plan; None if it has several meshes, or more than one axis of ranks.

    Args:
        plan: Of any planner; an axis of time does not matter.
        strategies: All that each node has.
    """
    if len(plan.meshes) != 1:
        return None
    axes = next(iter(plan.meshes.values())).axes
    in_space = [index for index, axis in enumerate(axes) if not axis.is_time]
    if len(in_space) != 1:
        return None
    placements = {name: without_sizes(placed.layout[in_space[0]]) for name, placed in plan.tensors.items()} | {"": REPLICATE}
    chosen: dict[str, Strategy] = {}
    for step in plan.steps:
        if isinstance(step, Apply) and step.node not in chosen:
            around = tuple(placements[each] for each in step.inputs), tuple(placements[each] for each in step.outputs)
            fitting = [s for s in strategies[step.node] if (s.inputs, s.outputs) == around]
            chosen |= {step.node: fitting[0]} if fitting else {}
    return StrategyAssignment(chosen, {value: placements[ids[0]] for value, ids in plan.sources.items()})


def replicated_assignment(program: TensorProgram, strategies: Mapping[str, Sequence[Strategy]]) -> StrategyAssignment:
    """Returns the assignment that needs no communication: every rank computes everything."""
    return StrategyAssignment({name: ways[0] for name, ways in strategies.items()}, dict.fromkeys(program.sources, REPLICATE))


def assignments_of(plans: Iterable[Plan], strategies: Mapping[str, Sequence[Strategy]]) -> list[StrategyAssignment]:
    """Reads the choices of several plans, each different one once."""
    assignments: list[StrategyAssignment] = []
    for plan in plans:
        assignment = assignment_of(plan, strategies)
        if assignment and assignment not in assignments:
            assignments.append(assignment)
    return assignments


def strategies_by_node(assignments: Iterable[StrategyAssignment]) -> dict[str, set[Strategy]]:
    """Every strategy that any of the assignments has, by node, for a search to recombine."""
    by_node: dict[str, set[Strategy]] = {}
    for assignment in assignments:
        for node, strategy in assignment.strategies.items():
            by_node.setdefault(node, set()).add(strategy)
    return by_node


def ratios_of(plan: Plan) -> tuple[float, ...] | None:
    """The shares of a plan, read off the tensor that is cut in most units; None if nothing is cut."""
    sizes = [
        placement.sizes
        for placed in plan.tensors.values()
        for placement, axis in zip(placed.layout, plan.meshes[placed.mesh].axes, strict=True)
        if isinstance(placement, Shard) and placement.sizes and not axis.is_time
    ]
    return tuple(map(float, max(sizes, key=sum))) if sizes else None


def without_sizes(placement: Placement) -> Placement:
    """A shard without its sizes."""
    return Shard(placement.dim) if isinstance(placement, Shard) else placement
