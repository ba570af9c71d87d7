"""Ranks by behaviour: ranks that do the same at the same time are one kind, whose first rank is simulated for all."""

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import NamedTuple

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Mesh


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
        first: For each rank, the first of its kind; if None, each rank is a kind of its own.
        channels: For the ranks of each group, equal for groups of one kind; if None, each is a kind of its own.
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
