"""What every rank of a mesh computes whole, although the mesh has several: the same work, done again by each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan.plan import Plan
from dyorc.planner.plan.steps import Apply
from dyorc.planner.program import Node, Replicate, Shard, Value
from dyorc.planner.program.costs import NodeCost, cost_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedOperation:
    """All steps of one operation that stay whole on every rank.

    Attributes:
        op: ATen's name.
        num_steps: How many steps there are.
        flops_share: Of the arithmetic of all operations, each counted as one device computes it, from 0 to 1.
        bytes_share: Of the bytes that they read and write, likewise.
        seconds: What the slowest rank needs for them in one step of training; None without a cluster.
    """

    op: str
    num_steps: int
    flops_share: float
    bytes_share: float
    seconds: float | None


def repeated_operations(plan: Plan, cluster: Cluster | None = None) -> tuple[RepeatedOperation, ...]:
    """Returns the operations that stay whole on every rank, the most bytes first; free operations are left out.

    Args:
        plan: Whose steps are looked at.
        cluster: Says how long they take.
    """
    steps: dict[str, list[tuple[Apply, NodeCost]]] = {}
    flops = num_bytes = 0.0
    for step, cost in _costs(plan):
        flops, num_bytes = flops + cost.flops, num_bytes + cost.num_bytes
        if cost.num_bytes and _is_whole(plan, step):
            steps.setdefault(step.op, []).append((step, cost))
    operations = [
        RepeatedOperation(
            op=op,
            num_steps=len(each),
            flops_share=sum(cost.flops for _, cost in each) / max(flops, 1.0),
            bytes_share=sum(cost.num_bytes for _, cost in each) / max(num_bytes, 1.0),
            seconds=None if cluster is None else sum(_seconds(plan, cluster, step, cost) for step, cost in each),
        )
        for op, each in steps.items()
    ]
    return tuple(sorted(operations, key=lambda operation: (-(operation.seconds or 0), -operation.bytes_share, operation.op)))


def fold_operations(operations: Sequence[RepeatedOperation], num: int) -> tuple[RepeatedOperation, ...]:
    """Returns the first operations, and one that adds up the others, if there are more than `num`."""
    if len(operations) <= num:
        return tuple(operations)
    rest = operations[num:]
    others = RepeatedOperation(
        op=f"{len(rest)} other operations",
        num_steps=sum(operation.num_steps for operation in rest),
        flops_share=sum(operation.flops_share for operation in rest),
        bytes_share=sum(operation.bytes_share for operation in rest),
        seconds=None if rest[0].seconds is None else sum(operation.seconds or 0.0 for operation in rest),
    )
    return (*operations[:num], others)


def _costs(plan: Plan) -> Iterator[tuple[Apply, NodeCost]]:
    """What each step costs one device that does all of it: of a step that is one part of the work, that part."""
    for step in plan.steps:
        if isinstance(step, Apply):
            names = [*step.inputs, *(output for output in step.outputs if output)]
            values = {name: _in_part(plan, name, step.part) for name in names}
            node = Node(name=step.node, op=step.op, arguments=step.arguments, keywords=step.keywords, outputs=step.outputs)
            yield step, cost_of(node, values)


def _in_part(plan: Plan, tensor: str, part: int | None) -> Value:
    """What all ranks together hold of a value in one part of the work."""
    value, axis = plan.values[plan.tensors[tensor].value], plan.mesh_of(tensor).time_axis
    placement = None if axis is None else plan.tensors[tensor].layout[axis]
    if not isinstance(placement, Shard) or placement.sizes is None:
        return value
    extent = value.shape[placement.dim] * placement.sizes[part or 0] // max(sum(placement.sizes), 1)
    return replace(value, shape=(*value.shape[: placement.dim], extent, *value.shape[placement.dim + 1 :]))


def _is_whole(plan: Plan, step: Apply) -> bool:
    mesh = plan.meshes[step.mesh]
    axes = [index for index, axis in enumerate(mesh.axes) if axis.size > 1 and not axis.is_time]
    layouts = [plan.tensors[name].layout for name in (*step.inputs, *step.outputs) if name]
    return bool(axes) and all(isinstance(layout[axis], Replicate) for layout in layouts for axis in axes)


def _seconds(plan: Plan, cluster: Cluster, step: Apply, cost: NodeCost) -> float:
    return max(cluster.compute_s(cost, rank) for rank in plan.meshes[step.mesh].ranks)
