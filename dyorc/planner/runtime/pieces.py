"""Carries out collectives and moves on pieces: cuts regions out, has them moved, and puts regions together."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

import torch

from dyorc.planner.plan import CollectiveKind, Region, extents, overlap, within
from dyorc.planner.runtime.links import Links, Message
from dyorc.planner.runtime.message_lanes import MessageLane
from dyorc.planner.runtime.rank_collectives import Collectives
from dyorc.planner.runtime.rank_schedule import CollectiveExchange, CombinePieces, Relocate
from dyorc.planner.runtime.region_moves import Key

if TYPE_CHECKING:
    from dyorc.planner.runtime.media import Media

_NOTHING = torch.empty(0)
"""A placeholder for what has not arrived."""


def combine_pieces(instruction: CombinePieces, sources: Sequence[torch.Tensor]) -> dict[Key, torch.Tensor]:
    """Changes a placement without other ranks."""
    match instruction.kind:
        case CollectiveKind.ALL_REDUCE | CollectiveKind.REDUCE_SCATTER:
            whole = sources[0]
            for source in sources[1:]:
                whole = whole | source if whole.dtype == torch.bool else whole + source
        case CollectiveKind.ALL_GATHER | CollectiveKind.ALL_TO_ALL:
            whole = torch.cat(list(sources), instruction.dim) if len(sources) > 1 else sources[0]
        case CollectiveKind.SLICE | CollectiveKind.MASK:
            whole = sources[0]
    return {key: torch.zeros_like(whole) if is_zero else whole[cut] for key, cut, is_zero in instruction.targets}


def exchange_pieces(instruction: CollectiveExchange, piece: torch.Tensor, links: Links) -> torch.Tensor:
    """Takes part in a collective."""
    line = Collectives(links, instruction.ranks, instruction.index, instruction.algorithm)
    before, after, index = instruction.before, instruction.after, instruction.index
    match instruction.kind:
        case CollectiveKind.ALL_REDUCE:
            return _in_numbers(piece, line.all_reduce).view(extents(after[index]))
        case CollectiveKind.REDUCE_SCATTER:

            def sum_of_shard(whole: torch.Tensor) -> torch.Tensor:
                cut = whole.view(piece.shape)
                return line.reduce_scatter([_flat(cut[within(region, before[index])]) for region in after])

            return _in_numbers(piece, sum_of_shard).view(extents(after[index]))
        case CollectiveKind.ALL_GATHER:
            shards = line.all_gather(_flat(piece), [_size(region) for region in before])
            return _together(after[index], before, shards)
        case CollectiveKind.ALL_TO_ALL:
            blocks = [_flat(_cut(piece, before[index], region)) for region in after]
            arriving = [overlap(region, after[index]) for region in before]
            largest = max(_size(overlap(held, wanted)) for held in before for wanted in after)
            received = line.all_to_all(blocks, [_size(region) for region in arriving], largest)
            return _together(after[index], arriving, received)
        case CollectiveKind.SLICE | CollectiveKind.MASK:
            raise AssertionError(f"{instruction.kind} needs no other rank")


def relocate_pieces(
    instruction: Relocate,
    rank: int,
    pieces: Mapping[Key, torch.Tensor],
    empty: Callable[[tuple[int, ...]], torch.Tensor],
    links: Links,
    media: "Media | None",
) -> dict[Key, torch.Tensor]:
    """Sends what others need, and puts together what this rank does; `empty` makes a tensor of the value's type."""
    parts_moved: list[torch.Tensor] = []  # in the order of the moves, in which they are added
    for move in instruction.moves:
        is_held = move.source_rank == rank
        parts_moved.append(pieces[move.source][within(move.region, move.source_region)] if is_held else _NOTHING)
    by_lane, others = dict[MessageLane, list[int]](), list[int]()
    for number, move in enumerate(instruction.moves):
        if move.source_rank != move.target_rank:
            lane = instruction.lanes.get((move.source_rank, move.target_rank))
            (others if lane is None else by_lane.setdefault(lane, [])).append(number)
    outgoing = {lane: [parts_moved[n] for n in numbers] for lane, numbers in by_lane.items() if lane.edge.source == rank}
    if media:
        leaving = [(lane.edge.target, sum(t.nbytes for t in tensors), (lane, tensors)) for lane, tensors in outgoing.items()]
        for lane, tensors in links.leaving(leaving):
            media.send(lane, tensors)  # does not wait for what is received below
    _exchange(instruction, rank, others, parts_moved, (empty, links))
    for lane, numbers in by_lane.items():
        if media and lane.edge.target == rank:
            shapes = [extents(instruction.moves[number].region) for number in numbers]
            for number, part in zip(numbers, media.receive(lane, shapes, empty(()).dtype), strict=True):
                parts_moved[number] = part
    parts: dict[Key, list[tuple[Region, torch.Tensor]]] = {key: [] for key in instruction.targets}
    for move, part in zip(instruction.moves, parts_moved, strict=True):
        if move.target_rank == rank:
            parts[move.target].append((move.region, part))
    return {key: _sum_of(region, parts[key], empty) for key, region in instruction.targets.items()}


def _exchange(
    instruction: Relocate,
    rank: int,
    numbers: Sequence[int],
    parts_moved: list[torch.Tensor],
    by: tuple[Callable[[tuple[int, ...]], torch.Tensor], Links],
) -> None:
    """Sends and receives what goes through torch.distributed."""
    (empty, links), sends, receives = by, list[Message](), list[Message]()
    for move, number in ((instruction.moves[number], number) for number in numbers):
        if move.source_rank == rank:
            sends.append((move.target_rank, parts_moved[number].contiguous()))
        else:
            parts_moved[number] = empty(extents(move.region))
            receives.append((move.source_rank, parts_moved[number]))
    links.exchange(sends, receives, tag=0 if instruction.peer is None else 1)


def _sum_of(
    region: Region, parts: Sequence[tuple[Region, torch.Tensor]], empty: Callable[[tuple[int, ...]], torch.Tensor]
) -> torch.Tensor:
    if len(parts) == 1 and parts[0][0] == region:
        return parts[0][1]
    total = empty(extents(region)).zero_()
    for covered, part in parts:
        target = total[within(covered, region)]
        if total.dtype == torch.bool:
            target |= part
        else:
            target += part
    return total


def _in_numbers(piece: torch.Tensor, sums: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Sums flat numbers; of truth values, whether any is true."""
    flat = _flat(piece)
    return sums(flat.to(torch.int32)).bool() if piece.dtype == torch.bool else sums(flat)


def _flat(piece: torch.Tensor) -> torch.Tensor:
    return piece.contiguous().view(-1)


def _cut(piece: torch.Tensor, outer: Region, region: Region) -> torch.Tensor:
    common = overlap(region, outer)
    return piece.new_empty(0) if common is None else piece[within(common, outer)]


def _size(region: Region | None) -> int:
    return 0 if region is None else prod(extents(region))


def _together(region: Region, covered: Sequence[Region | None], flats: Sequence[torch.Tensor]) -> torch.Tensor:
    whole = flats[0].new_empty(extents(region))
    for part, flat in zip(covered, flats, strict=True):
        if part is not None and flat.numel():
            whole[within(part, region)] = flat.view(extents(part))
    return whole
