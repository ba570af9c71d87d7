"""Machines whose ways out are limited, emulated by ranks on one machine: when a message of a rank to another machine has left.

All ranks see, in one small file, who is sending where. A rank with something to send marks that, and counts down its bytes at
the speed that it has then, a little at a time: so unused bandwidth is lent at once, and taken back at once. Each rank writes its
own bytes of the file alone, so there is nothing to lock.

    file:  one byte for each rank and machine: whether the rank has something under way to that machine
"""

import mmap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Network
from dyorc.planner.simulate.flows import speeds_of
from dyorc.planner.simulate.machine_ports import NetworkFlow

_TURN_S = 0.0005
"""How long a speed is kept before it is looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """The machines of emulated ranks, and the limits between them.

    Attributes:
        machine_of: The number of each rank's machine.
        rates: For each machine, what is reserved for each other one, in bytes a second.
        most: For each machine, what the link to each other one lets pass.
        latencies_s: For each machine, how long each message to each other one waits besides.
        capacities: What may leave each machine, and as much may enter it.
        is_strict: Whether nothing is lent.
    """

    machine_of: tuple[int, ...]
    rates: tuple[tuple[float, ...], ...]
    most: tuple[tuple[float, ...], ...]
    latencies_s: tuple[tuple[float, ...], ...]
    capacities: tuple[float, ...]
    is_strict: bool


def egress_of(cluster: Cluster, network: Network) -> Egress:
    """Returns the emulation of a cluster's machines under the limits of a plan."""
    machines = cluster.machines
    limited, rank_in = cluster.limited_to(network), {device.machine: rank for rank, device in enumerate(cluster.devices)}

    def table(value: Callable[[int, int], float]) -> tuple[tuple[float, ...], ...]:
        ranks = [rank_in[machine] for machine in machines]
        return tuple(tuple(value(source, target) if source != target else 0.0 for target in ranks) for source in ranks)

    return Egress(
        machine_of=tuple(machines.index(device.machine) for device in cluster.devices),
        rates=table(lambda one, other: limited.link_between(one, other).bytes_per_s),
        most=table(lambda one, other: cluster.link_between(one, other).bytes_per_s),
        latencies_s=table(lambda one, other: cluster.link_between(one, other).latency_s),
        capacities=tuple(cluster.capacity_of(machine) for machine in machines),
        is_strict=network.is_strict,
    )


Thing = TypeVar("Thing")


@dataclass(slots=True, eq=False)
class _Waiting(Generic[Thing]):
    thing: Thing
    machine: int
    left: float
    at_s: float = field(default=0.0)  # when it has waited for its latency, too


class EgressShaper:
    """One rank's way out. For several threads; each sends by itself."""

    def __init__(self, egress: Egress, rank: int, path: Path) -> None:
        self._egress = egress
        self._rank = rank
        self._here = egress.machine_of[rank]
        self._num = len(egress.capacities)
        size = len(egress.machine_of) * self._num
        with path.open("a+b") as file:
            file.truncate(size)
            self._table = mmap.mmap(file.fileno(), size)
        self._num_under_way = [0] * self._num
        self._lock = Lock()
        self._speeds: dict[bytes, Mapping[tuple[int, int], float]] = {}

    def close(self) -> None:
        """Closes the file."""
        self._table.close()

    def leaving(self, sends: Sequence[tuple[int, int, Thing]]) -> Iterator[Thing]:
        """Yields things when they have passed; what goes to one machine, one after another.

        Args:
            sends: For each thing, the rank that it goes to, and its bytes.
        """
        waiting: list[_Waiting[Thing]] = []
        for rank, num_bytes, thing in sends:
            machine = self._egress.machine_of[rank]
            if machine == self._here or not num_bytes:
                yield thing
            else:
                waiting.append(_Waiting(thing, machine, float(num_bytes)))
        machines = {entry.machine for entry in waiting}
        for machine in machines:
            self.mark(machine, 1)
        try:
            yield from self._passing(waiting)
        finally:
            for machine in machines.intersection(entry.machine for entry in waiting):  # the rest is not wanted
                self.mark(machine, -1)

    def _passing(self, waiting: "list[_Waiting[Thing]]") -> Iterator[Thing]:
        then_s, late = time.monotonic(), list[_Waiting[Thing]]()
        while waiting or late:
            first = {entry.machine: entry for entry in reversed(waiting)}
            ends = [entry.left / self.rate(machine) for machine, entry in first.items()]
            ends += [entry.at_s - then_s for entry in late]
            time.sleep(max(min([_TURN_S, *ends]), 0.0))
            now_s = time.monotonic()
            for machine, entry in first.items():
                entry.left -= self.rate(machine) * (now_s - then_s)
                if entry.left <= 0:
                    entry.at_s = now_s + self._egress.latencies_s[self._here][machine]
                    late.append(entry)
                    waiting.remove(entry)
                    if all(other.machine != machine for other in waiting):
                        self.mark(machine, -1)
            then_s = now_s
            for entry in [entry for entry in late if entry.at_s <= now_s]:
                late.remove(entry)
                yield entry.thing

    def mark(self, machine: int, change: int) -> None:
        """Notes that one sending more, or one less, is under way to a machine."""
        with self._lock:
            self._num_under_way[machine] += change
            self._table[self._rank * self._num + machine] = min(self._num_under_way[machine], 1)

    def rate(self, machine: int) -> float:
        """Returns what one sending of this rank to a machine has now: what the pair has, by how many share it."""
        state = self._table[:]
        if state not in self._speeds:
            self._speeds[state] = self._compute_speeds(state)
        mine = max(self._num_under_way[machine], 1)
        return self._speeds[state].get((self._rank, machine), self._egress.rates[self._here][machine]) / mine

    def _compute_speeds(self, state: bytes) -> Mapping[tuple[int, int], float]:
        egress, under_way = self._egress, dict[tuple[int, int], list[int]]()
        for rank, here in enumerate(egress.machine_of):
            for machine in range(self._num):
                if state[rank * self._num + machine]:
                    under_way.setdefault((here, machine), []).append(rank)
        pairs = list(under_way)
        flows = {
            index: NetworkFlow(egress.rates[source][target], egress.most[source][target], 0.0, (2 * source, 2 * target + 1))
            for index, (source, target) in enumerate(pairs)
        }
        ways = [capacity for capacity in egress.capacities for _ in (0, 1)]
        speeds = dict.fromkeys(flows, 1.0) if egress.is_strict else speeds_of(flows, ways)
        return {
            (rank, pairs[index][1]): flow.bytes_per_s * speeds[index] / len(under_way[pairs[index]])
            for index, flow in flows.items()
            for rank in under_way[pairs[index]]
        }
