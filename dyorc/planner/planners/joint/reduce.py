"""Makes a compact graph: fuses items, and ties homes together, until few are left to decide about.

Three rules, in turns until none applies:

* an item is fused with the only one that reads it, if it is also the only one that this reads: nothing could run between them;
* two homes are tied if sending what passes between them takes longer than the smaller one's work: moving that elsewhere gains
  nothing;
* an item is fused with one of the same home that it reads, if no other way leads from one to the other.

The last two are bounded: no item and no home grows beyond a part of a device's fair share. If too many items are left, the bound
is raised, and it begins again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dyorc.planner.cluster import Cluster
from dyorc.planner.planners.joint.work_graph import WorkGraph, far_links, group_work, homes_of, work_of
from dyorc.planner.program import TensorProgram

_FIRST_BOUND = 1 / 8
"""Of a device's fair share, up to which items grow at first."""
_GROWTH = 1.5
_HOME_RATIO = 0.5
"""Of a device's memory that one home's parameters may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """A compact graph, and how it came about.

    Attributes:
        work: What is left to place.
        num_items: How many items there were, and how many are left.
        num_homes: The same of homes.
    """

    work: WorkGraph
    num_items: tuple[int, int]
    num_homes: tuple[int, int]


def reduce_work(program: TensorProgram, cluster: Cluster, max_items: int = 48, before: WorkGraph | None = None) -> Reduction:
    """Returns a compact graph of a program's work.

    Args:
        program: What is planned.
        cluster: Where: says what takes how long.
        max_items: How many items may be left; more are, if they cannot be fused without a circle.
        before: The work as it is, if that is known.
    """
    before = before or work_of(program, cluster)
    fair_s = sum(min(item.seconds) for item in before.items) / cluster.num_ranks
    graph = _Graph(before, cluster)
    bound = _FIRST_BOUND
    while graph.pass_over(bound * fair_s) or (len(graph.alive) > max_items and bound < cluster.num_ranks):
        if not graph.has_changed:
            bound *= _GROWTH
    names = [item.nodes[0] for item in before.items]
    item_of = {node: names[graph.top(i)] for i, item in enumerate(before.items) for node in item.nodes}
    homes = homes_of(program, before.shared)
    for index, item in enumerate(before.items):
        homes.union(names[before.in_home[graph.home(before.items[index].home)][0]], item.nodes[0])
    after = group_work(program, cluster, item_of, homes, before.shared)
    return Reduction(work=after, num_items=(len(before.items), len(after.items)), num_homes=(before.num_homes, after.num_homes))


class _Graph:
    """Items and homes while they grow together."""

    def __init__(self, work: WorkGraph, cluster: Cluster) -> None:
        self._cluster = cluster
        links = far_links(cluster)
        self._bytes_per_s = max((link.bytes_per_s for link in links), default=float("inf"))
        self._latency_s = min((link.latency_s for link in links), default=0.0)
        self._room = min(device.memory_bytes for device in cluster.devices) * _HOME_RATIO
        self._above = list(range(len(work.items)))
        self._home_above = list(range(work.num_homes))
        self._home_of = [item.home for item in work.items]
        self._seconds = [min(item.seconds) for item in work.items]
        self._home_bytes = list(work.home_bytes)
        self._home_s = [sum(self._seconds[i] for i in members) for members in work.in_home]
        self._after: list[dict[int, int]] = [{} for _ in work.items]  # item -> its readers, and the bytes they read
        self._before: list[set[int]] = [set() for _ in work.items]
        for parcel in work.parcels:
            for target in parcel.targets:
                self._after[parcel.source][target] = self._after[parcel.source].get(target, 0) + parcel.num_bytes
                self._before[target].add(parcel.source)
        self.alive = dict.fromkeys(range(len(work.items)))
        self.has_changed = False

    def top(self, item: int) -> int:
        """The item that another was fused into."""
        while self._above[item] != item:
            item = self._above[item]
        return item

    def home(self, home: int) -> int:
        """The home that another was tied to."""
        while self._home_above[home] != home:
            home = self._home_above[home]
        return home

    def pass_over(self, bound_s: float) -> bool:
        """Applies each rule once to all, and returns whether anything has changed."""
        self.has_changed = False
        for item in list(self.alive):
            if item in self.alive:
                self._fuse_chain(item)
        for home, other, send_s in sorted(self._between_homes(), key=lambda edge: (-edge[2], edge[0], edge[1])):
            self._tie(self.home(home), self.home(other), send_s, bound_s)
        for item in list(self.alive):
            if item in self.alive:
                self._fuse_within(item, bound_s)
        return self.has_changed

    def _fuse_chain(self, item: int) -> None:
        while len(self._after[item]) == 1:
            reader = next(iter(self._after[item]))
            if len(self._before[reader]) > 1 or not self._has_room(item, reader):
                return
            self._fuse(item, reader)

    def _fuse_within(self, item: int, bound_s: float) -> None:
        readers = sorted(self._after[item].items(), key=lambda pair: (-pair[1], pair[0]))
        for reader, _ in readers:
            is_home = self.home(self._home_of[item]) == self.home(self._home_of[reader])
            if is_home and self._seconds[item] + self._seconds[reader] <= bound_s and not self._is_around(item, reader):
                self._fuse(item, reader)
                return

    def _is_around(self, item: int, reader: int) -> bool:
        """Whether another way leads from an item to one that reads it: fusing them would make a circle."""
        stack = [other for other in self._after[item] if other != reader]
        seen = set(stack)
        while stack:
            for follower in self._after[stack.pop()]:
                if follower == reader:
                    return True
                if follower not in seen:
                    seen.add(follower)
                    stack.append(follower)
        return False

    def _between_homes(self) -> Iterator[tuple[int, int, float]]:
        """Yields homes that exchange something, and how long that would take."""
        seconds: dict[tuple[int, int], float] = {}
        for item in self.alive:
            home = self.home(self._home_of[item])
            for reader, num_bytes in self._after[item].items():
                other = self.home(self._home_of[reader])
                if home != other:
                    pair = min(home, other), max(home, other)
                    seconds[pair] = seconds.get(pair, 0.0) + self._latency_s + num_bytes / self._bytes_per_s
        for (home, other), send_s in seconds.items():
            yield home, other, send_s

    def _tie(self, home: int, other: int, send_s: float, bound_s: float) -> None:
        is_worth_it = send_s >= min(self._home_s[home], self._home_s[other])
        is_small = self._home_s[home] + self._home_s[other] <= bound_s * 2
        if home != other and is_worth_it and is_small and self._home_bytes[home] + self._home_bytes[other] <= self._room:
            self._join_homes(home, other)
            self.has_changed = True

    def _has_room(self, item: int, reader: int) -> bool:
        home, other = self.home(self._home_of[item]), self.home(self._home_of[reader])
        return home == other or self._home_bytes[home] + self._home_bytes[other] <= self._room

    def _join_homes(self, home: int, other: int) -> None:
        self._home_above[other] = home
        self._home_s[home] += self._home_s[other]
        self._home_bytes[home] += self._home_bytes[other]

    def _fuse(self, item: int, reader: int) -> None:
        """Makes the reader a part of the item."""
        home, other = self.home(self._home_of[item]), self.home(self._home_of[reader])
        if home != other:
            self._join_homes(home, other)
        self._above[reader] = item
        self._seconds[item] += self._seconds[reader]
        del self.alive[reader], self._after[item][reader]
        for follower, num_bytes in self._after[reader].items():
            self._after[item][follower] = self._after[item].get(follower, 0) + num_bytes
            self._before[follower].discard(reader)
            self._before[follower].add(item)
        for maker in self._before[reader] - {item}:
            self._after[maker][item] = self._after[maker].get(item, 0) + self._after[maker].pop(reader)
            self._before[item].add(maker)
        self._after[reader], self._before[reader] = {}, set()
        self.has_changed = True


def refine_placement(reduction: Reduction, before: WorkGraph, placement: Sequence[int]) -> tuple[int, ...]:
    """Returns a placement of a compact graph as one of the graph that it was made from."""
    rank_of = {node: placement[item.home] for item in reduction.work.items for node in item.nodes}
    return tuple(rank_of[before.items[members[0]].nodes[0]] for members in before.in_home)


def sizes_text(reduction: Reduction) -> Mapping[str, str]:
    """The sizes before and after, for a plan's notes."""
    return {
        "items": f"{reduction.num_items[1]} of {reduction.num_items[0]}",
        "homes": f"{reduction.num_homes[1]} of {reduction.num_homes[0]}",
    }
