"""Divides each machine's egress bandwidth among its receivers, for a given placement and schedule.

Then the seconds of a step are the longest way through a graph: items, and transfers, which take
`latency + bytes / rate`; devices and lines do one thing after another. In the rates this is convex, so two ways find the best:

* a fixed point: with the part that each transfer has in the longest ways, `W` of a pair of machines is the sum of its bytes in
  them, and the best rates make the sum of all `W / rate` smallest: in the ratios of the roots of `W`, where only
  the way out counts;
* a linear program in which tangents bound `1 / rate` from below. The rates that it finds give new tangents, until its bound
  meets what they really take.

Every rate has a floor, so that nothing that the schedule did not foresee starves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp
from typing import Any

from dyorc.planner.cluster import Cluster
from dyorc.planner.planners.joint.list_schedule import LinkModel, ListSchedule, Rates
from dyorc.planner.planners.joint.work_graph import WorkGraph
from dyorc.planner.planners.operation_graphs import topological_order

_FLOOR = 0.02
"""Of a machine's way out, for each other machine; less if there are many."""
_DAMPING = 0.5
_PRICE_ROUNDS, _LEAST_WEIGHT = 60, 1e-6
_NEAR = 0.02
"""Of the longest way: by how much shorter ones have a part in it that is e times smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How the ways out are divided.

    Attributes:
        rates: Between machines, by their numbers.
        total_s: What a step takes in the order of the schedule.
        bound_s: What no rates can better; 0 if that was not found.
        num_rounds: How many rounds it took.
    """

    rates: Rates
    total_s: float
    bound_s: float
    num_rounds: int


class Capacities:
    """What may be divided: each machine's way out, and as much of each way in."""

    def __init__(self, cluster: Cluster) -> None:
        self.of = [cluster.capacity_of(machine) for machine in cluster.machines]
        self.num = len(self.of)
        self.pairs = [(first, other) for first in range(self.num) for other in range(self.num) if first != other]
        names = cluster.machines
        interfaces = [{i.name: i.bytes_per_s for i in cluster.interfaces_of(machine)} for machine in names]
        rank_in = {device.machine: rank for rank, device in enumerate(cluster.devices)}

        def most(source: int, target: int) -> float:
            """What the link lets pass, and the interfaces that both have."""
            both = [
                min(speed, interfaces[target][name]) for name, speed in interfaces[source].items() if name in interfaces[target]
            ]
            return min(sum(both), cluster.link_between(rank_in[names[source]], rank_in[names[target]]).bytes_per_s)

        self.most: Mapping[tuple[int, int], float] = {pair: most(*pair) for pair in self.pairs}
        self._share = share = min(_FLOOR, 0.5 / max(self.num - 1, 1))
        self.floor: Mapping[tuple[int, int], float] = {
            pair: share * min(self.of[pair[0]], self.of[pair[1]]) for pair in self.pairs
        }

    def even_rates(self) -> Rates:
        """As much for each other machine."""
        return self.best_rates(dict.fromkeys(self.pairs, 1.0))

    def best_rates(self, weights: Mapping[tuple[int, int], float]) -> Rates:
        """Returns the rates above the floors that make the sum of `weight / rate` smallest: `sqrt(weight / (out + in))` with a
        price for each way out and each way in, which rises until no more is sold than there is.
        """
        total = sum(weights.values()) or 1.0
        roots = {pair: max(weights.get(pair, 0.0) / total, _LEAST_WEIGHT) ** 0.5 for pair in self.pairs}
        prices = [[1.0] * self.num, [1.0] * self.num]
        unit, left = max(self.of), 1 - self._share * (self.num - 1)
        sold = dict[tuple[int, int], float]()
        for _ in range(_PRICE_ROUNDS):
            for end in (0, 1):
                sold = {pair: root / (prices[0][pair[0]] + prices[1][pair[1]]) ** 0.5 for pair, root in roots.items()}
                for machine in range(self.num):
                    used = sum(rate for pair, rate in sold.items() if pair[end] == machine) * unit / self.of[machine]
                    prices[end][machine] = max(prices[end][machine] * min(max(used, 0.1), 10.0) ** 1.5, 1e-9)
        sold = {pair: rate * unit * left for pair, rate in sold.items()}
        for end in (0, 1):  # what is still sold beyond the capacity
            for machine in range(self.num):
                pairs = [pair for pair in self.pairs if pair[end] == machine]
                over = sum(sold[pair] for pair in pairs) / (self.of[machine] * left)
                for pair in pairs if over > 1 else ():
                    sold[pair] /= over
        return {pair: min(self.floor[pair] + rate, self.most[pair]) for pair, rate in sold.items()}


class CriticalPathGraph:
    """The graph of what waits for what, in the order of a schedule."""

    def __init__(self, work: WorkGraph, placed: ListSchedule, links: LinkModel) -> None:
        num_items = len(work.items)
        self.seconds = [end_s - start_s for start_s, end_s in zip(placed.starts, placed.ends, strict=True)]
        self.num_bytes = [0] * num_items
        self.pairs: list[tuple[int, int] | None] = [None] * num_items
        self.before: list[list[int]] = [[] for _ in range(num_items)]
        rank_of = {index: rank for rank, order in enumerate(placed.order) for index in order}
        for order in placed.order:
            for first, other in pairwise(order):
                self.before[other].append(first)
        for index, readers in enumerate(work.readers):
            for reader in readers:
                if rank_of[index] == rank_of[reader]:
                    self.before[reader].append(index)
        last: dict[tuple[str, int, int], int] = {}
        divided = LinkModel(links.cluster, {})
        for transfer in placed.transfers:
            node = len(self.seconds)
            pair = links.machine_of[transfer.source], links.machine_of[transfer.target]
            is_far = pair[0] != pair[1]
            latency_s, bytes_per_s = divided.link(transfer.source, transfer.target)
            self.seconds.append(transfer.num_values * latency_s + (0.0 if is_far else transfer.num_bytes / bytes_per_s))
            self.num_bytes.append(transfer.num_bytes if is_far else 0)
            self.pairs.append(pair if is_far else None)
            self.before.append([transfer.item])
            for need in divided.needs(transfer.source, transfer.target):
                if need in last:
                    self.before[node].append(last[need])
                last[need] = node
            for reader in work.readers[transfer.item]:
                if rank_of[reader] == transfer.target:
                    self.before[reader].append(node)
        self.order = topological_order(self.before)

    def lengths(self, rates: Rates) -> list[float]:
        """How long each node takes."""
        return [
            seconds if pair is None else seconds + num_bytes / rates[pair]
            for seconds, num_bytes, pair in zip(self.seconds, self.num_bytes, self.pairs, strict=True)
        ]

    def ends(self, rates: Rates) -> list[float]:
        """When each node ends."""
        lengths, ends = self.lengths(rates), [0.0] * len(self.seconds)
        for node in self.order:
            ends[node] = lengths[node] + max((ends[before] for before in self.before[node]), default=0.0)
        return ends

    def total_s(self, rates: Rates) -> float:
        """How long all takes."""
        return max(self.ends(rates), default=0.0)

    def weights(self, rates: Rates) -> dict[tuple[int, int], float]:
        """For each pair of machines, the bytes of its transfers, each by the part that it has in the longest ways."""
        ends, lengths = self.ends(rates), self.lengths(rates)
        total_s = max(ends, default=0.0)
        heat_s = total_s * _NEAR
        part = [exp((end_s - total_s) / heat_s) for end_s in ends]
        scale = sum(part)
        flow, weights = [each / scale for each in part], dict[tuple[int, int], float]()
        for node in reversed(self.order):
            pair = self.pairs[node]
            if pair is not None:
                weights[pair] = weights.get(pair, 0.0) + flow[node] * self.num_bytes[node]
            begin_s = ends[node] - lengths[node]
            shares = [exp((ends[before] - begin_s) / heat_s) for before in self.before[node]]
            for before, share in zip(self.before[node], shares, strict=True):
                flow[before] += flow[node] * share / sum(shares)
        return weights


def fixed_point(timeline: CriticalPathGraph, capacities: Capacities, max_rounds: int = 40) -> Division:
    """Alternates between the critical paths for the rates and the rates for the critical paths."""
    rates = capacities.even_rates()
    best, best_s, mixed = rates, timeline.total_s(rates), dict[tuple[int, int], float]()
    for _ in range(max_rounds):
        weights = timeline.weights(rates)
        total = sum(weights.values())
        if not total:
            break
        mixed = {
            pair: _DAMPING * mixed.get(pair, 0.0) + (1 - _DAMPING) * weights.get(pair, 0.0) / total for pair in capacities.pairs
        }
        rates = capacities.best_rates(mixed)
        if (total_s := timeline.total_s(rates)) < best_s:
            best, best_s = rates, total_s
    return Division(rates=best, total_s=best_s, bound_s=0.0, num_rounds=max_rounds)


def by_tangents(timeline: CriticalPathGraph, capacities: Capacities, max_rounds: int = 20, tolerance: float = 1e-3) -> Division:
    """Finds the best rates, and proves it by the bound of the linear program."""
    best, number = fixed_point(timeline, capacities), 0
    bound_s, tangents = 0.0, {pair: [capacities.most[pair], best.rates[pair]] for pair in capacities.pairs}
    for number in range(1, max_rounds + 1):
        bound_s, rates = _Program(timeline, capacities, tangents).solve()
        total_s = timeline.total_s(rates)
        if total_s < best.total_s:
            best = Division(rates=rates, total_s=total_s, bound_s=0.0, num_rounds=number)
        if best.total_s - bound_s <= tolerance * best.total_s:
            break
        for pair in capacities.pairs:
            tangents[pair].append(rates[pair])
    return Division(rates=best.rates, total_s=best.total_s, bound_s=min(bound_s, best.total_s), num_rounds=number)


class _Program:
    """The linear program: the end of each node, and for each pair the rate, as a part of the fastest, and its inverse."""

    def __init__(
        self, timeline: CriticalPathGraph, capacities: Capacities, tangents: Mapping[tuple[int, int], Sequence[float]]
    ) -> None:
        self._timeline = timeline
        self._capacities = capacities
        self._unit = max(capacities.of)
        self._scale_s = timeline.total_s(capacities.even_rates()) or 1.0
        self._num = len(timeline.seconds)
        self._at = {pair: self._num + 1 + 2 * number for number, pair in enumerate(capacities.pairs)}
        self._rows: list[tuple[dict[int, float], float]] = []  # coefficients, and what their sum may not exceed
        for node in range(self._num):
            self._add_node(node)
        for pair, points in tangents.items():
            for point in points:
                rate = point / self._unit  # the tangent of 1 / x at p is 2 / p - x / p**2
                self._rows.append(({self._at[pair] + 1: -1.0, self._at[pair]: -1 / rate**2}, -2 / rate))
        for machine in range(capacities.num):
            for end in (0, 1):
                row = {self._at[pair]: 1.0 for pair in capacities.pairs if pair[end] == machine}
                self._rows.append((row, capacities.of[machine] / self._unit))

    def solve(self) -> tuple[float, Rates]:
        """Returns the bound in seconds, and the rates that reach it if the tangents are right."""
        from scipy.optimize import linprog  # heavy, and only planners need it
        from scipy.sparse import coo_matrix

        entries = [(row, column, value) for row, (terms, _) in enumerate(self._rows) for column, value in terms.items()]
        rows, columns, values = zip(*entries, strict=True)
        num_columns = self._num + 1 + 2 * len(self._at)
        cost = [0.0] * num_columns
        cost[self._num] = 1.0
        bounds: list[tuple[float, float | None]] = [(0.0, None)] * num_columns
        for pair, at in self._at.items():
            bounds[at] = (self._capacities.floor[pair] / self._unit, self._capacities.most[pair] / self._unit)
        solution: Any = linprog(
            cost,
            A_ub=coo_matrix((values, (rows, columns)), shape=(len(self._rows), num_columns)).tocsr(),
            b_ub=[limit for _, limit in self._rows],
            bounds=bounds,
            method="highs",
        )
        rates = {pair: max(float(solution.x[at]) * self._unit, self._capacities.floor[pair]) for pair, at in self._at.items()}
        return float(solution.fun) * self._scale_s, rates

    def _add_node(self, node: int) -> None:
        timeline, pair = self._timeline, self._timeline.pairs[node]
        terms: dict[int, float] = {node: -1.0}
        if pair is not None:
            terms[self._at[pair] + 1] = timeline.num_bytes[node] / self._unit / self._scale_s
        limit = -timeline.seconds[node] / self._scale_s
        self._rows.append((dict(terms), limit))
        for before in dict.fromkeys(timeline.before[node]):
            self._rows.append(({**terms, before: 1.0}, limit))
        self._rows.append(({node: 1.0, self._num: -1.0}, 0.0))
