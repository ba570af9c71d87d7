"""Which ranks of a plan hold and compute as much as each other: what is said of one of them is said of all."""

from collections.abc import Sequence
from itertools import product

from dyorc.planner.plan.layout import Coordinate, Layout, Mesh
from dyorc.planner.plan.plan import Plan
from dyorc.planner.program import Shard


def first_alike(plan: Plan) -> Sequence[int]:
    """Returns for each rank the first on the same meshes that has pieces of the same shapes: itself, if none before it has."""
    of_ranks: list[list[object]] = [[] for _ in range(plan.num_ranks)]
    for mesh in plan.meshes.values():
        layouts = dict.fromkeys(placed.layout for placed in plan.tensors.values() if placed.mesh == mesh.name)
        for rank, coordinate in zip(mesh.ranks, _coordinates(mesh), strict=True):
            of_ranks[rank].append((mesh.name, [_sizes_at(layout, coordinate) for layout in layouts]))
    known: dict[str, int] = {}
    return [known.setdefault(repr(each), rank) for rank, each in enumerate(of_ranks)]


def _coordinates(mesh: Mesh) -> Sequence[Coordinate]:
    """The coordinate of each rank, in the order of the mesh's, in the first part of the work."""
    return list(product(*((0,) if axis.is_time else range(axis.size) for axis in mesh.axes)))


def _sizes_at(layout: Layout, coordinate: Coordinate) -> list[int]:
    """How much of each dimension that is cut, from the outermost axis on."""
    return [p.sizes[index] for p, index in zip(layout, coordinate, strict=True) if isinstance(p, Shard) and p.sizes]
