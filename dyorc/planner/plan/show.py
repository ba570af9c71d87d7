"""A plan in figures for people: its meshes, what it communicates, and what each rank computes and holds.

All of it is in the plan itself: neither the program nor a cluster is needed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import prod
from typing import Any

from dyorc.planner.plan.layout import Coordinate, Layout, Mesh
from dyorc.planner.plan.plan import Plan
from dyorc.planner.plan.steps import Apply, Collective, CollectiveKind, Step, Transfer
from dyorc.planner.program import Node, Replicate, Shard, Value
from dyorc.planner.program.costs import cost_of
from dyorc.planner.program.graph import type_sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """All steps of one kind.

    Attributes:
        kind: The collective, `transfer`, with the channels that its edges name, or a collective along time, which sends nothing.
        num_steps: How many steps there are.
        num_bytes: What the largest piece of each adds up to: before an all-gather, otherwise after the step.
    """

    kind: str
    num_steps: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSummary:
    """What one rank does.

    Attributes:
        rank: Which.
        num_operations: How many operations it computes.
        flops: Their arithmetic.
        source_bytes: What it holds when the step begins: parameters, states, inputs.
    """

    rank: int
    num_operations: int
    flops: float
    source_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A plan in a few figures."""

    num_steps: int
    communications: tuple[Communication, ...]
    ranks: tuple[RankSummary, ...]


def summary_of(plan: Plan) -> Summary:
    """Adds up a plan."""
    return _Summing(plan).summary()


def values_of(plan: Plan) -> dict[str, Any]:
    """Returns what `dyorc plan show` prints, as values for JSON."""
    origin = plan.provenance
    return {
        "planner": origin.planner,
        "target": plan.target,
        "program": plan.program,
        "cost_s": origin.cost_s,
        "ended": origin.ended,
        "notes": dict(origin.notes),
        "num_kernels": len(plan.kernels),
        "meshes": [
            {"name": mesh.name, "axes": {axis.name: axis.size for axis in mesh.axes}, "ranks": list(mesh.ranks)}
            for mesh in plan.meshes.values()
        ],
        **asdict(summary_of(plan)),
    }


class _Summing:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._first_alike = first_alike(plan)
        self._operations = Counter[int]()
        self._flops: dict[int, float] = {}
        self._firsts_of: dict[str, Sequence[int]] = {}
        self._known: dict[tuple[object, ...], float] = {}
        self._num_steps = Counter[str]()
        self._num_bytes = Counter[str]()

    def summary(self) -> Summary:
        for step in self._plan.steps:
            self._take(step)
        held = self._source_bytes()
        return Summary(
            num_steps=len(self._plan.steps),
            communications=tuple(
                Communication(kind=kind, num_steps=self._num_steps[kind], num_bytes=self._num_bytes[kind])
                for kind in sorted(self._num_steps)
            ),
            ranks=tuple(
                RankSummary(
                    rank=rank, num_operations=self._operations[first], flops=self._flops.get(first, 0.0), source_bytes=held[first]
                )
                for rank, first in enumerate(self._first_alike)
            ),
        )

    def _take(self, step: Step) -> None:
        match step:
            case Apply():
                mesh = self._plan.meshes[step.mesh]
                for rank in self._firsts(mesh):
                    self._operations[rank] += 1
                    flops = self._flops_of(step, mesh.coordinate_of(rank, step.part))
                    self._flops[rank] = self._flops.get(rank, 0.0) + flops
            case Collective():
                mesh = self._plan.mesh_of(step.source)
                is_time = mesh.axes[mesh.axis_index(step.axis)].is_time
                kind = f"{step.kind} along time" if is_time else str(step.kind)
                self._add(kind, step.source if step.kind is CollectiveKind.ALL_GATHER else step.target)
            case Transfer():
                kinds = sorted({str(edge.kind) for edge in step.edges})
                self._add(f"transfer by {', '.join(kinds)}" if kinds else "transfer", step.target)

    def _firsts(self, mesh: Mesh) -> Sequence[int]:
        """The first rank of each group of equal ranks of a mesh."""
        firsts = self._firsts_of.get(mesh.name)
        if firsts is None:
            firsts = self._firsts_of[mesh.name] = [rank for rank in mesh.ranks if self._first_alike[rank] == rank]
        return firsts

    def _add(self, kind: str, tensor: str) -> None:
        self._num_steps[kind] += 1
        self._num_bytes[kind] += largest_piece_bytes(self._plan, tensor)

    def _flops_of(self, step: Apply, coordinate: Coordinate) -> float:
        """The arithmetic of one piece: that of a node whose values are pieces."""
        names = [*step.inputs, *(output for output in step.outputs if output)]
        shapes = tuple(self._plan.piece_shape(name, coordinate) for name in names)
        key = (step.op, step.keywords, shapes, len(step.inputs), tuple(map(bool, step.outputs)))
        if key not in self._known:
            values = {name: self._piece(name, shape) for name, shape in zip(names, shapes, strict=True)}
            node = Node(name=step.node, op=step.op, arguments=step.arguments, keywords=step.keywords, outputs=step.outputs)
            self._known[key] = cost_of(node, values).flops
        return self._known[key]

    def _piece(self, tensor: str, shape: tuple[int, ...]) -> Value:
        value = self._plan.values[self._plan.tensors[tensor].value]
        return Value(name=tensor, shape=shape, dtype=value.dtype, kind=value.kind)

    def _source_bytes(self) -> Counter[int]:
        totals = Counter[int]()
        for tensors in self._plan.sources.values():
            for tensor in tensors:
                for rank, num_bytes in _pieces(self._plan, tensor):
                    totals[rank] += num_bytes
        return totals


def _pieces(plan: Plan, tensor: str) -> Iterator[tuple[int, int]]:
    """Yields each piece of a placed tensor: its rank and its bytes."""
    mesh, layout = plan.mesh_of(tensor), plan.tensors[tensor].layout
    for coordinate in mesh.coordinates:
        time = mesh.time_axis
        if time is None or coordinate[time] == 0 or not isinstance(layout[time], Replicate):
            yield mesh.rank_at(coordinate), plan.piece_bytes(tensor, coordinate)


def largest_piece_bytes(plan: Plan, tensor: str) -> int:
    """The bytes of the largest piece of a placed tensor."""
    return max(plan.piece_bytes(tensor, coordinate) for coordinate in _corners(plan, tensor))


def _corners(plan: Plan, tensor: str) -> Iterator[Coordinate]:
    """Coordinates among which the largest piece is: all of a small mesh, the first of a large one."""
    coordinates = plan.mesh_of(tensor).coordinates
    yield from coordinates if len(coordinates) <= 64 else coordinates[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What each rank holds of a source when the step begins.

    Attributes:
        value: The source.
        shape: Its whole shape.
        num_bytes: Its bytes on one device.
        regions: For each rank, the region that it holds, one start and stop for each dimension; None if it holds nothing.
    """

    value: str
    shape: tuple[int, ...]
    num_bytes: int
    regions: tuple[tuple[tuple[int, int], ...] | None, ...]


def holdings_of(plan: Plan, max_values: int = 24) -> tuple[Holding, ...]:
    """Returns who holds what of the largest sources."""
    values = sorted((plan.values[name] for name in plan.sources if plan.sources[name]), key=lambda v: (-v.num_bytes, v.name))
    return tuple(_holding(plan, value) for value in values[:max_values])


def _holding(plan: Plan, value: Value) -> Holding:
    regions: list[tuple[tuple[int, int], ...] | None] = [None] * plan.num_ranks
    for tensor in plan.sources[value.name]:
        mesh = plan.mesh_of(tensor)
        for rank in mesh.ranks:
            region = plan.region(tensor, mesh.coordinate_of(rank, 0))
            if all(start < stop for start, stop in region):
                regions[rank] = regions[rank] or region
    num_bytes = prod(value.shape) * type_sizes[value.dtype]
    return Holding(value=value.name, shape=value.shape, num_bytes=num_bytes, regions=tuple(regions))


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
