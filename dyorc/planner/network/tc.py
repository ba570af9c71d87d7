"""Rules as commands for `tc`: a hierarchical token bucket on each interface, with a class for each machine.

`u32` chooses the class by the destination's address: no other classifier is in every kernel. Traffic for other machines than the
plan's has its own class, with a hundredth of the interface reserved. Classes lend in the ratio of their quanta, which are in
the ratio of what is reserved for them.
"""

from collections.abc import Iterator, Sequence

from dyorc.planner.network.commands import bits, commands_in, options, route_in, route_lines, wrong
from dyorc.planner.network.rules import MachineRules, PolicyRoute, Queue

_OTHER = 999
"""The class of traffic for other machines than the plan's."""
_OTHER_RATIO = 0.01
_LEAST_QUANTUM, _LARGEST_QUANTUM = 1514, 60_000
"""Bytes: a frame at least, and not so many that others wait long."""


def to_tc(rules: MachineRules) -> str:
    """Returns the commands for one machine. They replace what its interfaces had before."""
    return "\n".join(_lines(rules)) + "\n"


def _lines(rules: MachineRules) -> Iterator[str]:
    for interface, most in rules.interfaces:
        queues = rules.queues_of(interface)
        largest = max(queue.min_bits_per_s for queue in queues)
        yield f"tc qdisc replace dev {interface} root handle 1: htb default {_OTHER} r2q 100"
        all_of_it = f"rate {most}bit ceil {most}bit quantum {_LARGEST_QUANTUM}"
        yield f"tc class replace dev {interface} parent 1: classid 1:1 htb {all_of_it}"
        for queue in queues:
            quantum = max(round(queue.min_bits_per_s / largest * _LARGEST_QUANTUM), _LEAST_QUANTUM)
            yield (
                f"tc class replace dev {interface} parent 1:1 classid 1:{_minor(queue.number)} htb "
                f"rate {queue.min_bits_per_s}bit ceil {queue.max_bits_per_s}bit quantum {quantum}"
            )
        yield (
            f"tc class replace dev {interface} parent 1:1 classid 1:{_OTHER} htb "
            f"rate {max(int(most * _OTHER_RATIO), 8)}bit ceil {most}bit quantum {_LEAST_QUANTUM}"
        )
        for queue in queues:
            yield (
                f"tc filter add dev {interface} parent 1: protocol ip prio 1 u32 match ip dst {queue.address}/32 "
                f"flowid 1:{_minor(queue.number)}"
            )
    yield from route_lines(rules.routes)


def _minor(number: int) -> int:
    """The class of a queue. tc reads it as hexadecimal, also when it is read back."""
    return 100 + number


def tc_rules(text: str) -> MachineRules:
    """Reads what `to_tc` wrote.

    Raises:
        PlanError: A line is something else.
    """
    interfaces: dict[str, int] = {}
    rates: dict[tuple[str, int], tuple[int, int]] = {}
    addresses: dict[tuple[str, int], str] = {}
    routes: list[PolicyRoute] = []
    for number, words in commands_in(text):
        match words:
            case ["tc", "qdisc", "replace", "dev", _, "root", "handle", "1:", "htb", *rest]:
                options(number, rest, ("default", "r2q"))
            case ["tc", "class", "replace", "dev", interface, "parent", _, "classid", name, "htb", *rest]:
                values = options(number, rest, ("rate", "ceil", "quantum"))
                rate = bits(number, values["rate"]), bits(number, values["ceil"])
                if name == "1:1":
                    interfaces[interface] = rate[0]
                elif name != f"1:{_OTHER}":
                    rates[interface, _number(number, name)] = rate
            case ["tc", "filter", "add", "dev", interface, *rest]:
                queue, address = _filter(number, rest)
                addresses[interface, queue] = address
            case ["ip", *_]:
                if route := route_in(number, words):
                    routes.append(route)
            case _:
                raise wrong(number, "tc qdisc, tc class, tc filter or ip", words)
    if rates.keys() != addresses.keys():
        raise wrong(0, "a filter for each class", [text.splitlines()[-1]])
    queues = tuple(
        Queue(interface=key[0], number=key[1], address=addresses[key], min_bits_per_s=low, max_bits_per_s=high)
        for key, (low, high) in rates.items()
    )
    return MachineRules(interfaces=tuple(interfaces.items()), queues=queues, routes=tuple(routes))


def _number(number: int, name: str) -> int:
    minor = name.removeprefix("1:")
    if not minor.isdigit() or int(minor) <= 100:
        raise wrong(number, "a class from 1:101 on", [name])
    return int(minor) - 100


def _filter(number: int, words: Sequence[str]) -> tuple[int, str]:
    match words:
        case ["parent", "1:", "protocol", "ip", "prio", "1", "u32", "match", "ip", "dst", address, "flowid", name]:
            return _number(number, name), address.removesuffix("/32")
        case _:
            raise wrong(number, "parent 1: protocol ip prio 1 u32 match ip dst ADDRESS flowid CLASS", words)
