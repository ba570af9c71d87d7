"""What can be decided about an op group, and where its operations and sources are then.

An action is a set of machines and an option. TAG knows three options. Its parameter server is one here, too: parameters and the
optimizer's work are on one rank, which sends the parameters and receives the gradients in transfers between meshes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis
from dyorc.planner.planners.baselines.follow import AxisPlan, Choices, batch_of, choices_of, follow
from dyorc.planner.planners.tag.op_groups import Grouping, OpGroup, groups_of, is_free_source, partition
from dyorc.planner.program import REPLICATE, Node, Placement, Shard, Strategy, TensorProgram, ValueKind
from dyorc.planner.program.graph import Phase

Ranks: TypeAlias = tuple[int, ...]

_MAX_MACHINES_IN_ALL_SETS = 6
"""Up to which all sets of machines can be decided: 63 of them."""


class Option(StrEnum):
    """What the devices of an action do."""

    REPLICATE = "replicate"  # each has all parameters and a share of the batch; gradients are summed by all-reduce
    SERVER = "server"  # the same, but one of them holds the parameters and updates them
    SPREAD = "spread"  # each has some of the operations, whole


@dataclass(frozen=True, slots=True)
class Action:
    """A decision about an op group.

    Attributes:
        machines: The numbers of the machines.
        option: What their devices do.
    """

    machines: tuple[int, ...]
    option: Option


@dataclass(frozen=True, slots=True)
class GroupPlacement:
    """Where the parts of a group run under an action.

    Attributes:
        of_unit: For each of its units, the ranks of the mesh.
        home_of_unit: For each, the ranks that hold its parameters.
    """

    of_unit: tuple[Ranks, ...]
    home_of_unit: tuple[Ranks, ...]


class SearchContext:
    """A program and a cluster, and what all decisions have in common. Not for several threads."""

    def __init__(self, program: TensorProgram, cluster: Cluster, max_groups: int = 40) -> None:
        self.program = program
        self.cluster = cluster
        self.choices: Choices = choices_of(program)
        self.grouping: Grouping = groups_of(self.choices, cluster, max_groups)
        self._along: dict[int, AxisPlan] = {}
        self._places: dict[tuple[int, Action], GroupPlacement] = {}

    @property
    def groups(self) -> tuple[OpGroup, ...]:
        """The op groups, in the order of decisions."""
        return self.grouping.groups

    @cached_property
    def machines(self) -> tuple[Ranks, ...]:
        """The ranks of each machine."""
        names = dict.fromkeys(device.machine for device in self.cluster.devices)
        devices = self.cluster.devices
        return tuple(tuple(rank for rank, device in enumerate(devices) if device.machine == name) for name in names)

    def ranks_of(self, action: Action) -> Ranks:
        """The ranks of an action's machines."""
        return tuple(rank for machine in action.machines for rank in self.machines[machine])

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """What can be decided about each group. A batch that does not divide evenly is not replicated."""
        batch, actions = self._batch(), list[Action]()
        for machines in self._machine_sets():
            num_ranks = len(self.ranks_of(Action(machines, Option.SPREAD)))
            if num_ranks == 1:
                actions.append(Action(machines, Option.SPREAD))
                continue
            is_even = batch % num_ranks == 0
            actions += [Action(machines, option) for option in Option if is_even or option is Option.SPREAD]
        return tuple(actions)

    def _machine_sets(self) -> Sequence[tuple[int, ...]]:
        """Sets of machines, the largest first: of a few machines all, of many the fastest, those alike, and each by itself."""
        numbers = range(len(self.machines))
        if len(numbers) <= _MAX_MACHINES_IN_ALL_SETS:
            return [machines for size in range(len(numbers), 0, -1) for machines in combinations(numbers, size)]
        firsts = [self.cluster.devices[ranks[0]] for ranks in self.machines]
        fastest = sorted(numbers, key=lambda number: -firsts[number].flops_per_s)
        sets = [tuple(sorted(fastest[:size])) for size in range(1, len(fastest) + 1)]
        sets += [tuple(n for n in numbers if firsts[n].name == name) for name in dict.fromkeys(d.name for d in firsts)]
        sets += [(number,) for number in numbers]
        return sorted(dict.fromkeys(sets), key=lambda machines: -len(machines))

    @cached_property
    def data_parallel(self) -> tuple[Action, ...]:
        """Everything replicated everywhere, which others are compared with."""
        option = Option.REPLICATE if self.cluster.num_ranks > 1 else Option.SPREAD
        return (Action(tuple(range(len(self.machines))), option),) * len(self.groups)

    @cached_property
    def spread(self) -> tuple[Action, ...]:
        """Everything spread over all devices, which takes least memory."""
        return (Action(tuple(range(len(self.machines))), Option.SPREAD),) * len(self.groups)

    def along(self, num_ranks: int) -> AxisPlan:
        """What each operation does where the batch is split over so many ranks."""
        along = self._along.get(num_ranks)
        if along is None:
            axis = MeshAxis(name="data", size=num_ranks)
            along = self._along[num_ranks] = follow(self.choices, axis, batch_of(self.choices))
        return along

    def source_placement(self, name: str, ranks: Ranks) -> Placement:
        """How a source lies on some ranks when a step begins."""
        return self.along(len(ranks)).sources[name] if len(ranks) > 1 else REPLICATE

    def strategy(self, node: Node, ranks: Ranks) -> Strategy:
        """How a node runs on some ranks."""
        is_whole = len(ranks) == 1 or node.phase is Phase.UPDATE
        return self.choices.strategies[node.name][0] if is_whole else self.along(len(ranks)).strategies[node.name]

    def place(self, group: int, action: Action) -> GroupPlacement:
        """Where a group's units run under an action."""
        place = self._places.get((group, action))
        if place is None:
            place = self._places[group, action] = self._find_place(group, action)
        return place

    def _find_place(self, group: int, action: Action) -> GroupPlacement:
        units, ranks = self.groups[group].units, self.ranks_of(action)
        match action.option:
            case Option.REPLICATE:
                return GroupPlacement((ranks,) * len(units), (ranks,) * len(units))
            case Option.SERVER:
                servers = tuple((ranks[(group + number) % len(ranks)],) for number in range(len(units)))
                return GroupPlacement((ranks,) * len(units), servers)
            case Option.SPREAD:
                speeds = [self.cluster.devices[rank].flops_per_s for rank in ranks]
                parts = partition(units, self.grouping.edges, len(ranks), speeds)
                of = {index: (rank,) for rank, members in zip(ranks, parts, strict=True) for index in members}
                places = tuple(of[index] for index in range(len(units)))
                return GroupPlacement(places, places)

    def _batch(self) -> int:
        axes = self.choices.axes
        sizes = [axes.extent_of(name, p.dim) for name, p in batch_of(self.choices).items() if isinstance(p, Shard)]
        return min(sizes, default=1)


@dataclass(frozen=True, kw_only=True)
class NodePlacement:
    """Where everything is.

    Attributes:
        of_node: The ranks of the meshes that run each node.
        of_source: The ranks of the meshes that hold each source; the first owns it.
    """

    of_node: Mapping[str, tuple[Ranks, ...]]
    of_source: Mapping[str, tuple[Ranks, ...]]


def place_nodes(context: SearchContext, actions: Sequence[Action]) -> NodePlacement:
    """Places all nodes and sources, given an action for each group."""
    program = context.program
    of_node: dict[str, tuple[Ranks, ...]] = {}
    owners: dict[str, Ranks] = {}
    for number, (group, action) in enumerate(zip(context.groups, actions, strict=True)):
        place = context.place(number, action)
        for unit, ranks, home in zip(group.units, place.of_unit, place.home_of_unit, strict=True):
            for name in unit.nodes:
                of_node[name] = (home if program.node_named[name].phase is Phase.UPDATE else ranks,)
            owners |= dict.fromkeys(unit.sources, home)
    first = next(iter(of_node.values()))
    for node in reversed(program.nodes):
        if node.name in context.grouping.shared:
            readers = dict.fromkeys(ranks for name in node.outputs if name for ranks in _readers(program, of_node, name))
            of_node[node.name] = tuple(readers) or first
    of_source: dict[str, tuple[Ranks, ...]] = {}
    for name in program.sources:
        is_free = program.values[name].kind is ValueKind.INPUT or is_free_source(program, name)
        readers = tuple(dict.fromkeys(_readers(program, of_node, name))) or first
        of_source[name] = readers if is_free or name not in owners else (owners[name],)
    return NodePlacement(of_node=of_node, of_source=of_source)


def _readers(program: TensorProgram, of_node: Mapping[str, tuple[Ranks, ...]], name: str) -> list[Ranks]:
    return [ranks for node in program.consumers[name] for ranks in of_node.get(node.name, ())]
