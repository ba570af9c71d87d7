"""Which ports communication between machines needs for itself, and which it shares.

Without limits, each machine has a way out and a way in, and each carries one thing at a time. Limits replace them by one line for
each pair of machines: it carries one thing at a time as well, as fast as was reserved for the pair, and pairs do not wait for
each other. Where unused parts are lent, the lines share the ways out and in again, as `flows.py` has it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Network


class NetworkFlow(NamedTuple):
    """A communication whose speed depends on what else passes.

    Attributes:
        bytes_per_s: What is reserved for it: in its duration, nothing is lent.
        max_bytes_per_s: What its links let pass.
        latency_s: The part of its duration that no speed shortens.
        ways: The ways out of and into machines that it shares with others.
    """

    bytes_per_s: float
    max_bytes_per_s: float
    latency_s: float
    ways: tuple[int, ...]


class Ports:
    """Numbers the ports of a cluster."""

    def __init__(self, cluster: Cluster, network: Network | None = None) -> None:
        number = {machine: index for index, machine in enumerate(cluster.machines)}
        self._of_rank = [number[device.machine] for device in cluster.devices]
        self._of_group: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._num_machines = len(number)
        self._is_limited = network is not None
        self._lends = network is not None and not network.is_strict
        self._cluster = cluster
        self._limited = cluster.limited_to(network) if network else cluster
        self._flows: dict[tuple[int, ...], NetworkFlow | None] = {}
        ways = [machine for machine in cluster.machines for _ in (0, 1)] if self._lends else []
        self.capacities = tuple(cluster.capacity_of(machine) for machine in ways)

    @property
    def num_ports(self) -> int:
        """How many there are."""
        return self._num_machines**2 if self._is_limited else 2 * self._num_machines

    def of(self, ranks: tuple[int, ...], *, is_message: bool = False) -> tuple[int, ...]:
        """What a message from the first rank to the second needs, or a collective; nothing within one machine."""
        key = (*ranks, -1) if is_message else ranks
        ports = self._of_group.get(key)
        if ports is None:
            ports = self._of_group[key] = tuple(self._find(ranks, is_message))
        return ports

    def flow(self, ranks: tuple[int, ...], *, is_message: bool = False) -> NetworkFlow | None:
        """What the speed of a communication depends on; None if it does not change."""
        if not self._lends:
            return None
        key = (*ranks, -1) if is_message else ranks
        if key not in self._flows:
            pairs = self._pairs(ranks, is_message)
            self._flows[key] = self._find_flow(ranks, pairs) if pairs else None
        return self._flows[key]

    def _find(self, ranks: Sequence[int], is_message: bool) -> Iterator[int]:
        pairs = self._pairs(ranks, is_message)
        if self._is_limited:
            yield from dict.fromkeys(source * self._num_machines + target for source, target in pairs)
        else:
            for source, target in pairs if is_message else ():
                yield from (2 * source, 2 * target + 1)
            for machine in () if is_message else dict.fromkeys(source for source, _ in pairs):
                yield from (2 * machine, 2 * machine + 1)

    def _pairs(self, ranks: Sequence[int], is_message: bool) -> list[tuple[int, int]]:
        """Machines that send to each other: those of a message, or the ring of a collective."""
        machines = list(dict.fromkeys(self._of_rank[rank] for rank in ranks))
        pairs = zip(machines, [*machines[1:], machines[0]], strict=True)
        return [pair for pair in pairs if pair[0] != pair[1]][: 1 if is_message else None]

    def _find_flow(self, ranks: Sequence[int], pairs: Sequence[tuple[int, int]]) -> NetworkFlow:
        ring = list(ranks)[:2] if len(pairs) == 1 else list(ranks)
        if len(pairs) == 1:
            link = self._limited.link_between(*ring)
            reserved, latency_s, most = link.bytes_per_s, link.latency_s, self._cluster.link_between(*ring).bytes_per_s
        else:
            (reserved, latency_s), (most, _) = self._limited.slowest_link(ring), self._cluster.slowest_link(ring)
        return NetworkFlow(
            reserved,
            most,
            latency_s,
            tuple(dict.fromkeys(way for source, target in pairs for way in (2 * source, 2 * target + 1))),
        )
