"""Ranks by behaviour: ranks that do the same at the same time are one kind, whose first rank is simulated for all.

They are found by colour refinement. Ranks are alike if their devices are as fast, they hold pieces of the same sizes, do the same
shares of every node, and exchange them in groups that are alike in turn: as many members of each kind, over links that are as
fast. Beginning with devices and sizes, kinds are divided until that holds. Then every task of a rank has, for each other rank of
its kind, a task of the same length that waits for tasks of the same kinds: by induction, both begin and end at the same times.

Ports of machines are the exception: of several tasks that want one, the first has it. If all communication is of one group, none
ever waits. Otherwise ranks are alike only if their machines are, too, and groups that meet on a machine must be of different
kinds; and where two tasks ask for a port at the same moment, their numbers decide: then each rank is simulated after all.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import NamedTuple

from dyorc.planner.cluster import Cluster, Device
from dyorc.planner.plan import Apply, Collective, CollectiveKind, Mesh, Plan, Transfer
from dyorc.planner.simulate.sizes import Sizes


class RankGroup(NamedTuple):
    """Ranks that exchange something.

    Attributes:
        positions: In the ranks of the mesh.
        others: The ranks of groups that do the same at the same time.
    """

    positions: tuple[int, ...]
    others: tuple[tuple[int, ...], ...]


class RankKinds:
    """Ranks by kind. The first of each kind represents all."""

    def __init__(
        self,
        cluster: Cluster,
        first: Sequence[int] | None = None,
        channels: Mapping[tuple[int, ...], Hashable] | None = None,
    ) -> None:
        """Args:
        cluster: Where the plan runs.
        first: For each rank, the first of its kind; if None, each rank is its own kind.
        channels: For the ranks of each group, equal for groups of one kind; if None, each is its own kind.
        """
        self._cluster = cluster
        self.first = tuple(range(cluster.num_ranks)) if first is None else tuple(first)
        self._channels = channels or {}
        self._positions: dict[str, list[tuple[int, int]]] = {}
        self._groups: dict[tuple[str, str], list[RankGroup]] = {}
        self._firsts: dict[tuple[int, ...], tuple[int, ...]] = {}

    @cached_property
    def is_folded(self) -> bool:
        """Whether any rank represents another."""
        return any(rank != first for rank, first in enumerate(self.first))

    @property
    def is_one_channel(self) -> bool:
        """Whether all communication is of one group: then nothing ever waits for a port."""
        return self.is_folded and len(self._channels) <= 1

    @cached_property
    def others(self) -> Sequence[tuple[tuple[int, ...], ...]]:
        """For the first rank of a kind, the others of it, each as a group of one."""
        others: list[list[tuple[int, ...]]] = [[] for _ in self.first]
        for rank, first in enumerate(self.first):
            if rank != first:
                others[first].append((rank,))
        return [tuple(same_kind) for same_kind in others]

    @cached_property
    def first_machines(self) -> Sequence[int]:
        """For each machine by its number, the first that has devices of the same kinds."""
        known: dict[tuple[int, ...], int] = {}
        ranks = machines_of(self._cluster)
        return [known.setdefault(tuple(self.first[rank] for rank in inside), index) for index, inside in enumerate(ranks)]

    def firsts(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """The first rank of each kind among some ranks."""
        firsts = self._firsts.get(ranks)
        if firsts is None:
            firsts = self._firsts[ranks] = tuple(dict.fromkeys(self.first[rank] for rank in ranks))
        return firsts

    def channel(self, ranks: tuple[int, ...]) -> Hashable:
        """The key of a group's channel."""
        return self._channels.get(ranks, ranks)

    def positions(self, mesh: Mesh) -> Sequence[tuple[int, int]]:
        """The ranks of a mesh that are simulated, each after its position in it."""
        positions = self._positions.get(mesh.name)
        if positions is None:
            pairs = ((position, rank) for position, rank in enumerate(mesh.ranks) if self.first[rank] == rank)
            positions = self._positions[mesh.name] = list(pairs)
        return positions

    def groups(self, mesh: Mesh, axis: str) -> Sequence[RankGroup]:
        """The groups along an axis that are simulated."""
        groups = self._groups.get((mesh.name, axis))
        if groups is None:
            kinds: dict[int, list[tuple[int, ...]]] = {}
            for positions in groups_along(mesh, axis):
                kinds.setdefault(min(self.first[mesh.ranks[position]] for position in positions), []).append(positions)
            groups = [
                RankGroup(first, tuple(tuple(mesh.ranks[position] for position in positions) for positions in others))
                for first, *others in kinds.values()
            ]
            self._groups[mesh.name, axis] = groups
        return groups


def groups_along(mesh: Mesh, axis: str) -> Sequence[tuple[int, ...]]:
    """The groups along an axis of space: positions in the mesh's ranks."""
    sizes = [each.size for each in mesh.axes if not each.is_time]
    index = [each.name for each in mesh.axes if not each.is_time].index(axis)
    inner = prod(sizes[index + 1 :])
    outer = prod(sizes[:index])
    return [
        tuple((outer_index * sizes[index] + at) * inner + inner_index for at in range(sizes[index]))
        for outer_index in range(outer)
        for inner_index in range(inner)
    ]


def machines_of(cluster: Cluster) -> Sequence[Sequence[int]]:
    """The ranks in each machine, in order."""
    number = {machine: index for index, machine in enumerate(cluster.machines)}
    ranks: list[list[int]] = [[] for _ in number]
    for rank, device in enumerate(cluster.devices):
        ranks[number[device.machine]].append(rank)
    return ranks


_Groups = list[tuple[int, ...]]


def ranks_alike(plan: Plan, cluster: Cluster, sizes: Sizes) -> RankKinds:
    """Finds which ranks are alike.

    Those of plans with kernels, limits or transfers are not looked at, nor where computing and communicating slow each other:
    each is its own kind.
    """
    if cluster.contention or plan.network or plan.kernels or any(isinstance(step, Transfer) for step in plan.steps):
        return RankKinds(cluster)
    return _Refinement(plan, cluster, sizes).alike()


class _Refinement:
    """Divides the ranks into kinds, until no kind has to be divided."""

    def __init__(self, plan: Plan, cluster: Cluster, sizes: Sizes) -> None:
        self._cluster = cluster
        self._kinds: list[int] = [0] * cluster.num_ranks
        self._axes: list[_Groups] = [
            [tuple(mesh.ranks[position] for position in group) for group in groups_along(mesh, axis)]
            for mesh, axis in _axes_used(plan)
        ]
        self._channels: dict[tuple[int, ...], int] = {}  # -> the first axis along which the group lies
        for number, groups in enumerate(self._axes):
            for group in groups:
                self._channels.setdefault(group, number)
        self._divide([_speeds_of(device) for device in cluster.devices])
        for name, columns in _columns(plan, sizes).items():
            self._divide(self._spread(plan.meshes[name].ranks, zip(*columns, strict=True)))

    def alike(self) -> RankKinds:
        num_kinds = 0
        while num_kinds != (num_kinds := max(self._kinds) + 1):
            for number, groups in enumerate(self._axes):
                self._divide_by_groups(number, groups)
            if len(self._channels) > 1:
                self._divide_by_machines()
        if len(self._channels) > 1 and not self._are_ports_alike():
            return RankKinds(self._cluster)
        firsts: dict[int, int] = {}
        first = [firsts.setdefault(kind, rank) for rank, kind in enumerate(self._kinds)]
        channels = {group: (number, min(first[rank] for rank in group)) for group, number in self._channels.items()}
        return RankKinds(self._cluster, first, channels)

    def _divide(self, of_ranks: Iterable[Hashable]) -> None:
        """Ranks of one kind that differ in something are of several kinds from now on."""
        known: dict[Hashable, int] = {}
        self._kinds = [known.setdefault(each, len(known)) for each in zip(self._kinds, of_ranks, strict=True)]

    def _spread(self, ranks: Sequence[int], rows: Iterable[Hashable]) -> list[Hashable]:
        """For each rank of the cluster what is said of it; None of others."""
        row_of: list[Hashable] = [None] * self._cluster.num_ranks
        for rank, row in zip(ranks, rows, strict=True):
            row_of[rank] = row
        return row_of

    def _divide_by_groups(self, number: int, groups: _Groups) -> None:
        row_of: list[Hashable] = [None] * self._cluster.num_ranks
        for group in groups:
            members = tuple(sorted(Counter(self._kinds[rank] for rank in group).items()))
            counts = tuple(sorted(Counter(self._cluster.devices[rank].machine for rank in group).values()))
            link = self._cluster.slowest_link(group) if len(group) > 1 else None
            row = number, self._channels[group], members, counts, link
            for rank in group:
                row_of[rank] = row
        self._divide(row_of)

    def _divide_by_machines(self) -> None:
        row_of: list[Hashable] = [None] * self._cluster.num_ranks
        for ranks in machines_of(self._cluster):
            kinds = tuple(self._kinds[rank] for rank in ranks)
            for position, rank in enumerate(ranks):
                row_of[rank] = kinds, position
        self._divide(row_of)

    def _are_ports_alike(self) -> bool:
        """Whether the groups that meet on a machine are all of different kinds, in the same order on machines of one kind."""
        return all(self._is_in_order(groups) for groups in self._axes)

    def _is_in_order(self, groups: _Groups) -> bool:
        machine = {device.machine: number for number, device in enumerate(self._cluster.devices)}
        meeting: list[list[int]] = [[] for _ in machine]
        numbers = {name: number for number, name in enumerate(machine)}
        order: dict[int, int] = {}  # kind of a group, by the least kind in it -> its number
        for group in groups:
            kind = min(self._kinds[rank] for rank in group)
            order.setdefault(kind, len(order))
            for name in dict.fromkeys(self._cluster.devices[rank].machine for rank in group):
                meeting[numbers[name]].append(order[kind])
        return all(kinds == sorted(set(kinds)) for kinds in meeting)


def _axes_used(plan: Plan) -> list[tuple[Mesh, str]]:
    """The axes of space along which a plan communicates."""
    used: dict[tuple[str, str], None] = {}
    for step in plan.steps:
        if isinstance(step, Collective) and step.kind not in (CollectiveKind.SLICE, CollectiveKind.MASK):
            used[plan.tensors[step.source].mesh, step.axis] = None
    pairs = [(plan.meshes[name], axis) for name, axis in used]
    return [(mesh, axis) for mesh, axis in pairs if not mesh.axes[mesh.axis_index(axis)].is_time]


def _columns(plan: Plan, sizes: Sizes) -> Mapping[str, list[Sequence[float]]]:
    """For each mesh, what differs between its ranks: the bytes of pieces and the shares of work, each kind of them once."""
    columns_of: dict[str, dict[int, Sequence[float]]] = {name: {0: [0.0] * len(mesh.ranks)} for name, mesh in plan.meshes.items()}
    for tensor, placed in plan.tensors.items():
        for part in sizes.bytes_of(tensor):
            columns_of[placed.mesh][id(part)] = part
    for step in plan.steps:
        if isinstance(step, Apply):
            shares = sizes.shares_of(step)
            columns_of[step.mesh][id(shares)] = shares
    return {name: list(columns.values()) for name, columns in columns_of.items()}


def _speeds_of(device: Device) -> Hashable:
    return device.flops_per_s, device.memory_bytes_per_s, device.overhead_s, device.view_s
