"""Other orders of a plan's steps that compute the same."""

from collections.abc import Sequence
from dataclasses import replace

from dyorc.planner.plan.plan import Plan
from dyorc.planner.plan.steps import Apply, Collective, CollectiveKind, Step, Transfer


def communicate_early(plan: Plan) -> Plan:
    """Returns the plan with each communication, and each sum over parts, directly after the step that makes the last of what it
    reads.

    Plans are built with communication directly before what needs it, or at their end. Channels keep the plan's order, so a
    gradient that is reduced at the end would otherwise wait for those that were computed after it. Plans with kernels stay as
    they are: a kernel fixes the order of its steps. So do plans with edges: slots are numbered for one order.
    """
    if plan.kernels or any(isinstance(step, Transfer) and step.edges for step in plan.steps):
        return plan
    slots: list[list[Step]] = [[] for _ in range(len(plan.steps) + 1)]  # what comes before the first step, and after each
    made: dict[tuple[str, int], int] = {}  # piece of which part -> the slot that it is made in
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
