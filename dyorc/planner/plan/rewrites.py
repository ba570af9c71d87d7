"""Plans made from plans: the same steps in another order, and the same plan for fewer samples.

A plan for inference is made for the largest batch, and runs for any smaller one. No step names an extent: operations take the
shape of what they make from the layout. So only extents change, in proportion to the number of samples, and with them the sizes
of shards of a dimension that grows with it, such as heads x samples. A plan that cuts between samples is refused: its shards
would not be in proportion, and replicas divide batches among them already.
"""

from collections.abc import Sequence
from dataclasses import replace

from dyorc.errors import PlanError
from dyorc.planner.plan.layout import Layout
from dyorc.planner.plan.plan import Inference, Plan
from dyorc.planner.plan.steps import Apply, Collective, CollectiveKind, Step, Transfer
from dyorc.planner.program import Placement, Shard
from dyorc.planner.program.batch import resize


def communicate_early(plan: Plan) -> Plan:
    """Returns the plan with each communication, and each sum over parts, directly after the step that makes the last of what it
    reads.

    Plans are built with communication directly before what needs it, or at their end. Channels keep the plan's order, so a
    gradient that is reduced at the end would otherwise wait for gradients that were computed after it. Plans with kernels stay as
    they are: a kernel fixes the order of its steps. So do plans with edges: slots are numbered for one order.
    """
    if plan.kernels or any(isinstance(step, Transfer) and step.edges for step in plan.steps):
        return plan
    slots: list[list[Step]] = [[] for _ in range(len(plan.steps) + 1)]  # what comes before the first step, and after each
    made: dict[tuple[str, int], int] = {}  # a part's piece -> the slot that it is made in
    for index, step in enumerate(plan.steps):
        slot = index + 1
        if _is_moved(step):
            slot = max((made.get(piece, 0) for tensor in step.inputs for piece in _pieces(plan, tensor, step.part)), default=0)
        slots[slot].append(step)
        for tensor in step.outputs:
            for piece in _pieces(plan, tensor, step.part) if tensor else ():
                made[piece] = slot
    return replace(plan, steps=tuple(step for slot in slots for step in slot))


def _is_moved(step: Step) -> bool:
    """Cutting a piece is left where it is: its parts would only take memory longer."""
    return not isinstance(step, Apply) and not (
        isinstance(step, Collective) and step.kind in (CollectiveKind.SLICE, CollectiveKind.MASK)
    )


def _pieces(plan: Plan, tensor: str, part: int | None) -> Sequence[tuple[str, int]]:
    if not plan.varies_in_time(tensor):
        return [(tensor, 0)]
    return [(tensor, index) for index in ([part] if part is not None else range(plan.mesh_of(tensor).num_parts))]


def for_samples(plan: Plan, num_samples: int) -> Plan:
    """Returns a plan for another number of samples.

    Raises:
        PlanError: The plan trains, is not for so many samples, or divides samples among ranks or in time.
    """
    inference = plan.inference
    if inference is None:
        raise PlanError("the plan is of a training step, which is for one size of batch")
    if not 1 <= num_samples <= inference.max_samples:
        raise PlanError(f"the plan is for at most {inference.max_samples} samples at once, and {num_samples} came")
    dims, before = inference.batch_dims, inference.max_samples
    return replace(
        plan,
        values={name: resize(value, dims.get(name, ()), num_samples, before) for name, value in plan.values.items()},
        tensors={
            name: replace(placed, layout=_layout(name, placed.layout, dims.get(placed.value, ()), num_samples, inference))
            for name, placed in plan.tensors.items()
        },
    )


def _layout(name: str, layout: Layout, dims: tuple[int, ...], num_samples: int, inference: Inference) -> Layout:
    def scaled(placement: Placement) -> Placement:
        if not isinstance(placement, Shard) or placement.dim not in dims:
            return placement
        sizes = placement.sizes or ()
        if any(size % inference.max_samples for size in sizes):
            raise PlanError(
                f"the plan cuts {name} between its samples, so it is for exactly {inference.max_samples} of them: leave the "
                "batch whole, and have more replicas instead"
            )
        return Shard(placement.dim, tuple(size // inference.max_samples * num_samples for size in sizes))

    return tuple(map(scaled, layout)) if dims else layout
