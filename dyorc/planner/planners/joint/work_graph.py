"""What is placed and scheduled: items of work, and the values that they send each other.

An item is one operation, or several that run on one device one directly after the other. Items with one home share a device:
they read a parameter, make its gradient and update it. Operations that cost nothing belong to the item that makes their input.
Operations on nothing but constants and the step's inputs belong to no item: each device runs them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster, Link
from dyorc.planner.planners.operation_graphs import DisjointSets, is_owned, topological_order
from dyorc.planner.program import TensorProgram, ValueKind
from dyorc.planner.program.costs import FREE, costs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Operations that run together.

    Attributes:
        nodes: Their names, in the program's order.
        seconds: How long they take on each rank.
        home: The number of the items' common home.
    """

    nodes: tuple[str, ...]
    seconds: tuple[float, ...]
    home: int


@dataclass(frozen=True, slots=True)
class Parcel:
    """A value that an item makes and others read.

    Attributes:
        source: The item that makes it.
        targets: The items that read it.
        num_bytes: Of the value.
    """

    source: int
    targets: tuple[int, ...]
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class WorkGraph:
    """All items of a program.

    Attributes:
        items: In an order in which they can run.
        parcels: What they send each other.
        home_bytes: For each home, the bytes of its parameters and states.
        shared: Operations that belong to no item.
    """

    items: tuple[Item, ...]
    parcels: tuple[Parcel, ...]
    home_bytes: tuple[int, ...]
    shared: frozenset[str]

    @property
    def num_homes(self) -> int:
        """How many decisions a placement is."""
        return len(self.home_bytes)

    @cached_property
    def sent(self) -> Sequence[Sequence[Parcel]]:
        """For each item, what it makes for others."""
        sent: list[list[Parcel]] = [[] for _ in self.items]
        for parcel in self.parcels:
            sent[parcel.source].append(parcel)
        return sent

    @cached_property
    def readers(self) -> Sequence[frozenset[int]]:
        """For each item, the items that read its results."""
        return [frozenset(target for parcel in sent for target in parcel.targets) for sent in self.sent]

    @cached_property
    def sources(self) -> Sequence[frozenset[int]]:
        """For each item, the items whose results it reads."""
        sources: list[set[int]] = [set() for _ in self.items]
        for index, readers in enumerate(self.readers):
            for reader in readers:
                sources[reader].add(index)
        return list(map(frozenset, sources))

    @cached_property
    def in_home(self) -> Sequence[Sequence[int]]:
        """The items of each home."""
        members: list[list[int]] = [[] for _ in range(self.num_homes)]
        for index, item in enumerate(self.items):
            members[item.home].append(index)
        return members

    def bytes_to(self, index: int, targets: Iterable[int]) -> tuple[int, int]:
        """How many values of an item some of the others read, and their bytes together."""
        wanted = set(targets)
        sizes = [parcel.num_bytes for parcel in self.sent[index] if not wanted.isdisjoint(parcel.targets)]
        return len(sizes), sum(sizes)


def work_of(program: TensorProgram, cluster: Cluster) -> WorkGraph:
    """Returns a program's work as it is, an item for each operation that costs something."""
    shared = shared_nodes(program)
    costs = costs_of(program)
    item_of: dict[str, str] = {}
    for node in program.nodes:
        if node.name in shared:
            continue
        makers = [program.producers[name].name for name in node.inputs if name in program.producers]
        of_makers = [item_of[name] for name in makers if name in item_of]
        item_of[node.name] = of_makers[0] if costs[node.name] == FREE and len(set(of_makers)) == 1 else node.name
    return group_work(program, cluster, item_of, homes_of(program, shared), shared)


def group_work(
    program: TensorProgram, cluster: Cluster, item_of: Mapping[str, str], homes: DisjointSets, shared: frozenset[str]
) -> WorkGraph:
    """Returns the work in given items.

    Args:
        program: What is done.
        cluster: Where: says how long it takes.
        item_of: For each node that is not shared, the name of its item.
        homes: Ties nodes, and parameters and states, that share a device.
        shared: Nodes that belong to no item.
    """
    costs, ranks = costs_of(program), range(cluster.num_ranks)
    members: dict[str, list[str]] = {}
    for node in program.nodes:
        if node.name not in shared:
            members.setdefault(item_of[node.name], []).append(node.name)
            homes.union(item_of[node.name], node.name)
    number = {name: index for index, name in enumerate(_in_order(program, members, item_of))}
    home_number: dict[str, int] = {}
    items: list[Item] = []
    for name in number:
        home = home_number.setdefault(homes.find(name), len(home_number))
        seconds = tuple(sum(cluster.compute_s(costs[node], rank) for node in members[name]) for rank in ranks)
        items.append(Item(nodes=tuple(members[name]), seconds=seconds, home=home))
    parcels: list[Parcel] = []
    for value, maker in program.producers.items():
        if maker.name not in shared:
            source = number[item_of[maker.name]]
            readers = {number[item_of[reader.name]] for reader in program.consumers[value] if reader.name not in shared}
            if targets := readers - {source}:
                parcels.append(Parcel(source, tuple(sorted(targets)), program.values[value].num_bytes))
    home_bytes = [0] * len(home_number)
    for name in program.sources:
        if is_owned(program, name) and (home := home_number.get(homes.find(name))) is not None:
            home_bytes[home] += program.values[name].num_bytes
    return WorkGraph(items=tuple(items), parcels=tuple(parcels), home_bytes=tuple(home_bytes), shared=shared)


def _in_order(program: TensorProgram, members: Mapping[str, Sequence[str]], item_of: Mapping[str, str]) -> list[str]:
    """The items in topological order; of the ready ones, the item whose first operation comes first."""
    names = list(members)
    number = {name: index for index, name in enumerate(names)}
    position = {node.name: float(index) for index, node in enumerate(program.nodes)}
    before: list[set[int]] = []
    for name, nodes in members.items():
        values = (value for node in nodes for value in program.node_named[node].inputs)
        makers = (program.producers[value].name for value in values if value in program.producers)
        before.append({number[item_of[maker]] for maker in makers if item_of.get(maker, name) != name})
    order = topological_order(before, [position[nodes[0]] for nodes in members.values()])
    if len(order) < len(members):
        raise PlanError(f"{len(members) - len(order)} items of {program.name} wait for each other in a circle")
    return [names[index] for index in order]


def homes_of(program: TensorProgram, shared: frozenset[str]) -> DisjointSets:
    """Ties each parameter and state to what reads it, makes its gradient and updates it."""
    ties = DisjointSets()
    for node in program.nodes:
        if node.name not in shared:
            for source in node.inputs:
                if is_owned(program, source):
                    ties.union(source, node.name)
    for owner, result in (*program.gradients.items(), *program.updates.items()):
        maker = program.producers.get(result)
        if maker is not None and maker.name not in shared and is_owned(program, owner):
            ties.union(owner, maker.name)
    return ties


def shared_nodes(program: TensorProgram) -> frozenset[str]:
    """The operations that each device does for itself: on constants, scalars of the optimizer, and views of the inputs."""
    costs = costs_of(program)
    values = {name for name in program.sources if not is_owned(program, name)}
    constant = {name for name in values if program.values[name].kind is not ValueKind.INPUT}
    names: set[str] = set()
    for node in program.nodes:
        is_view = costs[node.name] == FREE and values.issuperset(node.inputs)
        if constant.issuperset(node.inputs) or is_view:
            made = list(filter(None, node.outputs))
            values.update(made)
            constant.update(made if constant.issuperset(node.inputs) else ())
            names.add(node.name)
    return frozenset(names)


def far_links(cluster: Cluster) -> list[Link]:
    """The links between machines; those inside the only one, if there are no others."""
    between = [link for link in cluster.links if link.source != link.target]
    return between + ([cluster.between_all] if cluster.between_all else []) or list(cluster.links)
