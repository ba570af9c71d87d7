"""Rules as commands for Open vSwitch: a QoS with a queue for each machine on every port, a flow for each machine, and routes.

One `ovs-vsctl` command for each port replaces its queues in one transaction. A packet's queue is chosen by its destination.
"""

import re
from collections.abc import Iterator, Sequence

from dyorc.planner.network.commands import commands_in, route_in, route_lines, wrong
from dyorc.planner.network.rules import MachineRules, PolicyRoute, Queue


def to_ovs(rules: MachineRules, bridge: str = "br0") -> str:
    """Returns the commands for one machine, whose interfaces are ports of a bridge."""
    return "\n".join(_lines(rules, bridge)) + "\n"


def _lines(rules: MachineRules, bridge: str) -> Iterator[str]:
    for interface, most in rules.interfaces:
        queues = rules.queues_of(interface)
        named = " ".join(f"queues:{queue.number}=@q{queue.number}" for queue in queues)
        made = " ".join(
            f"-- --id=@q{queue.number} create queue other-config:min-rate={queue.min_bits_per_s} "
            f"other-config:max-rate={queue.max_bits_per_s}"
            for queue in queues
        )
        yield (
            f"ovs-vsctl -- set port {interface} qos=@qos "
            f"-- --id=@qos create qos type=linux-htb other-config:max-rate={most} {named} {made}"
        )
    for address, number in rules.numbers.items():
        yield f'ovs-ofctl add-flow {bridge} "priority=100,ip,nw_dst={address},actions=set_queue:{number},normal"'
    yield from route_lines(rules.routes)


def ovs_rules(text: str) -> MachineRules:
    """Reads what `to_ovs` wrote.

    Raises:
        PlanError: A line is something else.
    """
    interfaces: list[tuple[str, int]] = []
    queues: list[tuple[str, int, int, int]] = []
    addresses: dict[int, str] = {}
    routes: list[PolicyRoute] = []
    for number, words in commands_in(text):
        match words:
            case ["ovs-vsctl", "--", "set", "port", interface, "qos=@qos", "--", *rest]:
                most, new_queues = _qos(number, rest)
                interfaces.append((interface, most))
                queues += [(interface, *queue) for queue in new_queues]
            case ["ovs-ofctl", "add-flow", _, flow]:
                queue, address = _flow(number, flow)
                addresses[queue] = address
            case ["ip", *_]:
                if route := route_in(number, words):
                    routes.append(route)
            case _:
                raise wrong(number, "ovs-vsctl, ovs-ofctl or ip", words)
    found_queues: list[Queue] = []
    for interface, queue, low, high in queues:
        if queue not in addresses:
            raise wrong(0, f"a flow that sets queue {queue}", [text.splitlines()[-1]])
        found_queues.append(
            Queue(interface=interface, number=queue, address=addresses[queue], min_bits_per_s=low, max_bits_per_s=high)
        )
    return MachineRules(interfaces=tuple(interfaces), queues=tuple(found_queues), routes=tuple(routes))


def _qos(number: int, words: Sequence[str]) -> tuple[int, list[tuple[int, int, int]]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "--":
            parts.append([])
        else:
            parts[-1].append(word)
    match parts[0]:
        case ["--id=@qos", "create", "qos", "type=linux-htb", most, *named]:
            pass
        case _:
            raise wrong(number, "--id=@qos create qos type=linux-htb other-config:max-rate=...", parts[0])
    queues = [_queue(number, part) for part in parts[1:]]
    if sorted(named) != sorted(f"queues:{queue[0]}=@q{queue[0]}" for queue in queues):
        raise wrong(number, "each queue named once and made once", named)
    return _value(number, most, "other-config:max-rate"), queues


def _queue(number: int, words: Sequence[str]) -> tuple[int, int, int]:
    match words:
        case [name, "create", "queue", low, high] if name.startswith("--id=@q") and name[7:].isdigit():
            return int(name[7:]), _value(number, low, "other-config:min-rate"), _value(number, high, "other-config:max-rate")
        case _:
            raise wrong(number, "--id=@qNUMBER create queue other-config:min-rate=... other-config:max-rate=...", words)


def _value(number: int, word: str, name: str) -> int:
    key, _, value = word.partition("=")
    if key != name or not value.isdigit():
        raise wrong(number, f"{name}=NUMBER", [word])
    return int(value)


def _flow(number: int, flow: str) -> tuple[int, str]:
    match = re.fullmatch(r"priority=100,ip,nw_dst=([0-9.]+),actions=set_queue:(\d+),normal", flow)
    if match is None:
        raise wrong(number, "priority=100,ip,nw_dst=ADDRESS,actions=set_queue:NUMBER,normal", [flow])
    return int(match[2]), match[1]
