"""How large the pieces of a plan are, and which part of the work each rank does. Plans repeat themselves: each is found once."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from dyorc.planner.plan import Apply, Coordinate, Layout, Mesh, Plan
from dyorc.planner.program import Shard

Bytes = tuple[tuple[int, ...], ...]
"""For each part (one if the tensor does not vary in time), for each rank of the mesh in its order."""


class Sizes:
    """Looks up sizes of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._bytes: dict[tuple[tuple[int, ...], str, str, Layout], Bytes] = {}
        self._coordinates_of: dict[tuple[str, int], Sequence[Coordinate]] = {}
        self._of_tensor: dict[str, Bytes] = {}
        self._shares: dict[tuple[str, int | None, tuple[tuple[int, ...] | None, ...]], tuple[float, ...]] = {}

    def bytes_of(self, tensor: str) -> Bytes:
        """The bytes of each piece of a placed tensor."""
        num_bytes = self._of_tensor.get(tensor)
        if num_bytes is None:
            placed = self._plan.tensors[tensor]
            value = self._plan.values[placed.value]
            key = (value.shape, value.dtype, placed.mesh, placed.layout)
            if key not in self._bytes:
                self._bytes[key] = self._find_bytes(tensor)
            num_bytes = self._of_tensor[tensor] = self._bytes[key]
        return num_bytes

    def _find_bytes(self, tensor: str) -> Bytes:
        mesh = self._plan.mesh_of(tensor)
        num_parts = mesh.num_parts if self._plan.varies_in_time(tensor) else 1
        return tuple(tuple(self._bytes_of_part(tensor, mesh, part)) for part in range(num_parts))

    def _bytes_of_part(self, tensor: str, mesh: Mesh, part: int) -> Iterator[int]:
        """The bytes of each rank's piece: of ranks whose shards are as large along every axis, found once."""
        shards = [(axis, p.sizes) for axis, p in enumerate(self._plan.tensors[tensor].layout) if isinstance(p, Shard)]
        known: dict[tuple[int | None, ...], int] = {}
        for coordinate in self._coordinates(mesh, part):
            key = tuple([sizes[at] if sizes and (at := coordinate[axis]) < len(sizes) else None for axis, sizes in shards])
            num_bytes = known.get(key)
            if num_bytes is None:
                num_bytes = known[key] = self._plan.piece_bytes(tensor, coordinate)
            yield num_bytes

    def _coordinates(self, mesh: Mesh, part: int) -> Sequence[Coordinate]:
        """The coordinate of each rank of a mesh, in its order."""
        key = mesh.name, part
        if key not in self._coordinates_of:
            of_axes = [(part,) if axis.is_time else range(axis.size) for axis in mesh.axes]
            self._coordinates_of[key] = list(product(*of_axes))
        return self._coordinates_of[key]

    def shares_of(self, step: Apply) -> Sequence[float]:
        """The part of a node's work that each rank of the mesh does in a step: along each axis that cuts something, its share."""
        mesh = self._plan.meshes[step.mesh]
        layouts = [self._plan.tensors[tensor].layout for tensor in (*step.outputs, *step.inputs) if tensor]
        cuts = tuple(_sizes(layouts, axis) for axis in range(len(mesh.axes)))
        key = (step.mesh, step.part, cuts)
        shares = self._shares.get(key)
        if shares is None:
            shares = self._shares[key] = tuple(_share(each, cuts) for each in self._coordinates(mesh, step.part or 0))
        return shares


def _sizes(layouts: Sequence[Layout], axis: int) -> tuple[int, ...] | None:
    for layout in layouts:
        placement = layout[axis]
        if isinstance(placement, Shard):
            return placement.sizes
    return None


def _share(coordinate: Coordinate, cuts: Sequence[tuple[int, ...] | None]) -> float:
    return prod(cut[index] / sum(cut) for cut, index in zip(cuts, coordinate, strict=True) if cut and sum(cut))
