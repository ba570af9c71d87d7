"""A cluster: devices on machines, links between them, and what computing and communicating costs.

Planners and the simulator read costs from here alone, so that a plan's predicted and simulated seconds mean the same. All of it
is plain data without torch.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import inf

from dyorc.errors import PlanError
from dyorc.planner.cluster.collectives import (
    DEFAULTS,
    ChannelCost,
    CollectiveCost,
    CostLine,
    derived_lines,
    driving_bytes,
    rescaled_lines,
)
from dyorc.planner.cluster.value_ranges import MAX_BYTES, RATES, SECONDS, check_range
from dyorc.planner.plan.plan import Network
from dyorc.planner.plan.steps import Algorithm, ChannelKind, CollectiveKind
from dyorc.planner.program.costs import FREE, NodeCost


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What one rank computes with.

    Attributes:
        name: Of its kind: `V100`.
        machine: The machine that it is in.
        flops_per_s: What it reaches, in the cluster's convention of counting.
        memory_bytes: What a plan may use of its memory.
        memory_bytes_per_s: How fast operations read and write; infinite if only arithmetic counts.
        overhead_s: What each operation takes besides, such as its launch.
        view_s: What a view takes: there are more views than other operations.
    """

    name: str
    machine: str
    flops_per_s: float
    memory_bytes: int
    memory_bytes_per_s: float = inf
    overhead_s: float = 0.0
    view_s: float = 0.0

    def __post_init__(self) -> None:
        """Checks the figures.

        Raises:
            PlanError: Names the device and the figure.
        """
        whose = f"device {self.name} on {self.machine}"
        check_range(whose, "flops_per_s", self.flops_per_s, RATES)
        check_range(whose, "memory_bytes", self.memory_bytes, (1, MAX_BYTES))
        if self.memory_bytes_per_s != inf:
            check_range(whose, "memory_bytes_per_s", self.memory_bytes_per_s, RATES)
        check_range(whose, "overhead_s", self.overhead_s, SECONDS)
        check_range(whose, "view_s", self.view_s, SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How fast bytes go from one machine to another, in each direction; or between the devices of one.

    Attributes:
        source: A machine.
        target: Another, or the same.
        bytes_per_s: Of one transfer that has the link for itself.
        latency_s: Before the first byte arrives.
    """

    source: str
    target: str
    bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        """Checks the figures.

        Raises:
            PlanError: Names the link and the figure.
        """
        whose = f"link from {self.source} to {self.target}" if self.source else "link between all machines"
        check_range(whose, "bytes_per_s", self.bytes_per_s, RATES)
        check_range(whose, "latency_s", self.latency_s, SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One of the ways out of and into a machine. Interfaces of one name reach each other, and no others.

    Attributes:
        machine: Whose it is.
        name: As the machine's system names it.
        bytes_per_s: What passes in each direction.
        address: Its IP address, or empty.
    """

    machine: str
    name: str
    bytes_per_s: float
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """How computation and communication slow each other where a rank does both at once: they share cores, memory and a process.

    Attributes:
        computing: How many times longer an operation takes while its rank communicates.
        communicating: How many times longer a communication takes while one of its ranks computes.
        waiting_s: What each communication takes besides while one of its ranks computes: it has to wait for a core. That is most
            of what a short one takes.
    """

    computing: float
    communicating: float
    waiting_s: float = 0.0

    def times(self, communicating_s: float) -> float:
        """How many times longer a communication takes during computation of this length."""
        return self.communicating + (self.waiting_s / communicating_s if communicating_s else 0.0)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster. A rank is the index of its device.

    Attributes:
        name: For people.
        devices: In the order of the ranks.
        links: Between machines, each valid in both directions; and inside machines that have several devices.
        between_all: A link, whose ends say nothing, between any two machines that have none of their own. So a cluster of
            thousands of machines does not name millions of links.
        collectives: What was measured of collectives. What was not is derived from the links.
        flops_per_multiply_add: How the devices' speeds count a multiply-add: 2 is usual, the authors of HAP and HiDup count 3.
        source: Where the figures come from.
        interfaces: Of the machines, where anything is known of them.
        contention: What doing both at once costs; None if one does not slow the other.
        channels: What was measured of messages within one machine, by the way they go.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    between_all: Link | None = None
    collectives: tuple[CollectiveCost, ...] = ()
    flops_per_multiply_add: float = 2.0
    source: str = ""
    interfaces: tuple[Interface, ...] = ()
    contention: Contention | None = None
    channels: tuple[ChannelCost, ...] = ()

    def __post_init__(self) -> None:
        """Checks that all links are there.

        Raises:
            PlanError: It has no devices, or no link between two of its machines, or within a machine that has several devices.
        """
        if not self.devices:
            raise PlanError(f"cluster {self.name} has no devices")
        num_devices = Counter(device.machine for device in self.devices)
        for index, machine in enumerate(machines := list(num_devices)):
            if num_devices[machine] > 1 and (machine, machine) not in self._links:
                raise PlanError(f"cluster {self.name}: machine {machine} has several devices, and no link inside it is given")
            for other in machines[:index] if self.between_all is None else ():
                if (other, machine) not in self._links:
                    raise PlanError(f"cluster {self.name} has no link between machines {other} and {machine}")

    @property
    def num_ranks(self) -> int:
        """How many devices there are."""
        return len(self.devices)

    @cached_property
    def digest(self) -> str:
        """A hash of everything that decides costs, but not what the cluster is called and where its figures come from."""
        content = {key: value for key, value in asdict(self).items() if key not in ("name", "source") and value is not None}
        for name in ("interfaces", "channels"):
            if not content[name]:
                del content[name]
        for table, name in ((content.get("contention", {}), "waiting_s"), *((device, "view_s") for device in content["devices"])):
            if not table.get(name):
                table.pop(name, None)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @cached_property
    def flops_ratios(self) -> tuple[float, ...]:
        """Each device's part of the cluster's speed: the shares of a proportional division."""
        total = sum(device.flops_per_s for device in self.devices)
        return tuple(device.flops_per_s / total for device in self.devices)

    @cached_property
    def first_alike(self) -> tuple[int, ...]:
        """For each rank, the first whose device computes as fast and has as much memory: itself, if none before it does."""
        first: dict[Device, int] = {}
        return tuple(first.setdefault(replace(each, name="", machine=""), rank) for rank, each in enumerate(self.devices))

    @cached_property
    def machines(self) -> tuple[str, ...]:
        """The machines, in the order of their first devices."""
        return tuple(dict.fromkeys(device.machine for device in self.devices))

    def interfaces_of(self, machine: str) -> tuple[Interface, ...]:
        """The ways out of a machine: one, as fast as its fastest link to another machine, if nothing is known of them."""
        interfaces = tuple(interface for interface in self.interfaces if interface.machine == machine)
        links = [link for link in self.links if machine in (link.source, link.target) and link.source != link.target]
        links += [self.between_all] if self.between_all else []
        most = max((link.bytes_per_s for link in links), default=inf)
        return interfaces or (Interface(machine=machine, name="eth0", bytes_per_s=most),)

    def capacity_of(self, machine: str) -> float:
        """What may leave a machine in a second, and as much may enter it."""
        return sum(interface.bytes_per_s for interface in self.interfaces_of(machine))

    def limited_to(self, network: Network) -> "Cluster":
        """Returns the cluster whose links are no faster than the limits of a network.

        Raises:
            PlanError: A limit names a machine that is not there.
        """
        for machine in dict.fromkeys(machine for pair in network.rates for machine in pair):
            if machine not in self.machines:
                raise PlanError(f"the plan limits machine {machine}, and cluster {self.name} has {', '.join(self.machines)}")
        links = dict(self._links)
        for pair in network.rates:
            for source, target in (pair, pair[::-1]):  # the other way, too: a link is valid both ways unless there are two
                link = self.link(source, target)
                links[source, target] = replace(link, bytes_per_s=min(link.bytes_per_s, network.rates.get((source, target), inf)))
        return replace(self, links=tuple(replace(link, source=source, target=target) for (source, target), link in links.items()))

    @cached_property
    def _links(self) -> Mapping[tuple[str, str], Link]:
        reversed_links = {(link.target, link.source): link for link in self.links}
        return reversed_links | {(link.source, link.target): link for link in self.links}

    @cached_property
    def _measured(self) -> Mapping[tuple[CollectiveKind, Algorithm], CollectiveCost]:
        return {(cost.kind, cost.algorithm): cost for cost in self.collectives}

    @cached_property
    def _lines(self) -> dict[tuple[CollectiveKind, Algorithm, tuple[int, ...]], tuple[CostLine, ...]]:
        return {}

    def restricted_to(self, ranks: Sequence[int]) -> "Cluster":
        """Returns the cluster that some of the devices make, in that order."""
        name = f"{self.name}[{','.join(map(str, ranks))}]"
        return replace(self, name=name, devices=tuple(self.devices[rank] for rank in ranks))

    def link_between(self, source_rank: int, target_rank: int) -> Link:
        """The link from one rank's machine to another's."""
        return self.link(self.devices[source_rank].machine, self.devices[target_rank].machine)

    def link(self, source: str, target: str) -> Link:
        """The link from one machine to another."""
        link = self._links.get((source, target)) or (self.between_all if source != target else None)
        if link is None:
            raise KeyError((source, target))
        return link

    def compute_s(self, cost: NodeCost, rank: int, share: float = 1.0) -> float:
        """Returns how long a device takes for a part of a node: as long as its arithmetic or its memory needs.

        Args:
            cost: Of the whole node.
            rank: The device.
            share: The part of the node's work that the rank does, from 0 to 1.
        """
        if cost == FREE or share == 0.0:
            return 0.0
        device = self.devices[rank]
        arithmetic_s = cost.flops * (self.flops_per_multiply_add / 2.0) / device.flops_per_s
        return share * max(arithmetic_s, cost.num_bytes / device.memory_bytes_per_s) + device.overhead_s

    def collective_s(self, kind: CollectiveKind, algorithm: Algorithm, ranks: Sequence[int], piece_bytes: Sequence[int]) -> float:
        """Returns how long a collective takes, from when all ranks are ready until all have their results.

        Args:
            kind: What is done.
            algorithm: How the bytes are moved.
            ranks: Who takes part.
            piece_bytes: For each of them, the bytes of its piece. `all_reduce`: of the whole tensor, which each holds before and
                after. `all_gather`: of the shard before. `reduce_scatter`: of the shard after. `all_to_all`: of the larger of
                its shards before and after.
        """
        lines = self.collective_lines(kind, algorithm, ranks)
        num_bytes = driving_bytes(kind, algorithm, piece_bytes)
        return max((line.latency_s + line.s_per_byte * num_bytes for line in lines), default=0.0)

    def collective_lines(self, kind: CollectiveKind, algorithm: Algorithm, ranks: Sequence[int]) -> tuple[CostLine, ...]:
        """Returns the lines whose maximum a collective takes, as functions of `driving_bytes`: so that a planner can write them
        into a linear program. A group of one rank, and what does not communicate, has no lines and takes no time.
        """
        key = (kind, algorithm, tuple(ranks))
        lines = self._lines.get(key)
        if lines is None:
            lines = self._lines[key] = self._find_lines(kind, algorithm, key[2])
        return lines

    def _find_lines(self, kind: CollectiveKind, algorithm: Algorithm, ranks: tuple[int, ...]) -> tuple[CostLine, ...]:
        if len(ranks) < 2 or kind in (CollectiveKind.SLICE, CollectiveKind.MASK):
            return ()
        bytes_per_s, latency_s = self.slowest_link(ranks)
        counts = self._devices_by_machine(ranks)
        for other in (algorithm, Algorithm.PADDED) if _is_like_padded(kind, algorithm) else (algorithm,):
            measured = self._measured.get((kind, other))
            if measured and measured.covers(counts):
                return rescaled_lines(measured, counts, bytes_per_s)
        return derived_lines(kind, algorithm, counts, bytes_per_s, latency_s)

    def _devices_by_machine(self, ranks: Sequence[int]) -> tuple[int, ...]:
        machines = [self.devices[rank].machine for rank in ranks]
        return tuple(machines.count(machine) for machine in dict.fromkeys(machines))

    def slowest_link(self, ranks: Sequence[int]) -> tuple[float, float]:
        """Returns the bytes per second and the latency of the slowest links along a ring that stays in each machine until all
        its ranks have been passed.
        """
        order = sorted(ranks, key=lambda rank: (self.devices[rank].machine, rank))
        links = [self.link_between(source, target) for source, target in zip(order, [*order[1:], order[0]], strict=True)]
        return min(link.bytes_per_s for link in links), max(link.latency_s for link in links)

    def transfer_s(self, source_rank: int, target_rank: int, num_bytes: int) -> float:
        """Returns how long it takes to send bytes from one rank to another."""
        if source_rank == target_rank:
            return 0.0
        link = self.link_between(source_rank, target_rank)
        return link.latency_s + num_bytes / link.bytes_per_s

    def message_s(self, source_rank: int, target_rank: int, num_bytes: int, kind: ChannelKind) -> float:
        """Returns how long it takes to send bytes from one rank to another in a given way; infinite if it does not lead there.

        Gloo takes what the link takes. Between machines, gRPC takes that and what it costs within one.
        """
        if source_rank == target_rank:
            return 0.0
        link_s = self.transfer_s(source_rank, target_rank, num_bytes)
        if kind is ChannelKind.GLOO:
            return link_s
        cost = next(cost for cost in (*self.channels, *DEFAULTS) if cost.kind is kind)
        if self.devices[source_rank].machine == self.devices[target_rank].machine:
            return cost.seconds(num_bytes)
        return link_s + cost.seconds(num_bytes) if kind is ChannelKind.GRPC else inf


def _is_like_padded(kind: CollectiveKind, algorithm: Algorithm) -> bool:
    """A ring's largest shard goes through as many links as a padded one; all-reduce and all-to-all have no shards to group."""
    return algorithm is Algorithm.RING or kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL)
