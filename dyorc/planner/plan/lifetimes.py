"""How long what a transfer brings is used: until the last step that reads it, or anything that may share its memory."""

from collections.abc import Iterator, Mapping
from math import inf
from typing import TypeAlias

from dyorc.planner.plan.plan import Plan
from dyorc.planner.plan.steps import Apply, ChannelKind, Edge, Step, Transfer
from dyorc.planner.program.costs import VIEWS

PartOf: TypeAlias = tuple[str, int]
"""A placed tensor, and a part of the work; 0 where it does not vary in time."""
Use: TypeAlias = tuple[int, Edge, float]
"""A transfer that fills a slot: the number of its step, the edge, and the last step that needs what it brings."""

_MAY_SHARE = VIEWS | {
    "alias", "contiguous", "detach", "diagonal", "reshape", "split", "squeeze", "t", "transpose", "unbind", "unsqueeze",
    "_unsafe_view", "as_strided", "_reshape_alias", "unfold",
}  # fmt: skip
"""Operations whose results may lie in the memory of what they read."""


def last_uses(plan: Plan) -> Mapping[PartOf, float]:
    """Returns the last step that needs the memory of each part of each tensor; infinite for results.

    What a collective or a transfer makes counts as the same memory: often it is.
    """
    uses: dict[PartOf, float] = {
        (tensor, part): inf for tensor in plan.results.values() for part in range(_num_parts(plan, tensor))
    }
    for number in range(len(plan.steps) - 1, -1, -1):
        step = plan.steps[number]
        until: float = number
        if not isinstance(step, Apply) or step.op.split(".")[1] in _MAY_SHARE:
            until = max([number, *(uses.get(made, 0) for t in step.outputs if t for made in touched(plan, step, t))])
        for tensor in step.inputs:
            for read in touched(plan, step, tensor):
                uses[read] = max(uses.get(read, 0), until)
    return uses


def touched(plan: Plan, step: Step, tensor: str) -> Iterator[PartOf]:
    """Yields the parts of a tensor that a step reads or makes."""
    num_parts = _num_parts(plan, tensor)
    parts = range(num_parts) if step.part is None or num_parts == 1 else [step.part]
    return ((tensor, part) for part in parts)


def _num_parts(plan: Plan, tensor: str) -> int:
    return plan.mesh_of(tensor).num_parts if plan.varies_in_time(tensor) else 1


def slot_uses(plan: Plan) -> Mapping[tuple[int, int, int], list[Use]]:
    """Returns the transfers that fill each static slot, in order: by who sends, who receives, and its number."""
    uses: dict[tuple[int, int, int], list[Use]] = {}
    until: Mapping[PartOf, float] = {}
    for number, step in enumerate(plan.steps):
        if isinstance(step, Transfer) and any(edge.kind is ChannelKind.STATIC for edge in step.edges):
            until = until or last_uses(plan)
            last = max(until.get(made, number) for made in touched(plan, step, step.target))
            for edge in step.edges:
                if edge.kind is ChannelKind.STATIC:
                    uses.setdefault((*edge.pair, edge.slot), []).append((number, edge, last))
    return uses
