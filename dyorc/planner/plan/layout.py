"""Where the pieces of a tensor lie: meshes of ranks, layouts on them, and the region of the tensor that each piece is.

A mesh has named axes. Most are axes of space: moving along one leads to another rank. A mesh may have one axis of time: moving
along it leads to the same rank's next part of the work, such as the next microbatch. Both are cut by the same rules, so that a
gradient that each microbatch contributes to is a partial sum along time, as one that each rank contributes to is along space.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import TypeAlias

from dyorc.errors import PlanError
from dyorc.planner.program import Placement, Shard

Layout: TypeAlias = tuple[Placement, ...]
"""One placement for each axis of a mesh, in the mesh's order; each `Shard` has sizes."""
Coordinate: TypeAlias = tuple[int, ...]
"""An index along each axis of a mesh."""
Region: TypeAlias = tuple[tuple[int, int], ...]
"""For each dimension of a tensor, where a piece starts and ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshAxis:
    """One axis of a mesh.

    Attributes:
        name: Such as `data`, `tensor` or `microbatch`.
        size: How many steps it has.
        is_time: Whether it leads through the parts of one rank's work rather than through ranks.
    """

    name: str
    size: int
    is_time: bool = False


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """An arrangement of ranks.

    Attributes:
        name: Unique in the plan.
        axes: Its axes, outermost first.
        ranks: The ranks, in the order of the axes of space, the last varying fastest.
    """

    name: str
    axes: tuple[MeshAxis, ...]
    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        size = prod(axis.size for axis in self.axes if not axis.is_time)
        if size != len(self.ranks) or len(set(self.ranks)) != len(self.ranks):
            raise PlanError(f"mesh {self.name} has room for {size} different ranks, and {list(self.ranks)} are given")
        if sum(axis.is_time for axis in self.axes) > 1:
            raise PlanError(f"mesh {self.name} has more than one axis of time")

    @cached_property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """Every coordinate, the last axis varying fastest."""
        return tuple(product(*(range(axis.size) for axis in self.axes)))

    @cached_property
    def time_axis(self) -> int | None:
        """The index of the axis of time, or None."""
        return next((index for index, axis in enumerate(self.axes) if axis.is_time), None)

    @property
    def num_parts(self) -> int:
        """How many parts each rank's work is cut into; 1 without an axis of time."""
        return 1 if self.time_axis is None else self.axes[self.time_axis].size

    @cached_property
    def _members(self) -> frozenset[int]:
        return frozenset(self.ranks)

    def is_disjoint(self, other: "Mesh") -> bool:
        """Whether no rank belongs to both."""
        return self._members.isdisjoint(other._members)

    def axis_index(self, name: str) -> int:
        """The index of an axis."""
        for index, axis in enumerate(self.axes):
            if axis.name == name:
                return index
        raise PlanError(f"mesh {self.name} has no axis {name}; it has {', '.join(axis.name for axis in self.axes)}")

    def rank_at(self, coordinate: Coordinate) -> int:
        """The rank at a coordinate."""
        index = 0
        for axis, position in zip(self.axes, coordinate, strict=True):
            if not axis.is_time:
                index = index * axis.size + position
        return self.ranks[index]

    def coordinate_of(self, rank: int, part: int | None) -> Coordinate:
        """The coordinate of a rank, at a part of its work (0 where the mesh has no axis of time, or part is None)."""
        index = self.ranks.index(rank)
        indices: list[int] = []
        for axis in reversed(self.axes):
            if axis.is_time:
                indices.append(part or 0)
            else:
                indices.append(index % axis.size)
                index //= axis.size
        return tuple(reversed(indices))

    def line(self, coordinate: Coordinate, axis: int) -> tuple[Coordinate, ...]:
        """The coordinates that differ from one only along an axis, itself included."""
        return tuple((*coordinate[:axis], index, *coordinate[axis + 1 :]) for index in range(self.axes[axis].size))

    def lines(self, axis: int) -> Iterator[tuple[Coordinate, ...]]:
        """Yields all lines along an axis."""
        for coordinate in self.coordinates:
            if coordinate[axis] == 0:
                yield self.line(coordinate, axis)


def shares(units: int, ratios: Sequence[float]) -> tuple[int, ...]:
    """Divides whole units as nearly as possible in given ratios: each share is its quota rounded down or up.

    Units that rounding down leaves over go to the shares that lack most, the first among equals.
    """
    total = sum(ratios)
    quotas = [units * ratio / total for ratio in ratios]
    counts = [int(quota + 1e-9) for quota in quotas]
    lacking = sorted(range(len(quotas)), key=lambda index: counts[index] - quotas[index])
    for index in lacking[: units - sum(counts)]:
        counts[index] += 1
    return tuple(counts)


def region_of(shape: tuple[int, ...], layout: Layout, coordinate: Coordinate) -> Region:
    """The region of a tensor that the piece at a coordinate covers.

    Raises:
        PlanError: A shard's dimension is not there, or its sizes do not add up to the dimension.
    """
    region = [(0, extent) for extent in shape]
    for placement, index in zip(layout, coordinate, strict=True):
        if isinstance(placement, Shard):
            if placement.dim >= len(shape) or placement.sizes is None:
                raise PlanError(f"a tensor of shape {list(shape)} cannot be placed as {placement}")
            start, stop = region[placement.dim]
            if sum(placement.sizes) != stop - start or index >= len(placement.sizes):
                raise PlanError(
                    f"the sizes of {placement} add up to {sum(placement.sizes)}; what they divide of dimension {placement.dim} "
                    f"of a tensor of shape {list(shape)} has {stop - start}"
                )
            start += sum(placement.sizes[:index])
            region[placement.dim] = (start, start + placement.sizes[index])
    return tuple(region)


def extents(region: Region) -> tuple[int, ...]:
    """The shape of a piece."""
    return tuple(stop - start for start, stop in region)


def starts(region: Region) -> tuple[int, ...]:
    """Where a region begins."""
    return tuple(start for start, _ in region)


def narrow(region: Region, dim: int, start: int, stop: int) -> Region:
    """The part of a region between two places along a dimension, counted from where the region begins."""
    begin = region[dim][0]
    return (*region[:dim], (begin + start, begin + stop), *region[dim + 1 :])


def overlap(region: Region, other: Region) -> Region | None:
    """What two regions share; None if nothing."""
    common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(region, other, strict=True))
    return common if all(start < stop for start, stop in common) else None


def within(region: Region, outer: Region) -> tuple[slice, ...]:
    """The indices by which a region is cut out of a piece that covers an outer one."""
    return tuple(slice(start - base, stop - base) for (start, stop), (base, _) in zip(region, outer, strict=True))
