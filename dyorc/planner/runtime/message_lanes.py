"""A plan's messages that do not go through torch.distributed, numbered: the same on all ranks, decided without I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from dyorc.planner.plan import ChannelKind, Edge, Plan, Transfer, extents
from dyorc.planner.program.graph import type_sizes
from dyorc.planner.runtime.region_moves import moves_between

_ALIGNMENT = 64

Pair: TypeAlias = tuple[int, int]
"""A rank that sends, and one that receives."""


MEMORY_FOLDER = "/dev/shm"
"""Where ranks share memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLane:
    """What one transfer sends from one rank to another: one message each time the plan runs.

    Attributes:
        number: Unique in the plan.
        edge: How it gets there.
        num_bytes: Of the message, for as many samples as the plan was made for.
        num_tensors: How many tensors it consists of.
    """

    number: int
    edge: Edge
    num_bytes: int
    num_tensors: int


Lanes: TypeAlias = Mapping[int, Mapping[Pair, MessageLane]]
"""Those of each transfer that has any, by the number of its step."""


def lanes_of(plan: Plan) -> Lanes:
    """Returns the lanes of each transfer that has any, by the number of its step."""
    lanes: dict[int, dict[Pair, MessageLane]] = {}
    number = 0
    for index, step in enumerate(plan.steps):
        if not isinstance(step, Transfer) or not step.edges:
            continue
        messages = _messages_of(plan, step)
        for edge in step.edges:
            if edge.kind is ChannelKind.GLOO or edge.pair not in messages:
                continue
            sizes = messages[edge.pair]
            lane = MessageLane(number=number, edge=edge, num_bytes=places_of(sizes)[1], num_tensors=len(sizes))
            lanes.setdefault(index, {})[edge.pair] = lane
            number += 1
    return lanes


def message_bytes_of(plan: Plan, step: Transfer) -> Mapping[Pair, int]:
    """Returns the bytes that a transfer moves between each two different ranks."""
    return {pair: sum(sizes) for pair, sizes in _messages_of(plan, step).items()}


def _messages_of(plan: Plan, step: Transfer) -> Mapping[Pair, list[int]]:
    """The bytes of each tensor."""
    messages: dict[Pair, list[int]] = {}
    width = type_sizes[plan.values[plan.tensors[step.target].value].dtype]
    for move in moves_between(plan, step.source, step.target, step.part):
        if move.source_rank != move.target_rank:
            messages.setdefault((move.source_rank, move.target_rank), []).append(prod(extents(move.region)) * width)
    return messages


def places_of(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Returns where each of some tensors lies in a message, by their bytes, and the bytes of the message."""
    places, end = list[int](), 0
    for size in sizes:
        places.append(end)
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return places, end


def slot_bytes_of(lanes: Lanes) -> Mapping[tuple[int, int, int], int]:
    """Returns the bytes of each static slot: by the rank that sends, the one that receives, and its number."""
    num_bytes: dict[tuple[int, int, int], int] = {}
    for lane in (lane for by_pair in lanes.values() for lane in by_pair.values()):
        if lane.edge.kind is ChannelKind.STATIC:
            key = (*lane.edge.pair, lane.edge.slot)
            num_bytes[key] = max(num_bytes.get(key, 0), lane.num_bytes)
    return num_bytes
