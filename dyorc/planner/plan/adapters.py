"""The cheapest way from one layout of a value to another: on one mesh, or from one mesh to another.

Layouts are the nodes of a graph. An edge changes the placement along one axis of the mesh, which is one collective, or takes the
value to another mesh, which is a transfer. Dijkstra's algorithm finds the cheapest path. What an edge costs is a function that
the caller chooses: the bytes that a rank sends, or the seconds on a cluster.

Not every change is an edge: an axis may not change while an axis inside it cuts the same dimension, because the pieces would not
be regions of the tensor. So a path may have to uncut the inner axis first.

Source: the idea of searching over layouts by one communication at a time is nnScaler's (OSDI'24, section 4); uneven shards,
axes of time and costs of a cluster are added here.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from math import prod
from typing import Protocol, TypeAlias

from dyorc.errors import PlanError
from dyorc.planner.plan.layout import Layout, Mesh, overlap, region_of, shares
from dyorc.planner.plan.steps import Algorithm, CollectiveKind, kind_between
from dyorc.planner.program import PARTIAL, REPLICATE, Axes, Partial, Placement, Replicate, Shard, TensorProgram
from dyorc.planner.program.graph import type_sizes

_MAX_PAIRS = 4096
"""Pairs of ranks up to which each piece of a transfer between two meshes is priced; beyond, all cost what the largest does."""
_MAX_LINES = 16
"""Of a mesh's axis whose collectives are costed; of more, evenly spread ones."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a path depends on of a value.

    Attributes:
        shape: Its extents on one device.
        units: For each dimension, how many elements must stay together.
        element_bytes: Of one element.
    """

    shape: tuple[int, ...]
    units: tuple[int, ...]
    element_bytes: int


def tensor_of(program: TensorProgram, axes: Axes, value: str) -> Tensor:
    """Returns what a path depends on of a program's value."""
    shape = program.values[value].shape
    units = tuple(n // max(axes.extent_of(value, dim), 1) if n else 1 for dim, n in enumerate(shape))
    return Tensor(shape, units, type_sizes[program.values[value].dtype])


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a tensor lies: on a mesh, in a layout."""

    mesh: Mesh
    layout: Layout


@dataclass(frozen=True, slots=True)
class Hop:
    """One edge: a collective along an axis, or a transfer to another mesh, then without kind and axis."""

    source: Spot
    target: Spot
    kind: CollectiveKind | None = None
    axis: int | None = None


Cost: TypeAlias = Callable[[Tensor, Hop], float]
"""What one hop of a tensor costs; positive."""


@dataclass(frozen=True, slots=True)
class Path:
    """The cheapest hops from one layout to another, and what they cost together."""

    hops: tuple[Hop, ...]
    cost: float


class Adapters:
    """Finds paths and remembers them. Not for several threads."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        self._ratios: dict[str, Mapping[str, Sequence[float]]] = {}
        self._divisions: dict[tuple[str, int, int, int], tuple[int, ...]] = {}
        self._paths: dict[tuple[Tensor, str, Layout, str, Layout], Path] = {}

    def divide(self, mesh: Mesh, ratios: Mapping[str, Sequence[float]]) -> None:
        """Says in what ratios axes of a mesh divide; evenly, if nothing is said."""
        self._ratios[mesh.name] = dict(ratios)
        self._divisions.clear()

    def path(self, tensor: Tensor, before: Spot, after: Spot) -> Path:
        """Returns the cheapest path.

        Raises:
            PlanError: No path leads there.
        """
        key = (tensor, before.mesh.name, before.layout, after.mesh.name, after.layout)
        best = self._paths.get(key)
        if best is None:
            best = self._paths[key] = self._search(tensor, before, after)
        return best

    def shard(self, tensor: Tensor, mesh: Mesh, outer: Layout, dim: int) -> Shard | None:
        """Returns how the axis after some outer ones cuts a dimension; None if it cannot, because these leave pieces of several
        sizes, or pieces that are no whole units.
        """
        left = tensor.shape[dim]
        for placement in outer:
            if isinstance(placement, Shard) and placement.dim == dim:
                sizes = set(placement.sizes or ())
                if len(sizes) != 1:
                    return None
                left = sizes.pop()
        if left % tensor.units[dim]:
            return None
        return Shard(dim, self._divided(mesh, len(outer), left // tensor.units[dim], tensor.units[dim]))

    def _divided(self, mesh: Mesh, index: int, num_units: int, unit: int) -> tuple[int, ...]:
        key = (mesh.name, index, num_units, unit)
        if key not in self._divisions:
            axis = mesh.axes[index]
            ratios = self._ratios.get(mesh.name, {}).get(axis.name, (1.0,) * axis.size)
            self._divisions[key] = tuple(share * unit for share in shares(num_units, ratios))
        return self._divisions[key]

    def _search(self, tensor: Tensor, before: Spot, after: Spot) -> Path:
        order = count()  # among equal costs, what was found first: so the same path every time
        heap: list[tuple[float, int, Spot, Hop | None]] = [(0.0, next(order), before, None)]
        came: dict[tuple[str, Layout], Hop | None] = {}
        while heap:
            cost, _, spot, last = heapq.heappop(heap)
            if (spot.mesh.name, spot.layout) in came:
                continue
            came[spot.mesh.name, spot.layout] = last
            if spot.layout == after.layout and spot.mesh.name == after.mesh.name:
                return Path(_hops(came, spot), cost)
            for hop in self._hops_from(tensor, spot, before, after):
                if (hop.target.mesh.name, hop.target.layout) not in came:
                    heapq.heappush(heap, (cost + self._cost(tensor, hop), next(order), hop.target, hop))
        raise PlanError(
            f"a tensor of shape {list(tensor.shape)} cannot get from {_text(before)} to {_text(after)}: no collectives lead there"
        )

    def _hops_from(self, tensor: Tensor, spot: Spot, before: Spot, after: Spot) -> Iterator[Hop]:
        time = None if may_change_time(before, after) else spot.mesh.time_axis
        for index, now in enumerate(spot.layout):
            if index != time:
                for placement in self._placements(tensor, spot, index, before, after):
                    if placement != now and inner_cut(spot.layout, index, placement) is None:
                        layout = (*spot.layout[:index], placement, *spot.layout[index + 1 :])
                        yield Hop(spot, Spot(spot.mesh, layout), kind_between(now, placement), index)
        if spot.mesh.name != after.mesh.name:
            is_easy = spot.mesh.is_disjoint(after.mesh) or _is_small(spot, after)
            for layout in self._arrivals(tensor, after) if is_easy else (after.layout,):
                yield Hop(spot, Spot(after.mesh, layout))

    def _placements(self, tensor: Tensor, spot: Spot, index: int, before: Spot, after: Spot) -> Iterator[Placement]:
        """What an axis may be changed into: what the present placement allows, and only what can be of use."""
        now, ends = spot.layout[index], [end.layout[index] for end in (before, after) if end.mesh.name == spot.mesh.name]
        if not isinstance(now, Replicate):
            yield REPLICATE
        elif PARTIAL in ends:
            yield PARTIAL
        known = [end for end in ends if isinstance(end, Shard) and self._fits(tensor, spot.layout[:index], end)]
        own = (self.shard(tensor, spot.mesh, spot.layout[:index], dim) for dim in range(len(tensor.shape)))
        yield from dict.fromkeys([*known, *(shard for shard in own if shard)])

    @staticmethod
    def _fits(tensor: Tensor, outer: Layout, placement: Shard) -> bool:
        lefts = {tensor.shape[placement.dim]}
        for other in outer:
            if isinstance(other, Shard) and other.dim == placement.dim:
                lefts = set(other.sizes or ())
        return lefts == {sum(placement.sizes or ())}

    def _arrivals(self, tensor: Tensor, after: Spot) -> Iterator[Layout]:
        """The layouts in which a tensor may arrive on a mesh: the wanted one, or cut where that is whole, so that the ranks of
        the mesh gather among themselves what came to it once.
        """
        layouts: list[Layout] = [()]
        for wanted, axis in zip(after.layout, after.mesh.axes, strict=True):
            grown: list[Layout] = []
            for layout in layouts:
                cuts = (self.shard(tensor, after.mesh, layout, dim) for dim in range(len(tensor.shape)))
                can_cut = isinstance(wanted, Replicate) and not axis.is_time
                grown += [(*layout, p) for p in (wanted, *((cut for cut in cuts if cut) if can_cut else ()))]
            layouts = [layout for layout in grown if self._is_region(tensor, layout)]
        yield from layouts

    def _is_region(self, tensor: Tensor, layout: Layout) -> bool:
        last = layout[-1]
        return not isinstance(last, Shard) or self._fits(tensor, layout[:-1], last)


def may_change_time(before: Spot, after: Spot) -> bool:
    """Whether a path may change the axis of time, which needs all parts of the work. Where source and target hold the same
    parts, each part goes by itself.
    """
    source, target = before.mesh.time_axis, after.mesh.time_axis
    if source is None or target is None:
        return source is not None
    if before.mesh.name == after.mesh.name:
        return before.layout[source] != after.layout[target]
    return isinstance(before.layout[source], Replicate) or before.layout[source] != after.layout[target]


def inner_cut(layout: Layout, index: int, after: Placement) -> int | None:
    """The innermost axis that cuts a dimension inside an axis that is to change: its pieces would no longer be regions."""
    dims = {placement.dim for placement in (layout[index], after) if isinstance(placement, Shard)}
    inside = [i for i in range(index + 1, len(layout)) if isinstance(p := layout[i], Shard) and p.dim in dims]
    return inside[-1] if inside else None


def _hops(came: Mapping[tuple[str, Layout], Hop | None], end: Spot) -> tuple[Hop, ...]:
    hops: list[Hop] = []
    while (hop := came[end.mesh.name, end.layout]) is not None:
        hops.append(hop)
        end = hop.source
    return tuple(reversed(hops))


def _text(spot: Spot) -> str:
    return f"{'|'.join(map(str, spot.layout))} on mesh {spot.mesh.name}"


# -- costs ---------------------------------------------------------------------------------------------------------------------


def bytes_moved(tensor: Tensor, hop: Hop) -> float:
    """The bytes that the busiest rank receives, and one for the hop itself: of paths that move as much, the shorter one.

    Source: the usual bounds of ring algorithms; padded, so the largest shard counts.
    """
    if hop.kind is None:
        return 1.0 + _most_transferred(tensor, hop)
    assert hop.axis is not None
    axis, large, small = hop.source.mesh.axes[hop.axis], *_sizes(tensor, hop)
    if axis.is_time:
        return 1.0
    match hop.kind:
        case CollectiveKind.ALL_REDUCE:
            moved = 2 * (axis.size - 1) / axis.size * large
        case CollectiveKind.ALL_GATHER | CollectiveKind.REDUCE_SCATTER:
            moved = (axis.size - 1) * small
        case CollectiveKind.ALL_TO_ALL:
            moved = (axis.size - 1) / axis.size * large
        case CollectiveKind.SLICE | CollectiveKind.MASK:
            moved = 0.0
    return 1.0 + moved * _num_times(hop)


class CostsOfCluster(Protocol):
    """What paths ask of a cluster."""

    def collective_s(self, kind: CollectiveKind, algorithm: Algorithm, ranks: Sequence[int], piece_bytes: Sequence[int]) -> float:
        """Returns how long a collective takes. The pieces are those before an all-gather, after a reduce-scatter, and the
        larger ones otherwise.
        """
        ...

    def transfer_s(self, source_rank: int, target_rank: int, num_bytes: int) -> float:
        """Returns how long one rank sends bytes to another."""
        ...


def seconds_on(cluster: CostsOfCluster) -> Cost:
    """Returns the cost that is the seconds on a cluster."""

    def seconds(tensor: Tensor, hop: Hop) -> float:
        if hop.kind is None:
            return 1e-9 + _transfer_s(tensor, hop, cluster)
        assert hop.axis is not None
        if hop.source.mesh.axes[hop.axis].is_time:
            return 1e-9
        mesh, slowest_s = hop.source.mesh, 0.0
        lines = list(mesh.lines(hop.axis))
        for line in lines[:: -(-len(lines) // _MAX_LINES)]:
            ranks = [mesh.rank_at(coordinate) for coordinate in line]
            pieces = [_piece_bytes(tensor, hop, coordinate) for coordinate in line]
            slowest_s = max(slowest_s, cluster.collective_s(hop.kind, Algorithm.PADDED, ranks, pieces))
        return 1e-9 + slowest_s * _num_times(hop)

    return seconds


def _piece_bytes(tensor: Tensor, hop: Hop, coordinate: tuple[int, ...]) -> int:
    def of(layout: Layout) -> int:
        return prod(stop - start for start, stop in region_of(tensor.shape, layout, coordinate)) * tensor.element_bytes

    match hop.kind:
        case CollectiveKind.ALL_GATHER:
            return of(hop.source.layout)
        case CollectiveKind.REDUCE_SCATTER:
            return of(hop.target.layout)
        case _:
            return max(of(hop.source.layout), of(hop.target.layout))


def _sizes(tensor: Tensor, hop: Hop) -> tuple[int, int]:
    """The bytes of the largest piece before and after a hop: the larger of both, and the smaller."""
    both = [_largest_bytes(tensor, spot.layout) for spot in (hop.source, hop.target)]
    return max(both), min(both)


def _largest_bytes(tensor: Tensor, layout: Layout) -> int:
    shape = list(tensor.shape)
    for placement in layout:
        if isinstance(placement, Shard):
            shape[placement.dim] = max(placement.sizes or (0,))
    return prod(shape) * tensor.element_bytes


def _num_times(hop: Hop) -> int:
    """How often a step of space happens: once for each part of the work, if the tensor varies in time."""
    time = hop.source.mesh.time_axis
    return 1 if time is None or isinstance(hop.source.layout[time], Replicate) else hop.source.mesh.axes[time].size


def _is_small(source: Spot, target: Spot) -> bool:
    return len(source.mesh.ranks) * len(target.mesh.ranks) <= _MAX_PAIRS


def _moves(tensor: Tensor, hop: Hop) -> Iterator[tuple[int, int, int]]:
    """Yields what a transfer sends: from which rank, to which, and how many bytes. Of replicas, the first sends; a rank keeps
    what it holds itself.
    """
    source, target = hop.source, hop.target
    num_terms = prod(a.size for a, p in zip(source.mesh.axes, source.layout, strict=True) if isinstance(p, Partial))
    if not _is_small(source, target):
        yield source.mesh.ranks[0], target.mesh.ranks[-1], num_terms * _largest_bytes(tensor, target.layout)
        return
    held = {(source.mesh.rank_at(c), region_of(tensor.shape, source.layout, c)) for c in source.mesh.coordinates}
    pieces = [(source.mesh.rank_at(c), region_of(tensor.shape, source.layout, c)) for c in _firsts(source, Replicate)]
    wanted = ((target.mesh.rank_at(c), region_of(tensor.shape, target.layout, c)) for c in _firsts(target, Partial))
    for rank, region in dict.fromkeys(wanted):
        for sender, piece in pieces:
            common = overlap(region, piece)
            is_own = sender == rank or (num_terms == 1 and (rank, piece) in held)
            if common is not None and not is_own:
                yield sender, rank, prod(stop - start for start, stop in common) * tensor.element_bytes


def _firsts(spot: Spot, kind: type[Placement]) -> Iterator[tuple[int, ...]]:
    """The coordinates that are first along each axis whose placement is of a kind."""
    along = [(0,) if isinstance(p, kind) else range(axis.size) for p, axis in zip(spot.layout, spot.mesh.axes, strict=True)]
    yield from product(*along)


def _most_transferred(tensor: Tensor, hop: Hop) -> int:
    """The bytes that the busiest rank of a transfer sends or receives.

    Between meshes without a common rank, each rank receives its own piece once for each term of a sum, and each piece is sent
    once to each replica: this needs no look at the pairs of ranks.
    """
    source, target = hop.source, hop.target
    if source.mesh.is_disjoint(target.mesh):
        num_terms = prod(a.size for a, p in zip(source.mesh.axes, source.layout, strict=True) if isinstance(p, Partial))
        replicas = zip(target.mesh.axes, target.layout, strict=True)
        num_replicas = prod(a.size for a, p in replicas if isinstance(p, Replicate) and not a.is_time)
        time = source.mesh.time_axis
        own_terms = source.mesh.num_parts if time is not None and isinstance(source.layout[time], Partial) else 1
        received, sent = _most_elements(tensor, target) * num_terms, _most_elements(tensor, source) * own_terms * num_replicas
        return max(received, sent) * tensor.element_bytes
    received_bytes, sent_bytes = Counter[int](), Counter[int]()
    for sender, receiver, num_bytes in _moves(tensor, hop):
        received_bytes[receiver] += num_bytes
        sent_bytes[sender] += num_bytes
    return max([*received_bytes.values(), *sent_bytes.values()], default=0)


def _most_elements(tensor: Tensor, spot: Spot) -> int:
    """How many elements the rank with the largest pieces holds in all parts of its work; a term of a sum counts once."""
    extents, num_parts = list(tensor.shape), 1
    for axis, placement in zip(spot.mesh.axes, spot.layout, strict=True):
        if isinstance(placement, Shard):
            sizes = placement.sizes or (0,)
            if not axis.is_time:
                extents[placement.dim] = max(sizes)
            elif len(set(sizes)) == 1:  # otherwise nothing cuts inside it, and all parts together are what it cuts
                extents[placement.dim], num_parts = sizes[0], len(sizes)
    return prod(extents) * num_parts


def _transfer_s(tensor: Tensor, hop: Hop, cluster: CostsOfCluster) -> float:
    receiving_s, sending_s = dict[int, float](), dict[int, float]()
    for sender, receiver, num_bytes in _moves(tensor, hop):
        took_s = cluster.transfer_s(sender, receiver, num_bytes)
        receiving_s[receiver] = receiving_s.get(receiver, 0.0) + took_s
        sending_s[sender] = sending_s.get(sender, 0.0) + took_s
    return max([*receiving_s.values(), *sending_s.values()], default=0.0)
