"""When items run and values are sent, if it is decided where items run. Searches ask this hundreds of times a second.

A device that is free takes, of the items that are ready, the one with the longest way to the end. What it makes is sent at once,
once to each device that reads it. What is sent needs its channel and, between machines, what the simulator says it needs: the way
out and the way in, or with limits the line between the two machines. So the simulator confirms these figures nearly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

from dyorc.planner.cluster import Cluster
from dyorc.planner.planners.joint.work_graph import WorkGraph, far_links

Placement: TypeAlias = tuple[int, ...]
"""The rank of each home."""
Rates: TypeAlias = Mapping[tuple[int, int], float]
"""Bytes a second from one machine to another, by their numbers."""
Priority: TypeAlias = Sequence[float]
"""For each item; the ready item of highest priority runs first."""


class LinkModel:
    """What sending costs and needs. Not for several threads."""

    def __init__(self, cluster: Cluster, rates: Rates | None = None) -> None:
        self.cluster = cluster
        self.rates = rates
        number = {machine: index for index, machine in enumerate(cluster.machines)}
        self.machine_of = [number[device.machine] for device in cluster.devices]
        self._links: dict[tuple[int, int], tuple[float, float]] = {}

    def link(self, source: int, target: int) -> tuple[float, float]:
        """The latency and the bytes a second from one rank to another."""
        cost = self._links.get((source, target))
        if cost is None:
            link = self.cluster.link_between(source, target)
            pair, bytes_per_s = (self.machine_of[source], self.machine_of[target]), link.bytes_per_s
            if self.rates is not None and pair[0] != pair[1]:
                bytes_per_s = min(bytes_per_s, self.rates.get(pair, bytes_per_s))
            cost = self._links[source, target] = link.latency_s, bytes_per_s
        return cost

    def seconds(self, source: int, target: int, num_values: int, num_bytes: int) -> float:
        """How long values take from one rank to another."""
        latency_s, bytes_per_s = self.link(source, target)
        return num_values * latency_s + num_bytes / bytes_per_s

    def needs(self, source: int, target: int) -> tuple[tuple[str, int, int], ...]:
        """What that needs for itself: its channel, and ways out and in, or the line of two machines."""
        channel = "channel", source, target
        out_of, into = self.machine_of[source], self.machine_of[target]
        if out_of == into:
            return (channel,)
        return (channel, ("out", out_of, 0), ("in", into, 0)) if self.rates is None else (channel, ("line", out_of, into))


@dataclass(frozen=True, slots=True)
class ScheduledTransfer:
    """The values of one item that one other device reads.

    Attributes:
        item: The item.
        source: Its rank.
        target: The rank that reads them.
        num_values: How many they are.
        num_bytes: All together.
        start_s: When the first is sent.
        end_s: When the last has arrived.
    """

    item: int
    source: int
    target: int
    num_values: int
    num_bytes: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSchedule:
    """When everything happens.

    Attributes:
        total_s: When all is done.
        starts: For each item, when it begins.
        ends: When it ends.
        order: For each rank, its items.
        transfers: In the order in which they become ready.
    """

    total_s: float
    starts: tuple[float, ...]
    ends: tuple[float, ...]
    order: tuple[tuple[int, ...], ...]
    transfers: tuple[ScheduledTransfer, ...]


def ways_to_end(work: WorkGraph, cluster: Cluster) -> list[float]:
    """For each item, the seconds from its beginning to the end if sending costs what it does on average: HEFT's upward rank."""
    links = far_links(cluster)
    is_far = 1 - 1 / cluster.num_ranks
    s_per_byte = is_far * sum(1 / link.bytes_per_s for link in links) / max(len(links), 1)
    latency_s = is_far * sum(link.latency_s for link in links) / max(len(links), 1)
    way_s = [0.0] * len(work.items)
    for index in reversed(range(len(work.items))):
        after_s = max(
            (
                way_s[target] + latency_s + parcel.num_bytes * s_per_byte
                for parcel in work.sent[index]
                for target in parcel.targets
            ),
            default=0.0,
        )
        way_s[index] = after_s + sum(work.items[index].seconds) / cluster.num_ranks
    return way_s


def schedule(work: WorkGraph, placement: Placement, links: LinkModel, priority: Priority) -> ListSchedule:
    """Returns when everything happens."""
    return _Run(work, placement, links, priority).schedule()


class _Run:
    def __init__(self, work: WorkGraph, placement: Placement, links: LinkModel, priority: Priority) -> None:
        self._work = work
        self._links = links
        self._priority = priority
        self._rank_of = [placement[item.home] for item in work.items]
        self._waiting = [len(sources) for sources in work.sources]
        num_ranks = links.cluster.num_ranks
        self._ready: list[list[tuple[float, int]]] = [[] for _ in range(num_ranks)]
        self._is_busy = [False] * num_ranks
        self._free_s: dict[tuple[str, int, int], float] = {}
        self._events: list[tuple[float, int, int]] = []  # when, an item that has ended or -1 for an arrival, what has arrived
        self._starts = [0.0] * len(work.items)
        self._ends = [0.0] * len(work.items)
        self._order: list[list[int]] = [[] for _ in range(num_ranks)]
        self._transfers: list[ScheduledTransfer] = []
        self._arriving: list[tuple[int, ...]] = []

    def schedule(self) -> ListSchedule:
        for index, num in enumerate(self._waiting):
            if not num:
                self._make_ready(index)
        for rank in range(len(self._ready)):
            self._begin(rank, 0.0)
        while self._events:
            now_s, index, arrival = heappop(self._events)
            if index < 0:
                ranks = self._deliver(self._arriving[arrival])
            else:
                rank = self._rank_of[index]
                self._is_busy[rank] = False
                ranks = {rank, *self._finish(index, now_s)}
            for rank in sorted(ranks):
                self._begin(rank, now_s)
        ends = [*self._ends, *(transfer.end_s for transfer in self._transfers)]
        return ListSchedule(
            total_s=max(ends, default=0.0),
            starts=tuple(self._starts),
            ends=tuple(self._ends),
            order=tuple(map(tuple, self._order)),
            transfers=tuple(self._transfers),
        )

    def _make_ready(self, index: int) -> int:
        rank = self._rank_of[index]
        heappush(self._ready[rank], (-self._priority[index], index))
        return rank

    def _begin(self, rank: int, now_s: float) -> None:
        if self._is_busy[rank] or not self._ready[rank]:
            return
        _, index = heappop(self._ready[rank])
        self._is_busy[rank] = True
        self._order[rank].append(index)
        self._starts[index] = now_s
        self._ends[index] = now_s + self._work.items[index].seconds[rank]
        heappush(self._events, (self._ends[index], index, 0))

    def _finish(self, index: int, now_s: float) -> set[int]:
        """Sends what an item has made, and returns the ranks that have more to do."""
        here, away = set[int](), dict[int, list[int]]()
        source = self._rank_of[index]
        for reader in self._work.readers[index]:
            if self._rank_of[reader] == source:
                here |= self._deliver((reader,))
            else:
                away.setdefault(self._rank_of[reader], []).append(reader)
        urgent = sorted(away, key=lambda target: (-max(self._priority[reader] for reader in away[target]), target))
        for target in urgent:
            self._send(index, source, target, away[target], now_s)
        return here

    def _send(self, index: int, source: int, target: int, readers: Sequence[int], now_s: float) -> None:
        num_values, num_bytes = self._work.bytes_to(index, readers)
        needs = self._links.needs(source, target)
        start_s = max(now_s, *(self._free_s.get(need, 0.0) for need in needs))
        end_s = start_s + self._links.seconds(source, target, num_values, num_bytes)
        for need in needs:
            self._free_s[need] = end_s
        self._transfers.append(ScheduledTransfer(index, source, target, num_values, num_bytes, start_s, end_s))
        self._arriving.append(tuple(readers))
        heappush(self._events, (end_s, -1, len(self._arriving) - 1))

    def _deliver(self, readers: Sequence[int]) -> set[int]:
        ranks = set[int]()
        for reader in readers:
            self._waiting[reader] -= 1
            if not self._waiting[reader]:
                ranks.add(self._make_ready(reader))
        return ranks
