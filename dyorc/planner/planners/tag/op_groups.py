"""Which operations are decided about together.

Base groups cannot be divided: a parameter with its states and all that reads it, makes its gradient or updates it; and
operations between which a value passes that has no batch to split. METIS gathers base groups into op groups, so that little is
exchanged between them. What depends on nothing but constants belongs to no group: it is computed wherever it is read.

Source: TAG (TPDS'23); the weights of METIS' graph are those of its code.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dyorc.planner.cluster import Cluster
from dyorc.planner.planners.baselines.follow import Choices, batch_of
from dyorc.planner.planners.operation_graphs import DisjointSets, is_owned, partition_graph, scaled_weights
from dyorc.planner.program import Shard, TensorProgram, ValueKind
from dyorc.planner.program.costs import costs_of

_IMBALANCE = 5.0
_LEAST_EDGE_BYTES = 1000
_LARGEST_WEIGHT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseGroup:
    """A base group.

    Attributes:
        nodes: The names of its operations, in the program's order.
        sources: Its parameters and their states.
        compute_s: How long its operations take on a device, the mean of all devices.
    """

    nodes: tuple[str, ...]
    sources: tuple[str, ...]
    compute_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OpGroup:
    """Base groups that are decided about together."""

    units: tuple[BaseGroup, ...]

    @property
    def compute_s(self) -> float:
        """How long its operations take on a device."""
        return sum(unit.compute_s for unit in self.units)


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """A program in groups.

    Attributes:
        groups: By how long they take, the longest first: the order of decisions.
        shared: Operations that belong to no group.
        edges: Bytes that two units exchange, by the first node of each.
    """

    groups: tuple[OpGroup, ...]
    shared: frozenset[str]
    edges: Mapping[tuple[str, str], int]


def groups_of(choices: Choices, cluster: Cluster, max_groups: int = 40) -> Grouping:
    """Divides a program into at most so many op groups."""
    shared = _shared(choices.program)
    units = _units(choices, cluster, shared)
    edges = _edges(choices.program, units)
    parts = partition(units, edges, max_groups)
    groups = [OpGroup(units=tuple(units[i] for i in members)) for members in parts if members]
    groups.sort(key=lambda group: -group.compute_s)
    return Grouping(groups=tuple(groups), shared=shared, edges=edges)


def partition(
    units: Sequence[BaseGroup], edges: Mapping[tuple[str, str], int], num_parts: int, shares: Sequence[float] | None = None
) -> list[list[int]]:
    """Divides units by METIS so that parts exchange little, and returns the indices of each part's units.

    Args:
        units: What to divide.
        edges: Bytes between units.
        num_parts: How many parts there may be.
        shares: What each part should have of the work; equal if None.
    """
    cuts = _Cuts(units, edges, (_IMBALANCE if shares is None else 1.03) ** (1 / max(num_parts - 1, 1).bit_length()))
    return cuts.cut(list(range(len(units))), shares or [1.0] * num_parts)


class _Cuts:
    """Cuts into halves, and these again: METIS itself would complain on the terminal where a unit is larger than a part."""

    def __init__(self, units: Sequence[BaseGroup], edges: Mapping[tuple[str, str], int], imbalance: float) -> None:
        self._units = units
        self._imbalance = imbalance
        number = {unit.nodes[0]: index for index, unit in enumerate(units)}
        self._neighbours: list[list[tuple[int, int]]] = [[] for _ in units]
        known = [(number[a], number[b], size) for (a, b), size in edges.items() if a in number and b in number]
        weights = scaled_weights([size for _, _, size in known], _LARGEST_WEIGHT)
        for (source, target, _), weight in zip(known, weights, strict=True):
            self._neighbours[source].append((target, weight))
            self._neighbours[target].append((source, weight))

    def cut(self, members: list[int], shares: Sequence[float]) -> list[list[int]]:
        if len(shares) == 1:
            return [members]
        if len(members) <= len(shares):
            by_time = sorted(members, key=lambda i: -self._units[i].compute_s)
            order = sorted(range(len(shares)), key=lambda part: -shares[part])
            parts: list[list[int]] = [[] for _ in shares]
            for index, part in zip(by_time, order, strict=False):
                parts[part].append(index)
            return parts
        middle = (len(shares) + 1) // 2
        left, right = self._halves(members, sum(shares[:middle]) / sum(shares))
        return [*self.cut(left, shares[:middle]), *self.cut(right, shares[middle:])]

    def _halves(self, members: list[int], share: float) -> tuple[list[int], list[int]]:
        place = {index: number for number, index in enumerate(members)}
        neighbours = [[(place[other], weight) for other, weight in self._neighbours[i] if other in place] for i in members]
        weights = scaled_weights([self._units[i].compute_s ** 0.5 for i in members], _LARGEST_WEIGHT)
        parts = partition_graph(neighbours, weights, [share, 1 - share], max(int(1000 * (self._imbalance - 1)), 1))
        left, right = ([i for i, part in zip(members, parts, strict=True) if part == side] for side in (0, 1))
        return left, right


def _shared(program: TensorProgram) -> frozenset[str]:
    """The nodes that read nothing but constants, and the count of an optimizer's steps."""
    values = {name for name in program.sources if is_free_source(program, name)}
    names: list[str] = []
    for node in program.nodes:
        if values.issuperset(node.inputs):
            values.update(filter(None, node.outputs))
            names.append(node.name)
    return frozenset(names)


def is_free_source(program: TensorProgram, name: str) -> bool:
    """Whether a source may be held wherever it is read: buffers that stay as they are, and scalars of the optimizer."""
    return program.values[name].kind in (ValueKind.BUFFER, ValueKind.STATE) and not is_owned(program, name)


def _units(choices: Choices, cluster: Cluster, shared: frozenset[str]) -> list[BaseGroup]:
    program = choices.program
    ties = DisjointSets()
    for node in program.nodes:
        if node.name not in shared:
            ties.add(node.name)
            for source in filter(lambda name: is_owned(program, name), node.inputs):
                ties.union(source, node.name)
    for owner, result in (*program.gradients.items(), *program.updates.items()):
        if program.producers[result].name not in shared:
            ties.union(owner, program.producers[result].name)
    for name in _without_batch(choices):
        producer = program.producers[name].name
        if producer not in shared:
            for reader in program.consumers[name]:
                ties.union(producer, reader.name)
    costs = costs_of(program)
    ranks = range(cluster.num_ranks)
    groups: list[BaseGroup] = []
    for members in ties.sets():
        nodes = tuple(name for name in members if name in program.node_named)
        if nodes:
            total_s = sum(cluster.compute_s(costs[name], rank) for name in nodes for rank in ranks)
            sources = tuple(name for name in members if name not in program.node_named)
            groups.append(BaseGroup(nodes=nodes, sources=sources, compute_s=total_s / len(ranks)))
    return groups


def _without_batch(choices: Choices) -> Iterable[str]:
    """Computed values that have no batch: they tie what makes them to what reads them."""
    program, axes = choices.program, choices.axes
    batches = {axes.outermost[name][p.dim] for name, p in batch_of(choices).items() if isinstance(p, Shard)}
    for name in program.producers:
        if batches.isdisjoint(axes.outermost[name]):
            yield name


def _edges(program: TensorProgram, units: Sequence[BaseGroup]) -> dict[tuple[str, str], int]:
    """What units exchange; each value counts once between two of them."""
    unit_of = {name: unit.nodes[0] for unit in units for name in unit.nodes}
    edges = Counter[tuple[str, str]]()
    for name, producer in program.producers.items():
        source = unit_of.get(producer.name)
        others = dict.fromkeys(unit_of[reader.name] for reader in program.consumers[name] if reader.name in unit_of)
        for target in others:
            if source is not None and target != source:
                edges[min(source, target), max(source, target)] += program.values[name].num_bytes or _LEAST_EDGE_BYTES
    return dict(edges)
