"""Which rank sends which region of a placed tensor to which other, so that it lies as another placed tensor does.

Two placed tensors of one value depend on each other wherever their regions overlap: copies are taken from the nearest replica,
and partial sums are added, in the same order on all ranks. This is the slice algebra of SuperScaler (OSDI'24, section 4).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from dyorc.planner.plan import Coordinate, Mesh, Plan, Region, overlap
from dyorc.planner.program import Partial, Replicate


class Key(NamedTuple):
    """Names a piece on the rank that holds it: a placed tensor, and the part of the work (0 where it does not vary in time)."""

    tensor: str
    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionMove:
    """A region of a value that one rank holds and another, or the same, needs.

    Attributes:
        source: The piece that holds it.
        source_rank: Who holds that.
        source_region: What that covers.
        target: The piece that needs it.
        target_rank: Who makes that.
        region: What is moved.
    """

    source: Key
    source_rank: int
    source_region: Region
    target: Key
    target_rank: int
    region: Region


@dataclass(frozen=True, slots=True)
class PieceAt:
    """One piece of a placed tensor: who holds it, and what it covers."""

    key: Key
    rank: int
    coordinate: Coordinate
    region: Region


def key_at(plan: Plan, tensor: str, coordinate: Coordinate) -> Key:
    """Returns the name of the piece at a coordinate."""
    time = plan.mesh_of(tensor).time_axis
    return Key(tensor, plan.part_of(tensor, None if time is None else coordinate[time]))


def pieces_at(plan: Plan, tensor: str, part: int | None = None) -> list[PieceAt]:
    """Returns every piece of a placed tensor, replicas too, in the order of the mesh; of one part only, if one is given."""
    mesh, pieces = plan.mesh_of(tensor), dict[tuple[Key, int], PieceAt]()
    for coordinate in mesh.coordinates:
        key, rank = key_at(plan, tensor, coordinate), mesh.rank_at(coordinate)
        if part is None or not plan.varies_in_time(tensor) or key.part == part:
            pieces.setdefault((key, rank), PieceAt(key, rank, coordinate, plan.region(tensor, coordinate)))
    return list(pieces.values())


def terms_at(plan: Plan, tensor: str, part: int | None = None) -> list[PieceAt]:
    """Returns the pieces that together are the value: each region once, or once for each term of its sum."""
    layout = plan.tensors[tensor].layout
    return [
        piece
        for piece in pieces_at(plan, tensor, part)
        if not any(isinstance(p, Replicate) and index for p, index in zip(layout, piece.coordinate, strict=True))
    ]


def is_zero(plan: Plan, piece: PieceAt, part: int | None = None) -> bool:
    """Whether a piece that is made from a whole value holds zeros: it is a term of a sum, and not the first.

    What is made of one part's term of a sum over time stays that part's term.
    """
    layout = plan.tensors[piece.key.tensor].layout
    time = plan.mesh_of(piece.key.tensor).time_axis if part is not None else None
    return any(isinstance(p, Partial) and piece.coordinate[axis] and axis != time for axis, p in enumerate(layout))


def moves_between(plan: Plan, source: str, target: str, part: int | None = None) -> Iterator[RegionMove]:
    """Yields what is moved to make one placed tensor from another of the same value, in one order for all ranks."""
    terms = terms_at(plan, source, part)
    for wanted in pieces_at(plan, target, part):
        if is_zero(plan, wanted, part):
            continue
        for term in terms:
            if (common := overlap(wanted.region, term.region)) is not None:
                yield RegionMove(
                    source=term.key,
                    source_rank=_nearest(plan, term, wanted.rank),
                    source_region=term.region,
                    target=wanted.key,
                    target_rank=wanted.rank,
                    region=common,
                )


def _nearest(plan: Plan, term: PieceAt, rank: int) -> int:
    """Of the ranks that hold a replica, the one with the nearest number: neighbours share a machine."""
    mesh = plan.mesh_of(term.key.tensor)
    return min(_replicas(plan, mesh, term), key=lambda holder: (abs(holder - rank), holder))


def _replicas(plan: Plan, mesh: Mesh, term: PieceAt) -> Iterator[int]:
    layout = plan.tensors[term.key.tensor].layout
    choices = [
        range(axis.size) if isinstance(placement, Replicate) and not axis.is_time else (index,)
        for axis, placement, index in zip(mesh.axes, layout, term.coordinate, strict=True)
    ]
    for coordinate in product(*choices):
        yield mesh.rank_at(coordinate)
