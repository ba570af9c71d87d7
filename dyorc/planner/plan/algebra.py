"""What plans compute with: arrays of any kind of numbers; each rank holds pieces of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dyorc.errors import PlanError
from dyorc.planner.plan.layout import Coordinate
from dyorc.planner.plan.plan import Plan
from dyorc.planner.program import Argument

Array = TypeVar("Array")


class Algebra(Protocol[Array]):
    """What arrays of some kind of numbers can do. Arrays are indexed by slices as NumPy's are."""

    def compute(
        self,
        op: str,
        arguments: Sequence[Argument],
        keywords: Sequence[tuple[str, Argument]],
        tensors: Mapping[str, Array],
        output_shape: tuple[int, ...],
    ) -> tuple[Array, ...]:
        """Computes one operation."""
        ...

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        """Returns zeros of a shape."""
        ...

    def add(self, left: Array, right: Array) -> Array:
        """Returns the sum of two arrays of one shape."""
        ...

    def concatenate(self, arrays: Sequence[Array], dim: int) -> Array:
        """Joins arrays along a dimension."""
        ...

    def put(self, target: Array, index: tuple[slice, ...], part: Array) -> Array:
        """Returns the target with a part of it replaced; may change and return the same array."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Names one piece: a placed tensor, the rank that holds it, and the part of the work (0 where it does not vary in time)."""

    tensor: str
    rank: int
    part: int


def piece_at(plan: Plan, tensor: str, coordinate: Coordinate) -> Piece:
    """Returns the name of the piece of a placed tensor at a coordinate."""
    mesh = plan.mesh_of(tensor)
    time = mesh.time_axis
    return Piece(tensor, mesh.rank_at(coordinate), plan.part_of(tensor, None if time is None else coordinate[time]))


def piece_in(pieces: Mapping[Piece, Array], piece: Piece) -> Array:
    """Returns a piece.

    Raises:
        PlanError: No step has made it.
    """
    try:
        return pieces[piece]
    except KeyError:
        part = f", part {piece.part}" if piece.part else ""
        raise PlanError(f"rank {piece.rank} needs {piece.tensor}{part}, and no step has made it") from None
