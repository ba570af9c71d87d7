"""What planners that give each operation a device have in common: graphs of operations, in order, in sets and in parts."""

from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush

from dyorc.planner.program import TensorProgram, ValueKind


def is_owned(program: TensorProgram, name: str) -> bool:
    """Whether a value begins on one device alone: a parameter or a state; small states and constants are everywhere."""
    value = program.values[name]
    match value.kind:
        case ValueKind.PARAMETER:
            return True
        case ValueKind.STATE:
            return bool(value.shape)
        case ValueKind.BUFFER:
            return name in program.updates
        case ValueKind.INPUT | ValueKind.ACTIVATION:
            return False


def topological_order(before: Sequence[Collection[int]], priority: Sequence[float] | None = None) -> list[int]:
    """Puts nodes in an order in which each comes after those before it. Nodes of a cycle, and what follows it, are left out.

    Args:
        before: For each node, the nodes that it waits for.
        priority: Of the nodes that are ready, the one with the least is next; if None, the one that was ready last.
    """
    after: list[list[int]] = [[] for _ in before]
    for node, predecessors in enumerate(before):
        for predecessor in predecessors:
            after[predecessor].append(node)
    num_waiting = [len(predecessors) for predecessors in before]
    first = [node for node, num in enumerate(num_waiting) if not num]
    ready = [(-float(number) if priority is None else priority[node], node) for number, node in enumerate(first)]
    heapify(ready)
    num_ready, order = len(ready), list[int]()
    while ready:
        _, node = heappop(ready)
        order.append(node)
        for follower in after[node]:
            num_waiting[follower] -= 1
            if not num_waiting[follower]:
                heappush(ready, (-float(num_ready) if priority is None else priority[follower], follower))
                num_ready += 1
    return order


class DisjointSets:
    """Disjoint sets of names, by union and find."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Adds a name as a set by itself."""
        self._above.setdefault(name, name)

    def union(self, name: str, other: str) -> None:
        """Unites the sets of two names."""
        self.add(name)
        self.add(other)
        self._above[self.find(name)] = self.find(other)

    def sets(self) -> Iterable[list[str]]:
        """Returns the sets, in the order in which names were added."""
        members: dict[str, list[str]] = {}
        for name in self._above:
            members.setdefault(self.find(name), []).append(name)
        return members.values()

    def find(self, name: str) -> str:
        """Returns the representative of a name's set."""
        self.add(name)
        while self._above[name] != name:
            self._above[name] = self._above[self._above[name]]
            name = self._above[name]
        return name


def partition_graph(
    neighbours: Sequence[Collection[tuple[int, int]]], weights: Sequence[int], shares: Sequence[float], imbalance: int = -1
) -> list[int]:
    """Divides a graph by METIS (Karypis and Kumar, SISC'98) so that little passes between parts; returns the part of each node.

    Args:
        neighbours: For each node, pairs of a neighbour and the weight of the edge to it. Every edge is there twice.
        weights: Of the nodes.
        shares: What each part should have of all weight.
        imbalance: By how many thousandths a part may be too large; METIS's usual allowance if -1.
    """
    import pymetis  # heavy, and only planners need it

    starts = [0]
    for pairs in neighbours:
        starts.append(starts[-1] + len(pairs))
    flat = [pair for pairs in neighbours for pair in pairs]
    _, parts = pymetis.part_graph(
        len(shares),
        pymetis.CSRAdjacency(adj_starts=starts, adjacent=[neighbour for neighbour, _ in flat]),
        vweights=weights,
        eweights=[weight for _, weight in flat],
        tpwgts=list(shares),
        recursive=False,
        options=pymetis.Options(seed=0, ufactor=imbalance),
    )
    return list(parts)


def scaled_weights(weights: Sequence[float], largest: int) -> list[int]:
    """Returns weights as METIS wants them: whole numbers from 1 to a little above `largest`."""
    most = max(weights, default=0.0) or 1.0
    return [1 + round(weight / most * largest) for weight in weights]
