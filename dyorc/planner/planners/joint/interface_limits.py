"""From rates between machines to limits on their interfaces, and back.

What goes to one machine goes through one interface where it fits: a connection does not like two ways. What does not fit is
divided over several.
"""

from collections.abc import Iterator

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Limit, Network
from dyorc.planner.planners.joint.list_schedule import Rates

_LEAST = 1e-6
"""Of an interface's speed: less is not reserved by itself."""


def network_of(rates: Rates, cluster: Cluster, *, is_strict: bool) -> Network:
    """Returns the limits: the largest rate first, each through the interface that has most room."""
    room_out = {(i.machine, i.name): i.bytes_per_s for machine in cluster.machines for i in cluster.interfaces_of(machine)}
    room_in = dict(room_out)
    limits: list[Limit] = []
    for (source, target), rate in sorted(rates.items(), key=lambda pair: (-pair[1], pair[0])):
        limits += _limits(cluster.machines[source], cluster.machines[target], rate, (room_out, room_in))
    limits.sort(key=lambda limit: (cluster.machines.index(limit.source), cluster.machines.index(limit.target), limit.interface))
    return Network(limits=tuple(limits), is_strict=is_strict)


def _limits(source: str, target: str, rate: float, room: tuple[dict[tuple[str, str], float], ...]) -> Iterator[Limit]:
    room_out, room_in = room
    names = [name for machine, name in room_out if machine == source and (target, name) in room_in]
    left = rate
    while names and left > rate * _LEAST:
        fits = {name: min(room_out[source, name], room_in[target, name]) for name in names}
        name = max(names, key=lambda name: (fits[name], name))
        taken = min(left, fits[name])
        names.remove(name)
        if taken > rate * _LEAST:
            room_out[source, name] -= taken
            room_in[target, name] -= taken
            left -= taken
            yield Limit(source=source, target=target, interface=name, bytes_per_s=taken)


def rates_of(network: Network, cluster: Cluster) -> Rates:
    """Returns the rates of a network, by the numbers of machines."""
    number = {machine: index for index, machine in enumerate(cluster.machines)}
    return {(number[source], number[target]): rate for (source, target), rate in network.rates.items()}
