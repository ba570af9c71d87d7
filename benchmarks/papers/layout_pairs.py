"""Every pair of layouts of small tensors on small meshes: the cheapest path between them, run exactly; and those by hand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dyorc.planner.plan import Layout, Mesh, MeshAxis, Placed, Plan, Provenance, Step, Transfer
from dyorc.planner.plan.adapters import Adapters, Hop, Path, Spot, Tensor, bytes_moved, inner_cut
from dyorc.planner.plan.interpret import Piece, run_step, whole_of
from dyorc.planner.plan.layout import region_of
from dyorc.planner.plan.steps import Collective, kind_between
from dyorc.planner.program import PARTIAL, REPLICATE, Partial, Placement, Shard, Value, ValueKind
from dyorc.planner.program.graph import Argument

Array: TypeAlias = NDArray[np.int64]

MESHES = ((2,), (4,), (8,), (2, 2), (2, 4), (4, 2), (2, 2, 2))
"""Of 2, 4 and 8 devices."""
EXTENT = 8


class Integers:
    """NumPy's integers as an algebra: sums are exact."""

    def compute(
        self,
        op: str,
        arguments: Sequence[Argument],
        keywords: Sequence[tuple[str, Argument]],
        tensors: Mapping[str, Array],
        output_shape: tuple[int, ...],
    ) -> tuple[Array, ...]:
        raise NotImplementedError("paths move, they do not compute")

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        return np.zeros(shape, like.dtype)

    def add(self, left: Array, right: Array) -> Array:
        return left + right

    def concatenate(self, arrays: Sequence[Array], dim: int) -> Array:
        return np.concatenate(arrays, dim)

    def put(self, target: Array, index: tuple[slice, ...], part: Array) -> Array:
        target[index] = part
        return target


def mesh_of(sizes: Sequence[int], name: str = "mesh", first_rank: int = 0, times: Sequence[int] = ()) -> Mesh:
    """Returns a mesh of these sizes; the axes in `times` are of time."""
    axes = tuple(MeshAxis(name=f"axis{i}", size=size, is_time=i in times) for i, size in enumerate(sizes))
    num_ranks = prod(axis.size for axis in axes if not axis.is_time)
    return Mesh(name=name, axes=axes, ranks=tuple(range(first_rank, first_rank + num_ranks)))


def layouts_of(adapters: Adapters, tensor: Tensor, mesh: Mesh) -> Iterator[Layout]:
    """Yields every layout of a tensor on a mesh."""
    dims = range(len(tensor.shape))
    for kinds in product((REPLICATE, PARTIAL, *(Shard(dim) for dim in dims)), repeat=len(mesh.axes)):
        layout: list[Placement] = []
        for kind in kinds:
            placed = adapters.shard(tensor, mesh, tuple(layout), kind.dim) if isinstance(kind, Shard) else kind
            if placed is None:
                break
            layout.append(placed)
        else:
            yield tuple(layout)


def plan_of(tensor: Tensor, before: Spot, hops: Sequence[Hop]) -> Plan:
    """Returns a plan that takes only these hops."""
    spots = [before, *(hop.target for hop in hops)]
    steps: list[Step] = []
    for index, hop in enumerate(hops):
        source, target = f"t{index}", f"t{index + 1}"
        if hop.kind is None or hop.axis is None:
            steps.append(Transfer(source=source, target=target))
        else:
            steps.append(Collective(kind=hop.kind, source=source, target=target, axis=hop.source.mesh.axes[hop.axis].name))
    return Plan(
        program="",
        values={"value": Value(name="value", shape=tensor.shape, dtype="int64", kind=ValueKind.INPUT)},
        meshes={spot.mesh.name: spot.mesh for spot in spots},
        tensors={f"t{i}": Placed(value="value", mesh=s.mesh.name, layout=s.layout) for i, s in enumerate(spots)},
        sources={"value": ("t0",)},
        steps=tuple(steps),
        results={"value": f"t{len(hops)}"},
        provenance=Provenance(planner="test"),
    )


def is_exact(tensor: Tensor, before: Spot, after: Spot, path: Path) -> bool:
    """Whether running the path leaves every rank what the wanted layout says: its region, and terms that add up."""
    plan, whole = plan_of(tensor, before, path.hops), np.arange(1, prod(tensor.shape) + 1).reshape(tensor.shape)
    pieces = _pieces(plan, before, whole)
    for step in plan.steps:
        pieces |= run_step(plan, step, pieces, Integers())
    end = f"t{len(path.hops)}"
    for coordinate in after.mesh.coordinates:
        region = region_of(tensor.shape, after.layout, coordinate)
        time = after.mesh.time_axis
        part = plan.part_of(end, None if time is None else coordinate[time])
        piece = pieces[Piece(end, after.mesh.rank_at(coordinate), part)]
        own = whole[tuple(slice(a, b) for a, b in region)]
        if piece.shape != own.shape or (PARTIAL not in after.layout and not np.array_equal(piece, own)):
            return False
    return plan.tensors[end].layout == after.layout and np.array_equal(whole_of(plan, end, pieces, Integers()), whole)


def _pieces(plan: Plan, before: Spot, whole: Array) -> dict[Piece, Array]:
    """The pieces of the source; each term of a partial sum is another."""
    pieces: dict[Piece, Array] = {}
    num_terms = prod(a.size for a, p in zip(before.mesh.axes, before.layout, strict=True) if isinstance(p, Partial))
    for coordinate in before.mesh.coordinates:
        cut = whole[tuple(slice(a, b) for a, b in region_of(whole.shape, before.layout, coordinate))]
        index = 0
        for placement, axis, position in zip(before.layout, before.mesh.axes, coordinate, strict=True):
            index = index * axis.size + position if isinstance(placement, Partial) else index
        term = cut * 7**index if index < num_terms - 1 else cut * (1 - sum(7**i for i in range(num_terms - 1)))
        time = before.mesh.time_axis
        part = plan.part_of("t0", None if time is None else coordinate[time])
        pieces.setdefault(Piece("t0", before.mesh.rank_at(coordinate), part), term)
    return pieces


def by_hand(tensor: Tensor, before: Spot, after: Spot) -> Iterator[list[Hop]]:
    """Yields what a person would write: through copies of the whole everywhere; and, if nothing forbids it, straight along each
    axis in turn, in both orders.
    """
    num_axes = len(before.layout)
    through = [(axis, REPLICATE) for axis in reversed(range(num_axes))] + [*enumerate(after.layout)]
    for changes in (through, [*enumerate(after.layout)], [*enumerate(after.layout)][::-1]):
        layout, hops = before.layout, list[Hop]()
        for axis, placement in changes:
            if layout[axis] == placement:
                continue
            if inner_cut(layout, axis, placement) is not None or (isinstance(layout[axis], Shard) and placement == PARTIAL):
                break
            changed = (*layout[:axis], placement, *layout[axis + 1 :])
            kind = kind_between(layout[axis], placement)
            hops.append(Hop(Spot(before.mesh, layout), Spot(before.mesh, changed), kind, axis))
            layout = changed
        if layout == after.layout:
            yield hops


@dataclass
class Tally:
    """What was found over many pairs."""

    num_pairs: int = 0
    num_hops: int = 0
    wrong: list[str] = field(default_factory=list[str])
    dearer: list[str] = field(default_factory=list[str])
    num_cheaper: int = 0  # than every path written by hand

    def take(self, tensor: Tensor, adapters: Adapters, before: Spot, after: Spot) -> None:
        path = adapters.path(tensor, before, after)
        name = f"{tensor.shape}: {before.layout} -> {after.layout}"
        self.num_pairs += 1
        self.num_hops += len(path.hops)
        if not is_exact(tensor, before, after, path):
            self.wrong.append(name)
        costs = [sum(bytes_moved(tensor, hop) for hop in hops) for hops in by_hand(tensor, before, after)]
        if min(costs) < path.cost:
            self.dearer.append(name)
        self.num_cheaper += min(costs) > path.cost


def tally(
    every: int = 1,
    num_devices: Sequence[int] = (2, 4, 8),
    max_dims: int = 3,
    progress: Callable[[int], object] = lambda number: None,
) -> Tally:
    """Tries every `every`th pair of layouts on all meshes of so many devices.

    Args:
        every: 1 for all.
        num_devices: Meshes of so many.
        max_dims: Tensors have so many dims at most.
        progress: Called with the number of each pair.
    """
    counts = Tally()
    for number, (tensor, adapters, before, after) in enumerate(pairs(num_devices, max_dims), start=1):
        if number % every == 0:
            progress(number)
            counts.take(tensor, adapters, before, after)
    return counts


def pairs(num_devices: Sequence[int], max_dims: int = 3) -> Iterator[tuple[Tensor, Adapters, Spot, Spot]]:
    """Yields all pairs of layouts on all meshes of so many devices."""
    for sizes in MESHES:
        if prod(sizes) not in num_devices:
            continue
        for num_dims in range(1, max_dims + 1):
            tensor = Tensor((EXTENT,) * num_dims, (1,) * num_dims, 8)
            adapters, mesh = Adapters(bytes_moved), mesh_of(sizes)
            layouts = list(layouts_of(adapters, tensor, mesh))
            for before, after in product(layouts, layouts):
                yield tensor, adapters, Spot(mesh, before), Spot(mesh, after)
