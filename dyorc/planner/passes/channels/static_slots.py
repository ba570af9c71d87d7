"""Numbers static slots: two messages from one rank to another may lie in the same memory if the first is no longer needed when
the second comes.
"""

from dataclasses import replace

from dyorc.planner.plan import ChannelKind, Plan, Transfer
from dyorc.planner.plan.lifetimes import last_uses, touched
from dyorc.planner.runtime.message_lanes import message_bytes_of, places_of


def with_slots(plan: Plan) -> Plan:
    """Returns the plan with a slot for each static edge: the free slot of the nearest size."""
    until, steps = last_uses(plan), list(plan.steps)
    slots: dict[tuple[int, int], list[tuple[float, int]]] = {}  # when each slot is free, and its bytes
    for number, step in enumerate(plan.steps):
        if not isinstance(step, Transfer) or not step.edges:
            continue
        sizes = message_bytes_of(plan, step)
        last = max(until.get(made, number) for made in touched(plan, step, step.target))
        edges = list(step.edges)
        for index, edge in enumerate(edges):
            if edge.kind is ChannelKind.STATIC:
                of_pair = slots.setdefault(edge.pair, [])
                slot = _take_slot(of_pair, number, places_of([sizes[edge.pair]])[1])
                of_pair[slot] = (last, of_pair[slot][1])
                edges[index] = replace(edge, slot=slot)
        steps[number] = replace(step, edges=tuple(edges))
    return replace(plan, steps=tuple(steps))


def _take_slot(slots: list[tuple[float, int]], number: int, num_bytes: int) -> int:
    """Returns the number of a slot that is free before a step; adds one if none is, or makes one larger."""
    free = [slot for slot, (until, _) in enumerate(slots) if until < number]
    if not free:
        slots.append((0, num_bytes))
        return len(slots) - 1
    slot = min(free, key=lambda slot: (abs(slots[slot][1] - num_bytes), slot))
    slots[slot] = (0, max(slots[slot][1], num_bytes))
    return slot
