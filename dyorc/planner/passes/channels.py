"""Chooses how each message of a plan gets from one rank to another: by shared memory, gloo or gRPC.

Each edge gets the channel that costs least on the cluster. Two static messages from one rank to another may lie in the same
memory, a slot, if the first is no longer needed when the second comes.

Source: RPC Considered Harmful (arXiv 1805.08430; EuroSys'19): static placement where shapes are known, dynamic allocation where
they are not.
"""

from collections.abc import Collection
from dataclasses import replace
from math import inf

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import ChannelKind, Edge, Plan, Transfer
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


def with_channels(plan: Plan, cluster: Cluster, kinds: Collection[ChannelKind] = tuple(ChannelKind)) -> Plan:
    """Returns the plan with a channel for each two ranks of each transfer. It computes the same.

    Args:
        plan: Any plan; collectives stay as they are.
        cluster: Says which ranks share a machine, and what a message costs.
        kinds: The channels to choose from. Messages that none of them can carry go by gloo.
    """
    steps = tuple(
        replace(step, edges=_edges(plan, cluster, step, kinds)) if isinstance(step, Transfer) else step for step in plan.steps
    )
    return with_slots(replace(plan, steps=steps))


def _edges(plan: Plan, cluster: Cluster, step: Transfer, kinds: Collection[ChannelKind]) -> tuple[Edge, ...]:
    edges: list[Edge] = []
    for (source, target), num_bytes in message_bytes_of(plan, step).items():
        costs = {kind: cluster.message_s(source, target, num_bytes, kind) for kind in kinds if _fits(plan, step, kind)}
        kind = min(costs, key=lambda kind: costs[kind], default=ChannelKind.GLOO)
        if costs.get(kind, inf) < inf and kind is not ChannelKind.GLOO:
            edges.append(Edge(source=source, target=target, kind=kind))
    return tuple(edges)


def _fits(plan: Plan, step: Transfer, kind: ChannelKind) -> bool:
    """Memory that is set aside once is for messages whose size the plan knows: not for what grows with the samples that come."""
    if kind is not ChannelKind.STATIC or plan.inference is None:
        return True
    return not plan.inference.batch_dims.get(plan.tensors[step.target].value)
