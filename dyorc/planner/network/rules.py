"""The limits of a plan as what one machine has to do: queues on its interfaces, and routes where it has several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Network

_MAX_WEIGHT = 256
"""Of a way of a route that has several, as Linux has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What may leave one interface for one machine.

    Attributes:
        interface: The interface.
        number: The same for all queues of a machine that go to one other machine.
        address: Of the machine that it goes to.
        min_bits_per_s: What is reserved.
        max_bits_per_s: What it may use while others leave their part unused.
    """

    interface: str
    number: int
    address: str
    min_bits_per_s: int
    max_bits_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRoute:
    """Which interfaces lead to a machine.

    Attributes:
        address: The machine's.
        table: The number of the routing table.
        ways: Interfaces, each with its weight.
    """

    address: str
    table: int
    ways: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class MachineRules:
    """All rules of one machine.

    Attributes:
        interfaces: Its interfaces that have queues, each with its bits a second.
        queues: By interface and number.
        routes: For each machine that it sends to, if it has several interfaces.
    """

    interfaces: tuple[tuple[str, int], ...]
    queues: tuple[Queue, ...]
    routes: tuple[PolicyRoute, ...] = ()

    def queues_of(self, interface: str) -> list[Queue]:
        """The queues of one interface."""
        return [queue for queue in self.queues if queue.interface == interface]

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of the queues to each address."""
        return {queue.address: queue.number for queue in self.queues}


def rules_of(network: Network, cluster: Cluster) -> dict[str, MachineRules]:
    """Returns the rules of each machine that has any.

    Raises:
        PlanError: A limit names a machine or an interface that the cluster has not, or an interface is promised more than it has.
    """
    machines = {limit.source for limit in network.limits}
    for name in sorted({limit.target for limit in network.limits} | machines):
        if name not in cluster.machines:
            raise PlanError(f"the plan limits machine {name}, and cluster {cluster.name} has {', '.join(cluster.machines)}")
    return {machine: _of_machine(machine, network, cluster) for machine in cluster.machines if machine in machines}


def address_of(machine: str, cluster: Cluster) -> str:
    """The address of a machine's first interface; made up, from 10.0.0.1 on, if the cluster's file has none."""
    first = cluster.interfaces_of(machine)[0]
    number = cluster.machines.index(machine) + 1
    return first.address or f"10.0.{number // 256}.{number % 256}"


def _of_machine(machine: str, network: Network, cluster: Cluster) -> MachineRules:
    speeds = {interface.name: _bits(interface.bytes_per_s) for interface in cluster.interfaces_of(machine)}
    targets = [target for target in cluster.machines if any(limit.target == target for limit in network.of_source(machine))]
    queues: list[Queue] = []
    for limit in network.of_source(machine):
        if limit.interface not in speeds:
            raise PlanError(f"the plan limits interface {limit.interface} of {machine}, which has {', '.join(speeds)}")
        reserved, most = max(_bits(limit.bytes_per_s), 1), speeds[limit.interface]
        queues.append(
            Queue(
                interface=limit.interface,
                number=targets.index(limit.target) + 1,
                address=address_of(limit.target, cluster),
                min_bits_per_s=reserved,
                max_bits_per_s=reserved if network.is_strict else max(most, reserved),
            )
        )
    for name, most in speeds.items():
        promised = sum(queue.min_bits_per_s for queue in queues if queue.interface == name)
        if promised > most * 1.001:
            raise PlanError(f"the plan promises {promised} bits a second through {name} of {machine}, which has {most}")
    queues.sort(key=lambda queue: (queue.interface, queue.number))
    used = tuple((name, most) for name, most in speeds.items() if any(queue.interface == name for queue in queues))
    return MachineRules(interfaces=used, queues=tuple(queues), routes=_routes(queues) if len(speeds) > 1 else ())


def _routes(queues: Sequence[Queue]) -> tuple[PolicyRoute, ...]:
    routes: list[PolicyRoute] = []
    for number in sorted({queue.number for queue in queues}):
        to = [queue for queue in queues if queue.number == number]
        most = max(queue.min_bits_per_s for queue in to)
        weights = [max(round(queue.min_bits_per_s / most * _MAX_WEIGHT), 1) for queue in to] if len(to) > 1 else [1]
        ways = tuple((queue.interface, weight) for queue, weight in zip(to, weights, strict=True))
        routes.append(PolicyRoute(address=to[0].address, table=100 + number, ways=ways))
    return tuple(routes)


def _bits(bytes_per_s: float) -> int:
    return int(min(bytes_per_s * 8, 2**40))
