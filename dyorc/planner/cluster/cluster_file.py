"""Cluster files: TOML with machines, their devices, links and measured collectives. A cluster that is written and read again is
the same, to the last digit.

    name = "two machines"

    [[machines]]
    name = "left"
    inside = { bytes_per_s = 48e9, latency_s = 5e-6 }   # between its devices, if it has several

    [[machines.interfaces]]                             # may be left out: then one, as fast as the fastest link
    name = "eth0"                                       # those of one name reach each other
    bytes_per_s = 1.25e9
    address = "10.0.0.1"                                # may be left out

    [[machines.devices]]                                # one rank each, in this order
    name = "V100"
    count = 4                                           # 1 if left out
    flops_per_s = 1.4e13
    memory_bytes = 16_000_000_000
    memory_bytes_per_s = 9e11                           # may be left out: then only arithmetic counts
    overhead_s = 5e-6                                   # may be left out, as may
    view_s = 2e-6                                       # what a view takes

    [[links]]                                           # both directions; "all" for all machines without a link of their own
    between = ["left", "right"]
    bytes_per_s = 1.25e9
    latency_s = 3e-5                                    # 0 if left out

    [[collectives]]                                     # what was measured; the rest is derived from the links
    kind = "all_gather"
    algorithm = "padded"
    bytes_per_s = 8e8                                   # of n times the largest shard
    latency_s = 1e-4
    devices_by_machine = [4, 4]                         # of the group that was measured; all if left out

    [contention]                                        # may be left out: then neither slows the other
    computing = 1.2                                     # how many times longer an operation takes during communication
    communicating = 1.5                                 # how many times longer a communication takes during operations
    waiting_s = 5e-4                                    # and what each takes besides, which waits for a core; 0 if left out

    [[channels]]                                        # of messages within one machine, from which plans choose
    kind = "static"                                     # or "dynamic", "grpc"; gloo's is the link
    bytes_per_s = 5e9
    latency_s = 7e-5

A collective may have `s_per_byte` instead of `bytes_per_s`, or `lines = [{ latency_s = ..., bytes_per_s = ... }, ...]`; the
highest counts. `at_bytes_per_s` and `is_everywhere` are those of `CollectiveCost`.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from itertools import groupby
from math import isinf
from pathlib import Path

from dyorc.errors import PlanError
from dyorc.planner.cluster.cluster import Cluster, Contention, Device, Interface, Link
from dyorc.planner.cluster.collectives import ChannelCost, CollectiveCost, CostLine
from dyorc.planner.cluster.toml_table import Table
from dyorc.planner.cluster.value_ranges import MAX_DEVICES
from dyorc.planner.plan.steps import Algorithm, ChannelKind, CollectiveKind
from dyorc.planner.whole_file import write_whole
from dyorc.system.toml_lines import lines_of
from dyorc.system.toml_text import parse_toml

_COMMUNICATING = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)


def load_cluster(path: str | Path) -> Cluster:
    """Reads a cluster file.

    Raises:
        PlanError: It is not there or no TOML, or something in it is missing, unknown or wrong; says in which line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"cluster file {path} cannot be read: {error}") from error
    return cluster_from_toml(text, str(path))


def cluster_from_toml(text: str, where: str = "cluster") -> Cluster:
    """Reads a cluster from the text of a cluster file.

    Raises:
        PlanError: As `load_cluster`.
    """
    try:
        content, lines = parse_toml(text), lines_of(text)
    except ValueError as error:
        raise PlanError(f"{where} is no TOML: {error}") from error
    top = Table(content, (), lines, where)
    name = top.text("name")
    flops_per_multiply_add = top.rate("flops_per_multiply_add", 2.0)
    source = top.text("source", "")
    machines = top.tables("machines", at_least=1)
    links, devices, names, interfaces = list[Link](), list[Device](), list[str](), list[Interface]()
    for machine in machines:
        interfaces += _read_interfaces(machine)
        names.append(_read_machine(machine, devices, links, names))
    between_all = _read_links(top.tables("links"), names, links)
    _check_links(top, machines, names, devices, links, has_all=between_all is not None)
    num_devices = Counter(device.machine for device in devices)
    counts = tuple(num_devices[machine] for machine in names)
    collectives = tuple(_read_collective(table, counts) for table in top.tables("collectives"))
    contention = _read_contention(top.table("contention"))
    channels = tuple(_read_channel(table) for table in top.tables("channels"))
    top.end()
    return Cluster(
        name=name,
        devices=tuple(devices),
        links=tuple(links),
        between_all=between_all,
        collectives=collectives,
        flops_per_multiply_add=flops_per_multiply_add,
        source=source,
        interfaces=tuple(interfaces),
        contention=contention,
        channels=channels,
    )


def _read_contention(table: Table | None) -> Contention | None:
    if table is None:
        return None
    contention = Contention(
        computing=table.rate("computing"),
        communicating=table.rate("communicating"),
        waiting_s=table.seconds("waiting_s", 0.0),
    )
    for key, times in (("computing", contention.computing), ("communicating", contention.communicating)):
        if times < 1:
            raise table.error(key, f"how many times longer it takes, at least 1, and not {times:g}")
    table.end()
    return contention


def _read_interfaces(machine: Table) -> list[Interface]:
    interfaces: list[Interface] = []
    for table in machine.tables("interfaces"):
        name, address = table.text("name"), table.text("address", "")
        if any(other.name == name for other in interfaces):
            raise table.error("name", f"unique: the machine has another interface {name}")
        try:
            ip_address(address or "::")
        except ValueError:
            raise table.error("address", f"an IP address, and not {address!r}") from None
        bytes_per_s = table.rate("bytes_per_s")
        table.end()
        interfaces.append(Interface(machine=machine.text("name"), name=name, bytes_per_s=bytes_per_s, address=address))
    return interfaces


def _read_machine(table: Table, devices: list[Device], links: list[Link], known: Sequence[str]) -> str:
    machine = table.text("name")
    if machine in known:
        raise table.error("name", f"unique: {machine} is another machine already")
    if (inside := table.table("inside")) is not None:
        links.append(_read_link(inside, machine, machine))
        inside.end()
    for device in table.tables("devices", at_least=1):
        count = device.whole("count", 1, most=MAX_DEVICES)
        read_device = Device(
            name=device.text("name"),
            machine=machine,
            flops_per_s=device.rate("flops_per_s"),
            memory_bytes=device.whole("memory_bytes"),
            memory_bytes_per_s=device.rate("memory_bytes_per_s", float("inf")),
            overhead_s=device.seconds("overhead_s", 0.0),
            view_s=device.seconds("view_s", 0.0),
        )
        device.end()
        devices += [read_device] * count
    table.end()
    return machine


def _read_link(table: Table, source: str, target: str) -> Link:
    bytes_per_s, latency_s = table.rate("bytes_per_s"), table.seconds("latency_s", 0.0)
    return Link(source=source, target=target, bytes_per_s=bytes_per_s, latency_s=latency_s)


def _read_links(tables: Sequence[Table], machines: Sequence[str], links: list[Link]) -> Link | None:
    """Adds links that name their machines, and returns the one for all others, if there is one."""
    general: Link | None = None
    for table in tables:
        between = table.take("between")
        if between == "all":
            general = _read_link(table, "", "")
        elif isinstance(between, list) and len(between) == 2 and between[0] != between[1]:
            for machine in between:
                if machine not in machines:
                    raise table.error("between", f"names of machines, which are {', '.join(machines)}; {machine!r} is none")
            links.append(_read_link(table, *between))
        else:
            raise table.error("between", f'the names of two machines, or "all", and not {between!r}')
        table.end()
    return general


def _check_links(
    top: Table,
    machines: Sequence[Table],
    names: Sequence[str],
    devices: Sequence[Device],
    links: Sequence[Link],
    *,
    has_all: bool,
) -> None:
    """Finds missing links here, where the lines are known."""
    linked = {frozenset((link.source, link.target)) for link in links}
    num_devices = Counter(device.machine for device in devices)
    for index, (table, name) in enumerate(zip(machines, names, strict=True)):
        if frozenset((name,)) not in linked and num_devices[name] > 1:
            raise table.missing("inside", "the link between its devices, a table with bytes_per_s: there are several")
        for other in names[:index] if not has_all else ():
            if frozenset((name, other)) not in linked:
                raise top.missing("links", f'one with between = ["{other}", "{name}"], or between = "all"')


def _read_collective(table: Table, counts: tuple[int, ...]) -> CollectiveCost:
    kind = table.choice("kind", [str(kind) for kind in _COMMUNICATING])
    algorithm = table.choice("algorithm", [str(algorithm) for algorithm in Algorithm], str(Algorithm.PADDED))
    measured_counts = table.take("devices_by_machine", list(counts))
    if not isinstance(measured_counts, list) or not all(type(n) is int and n > 0 for n in measured_counts):
        raise table.error("devices_by_machine", f"a list of whole numbers above 0, and not {measured_counts!r}")
    if sum(measured_counts) == 1:
        raise table.error("devices_by_machine", f"at least 2 devices together, and not {measured_counts!r}")
    several = table.tables("lines")
    cost = CollectiveCost(
        kind=CollectiveKind(kind),
        algorithm=Algorithm(algorithm),
        lines=tuple(_read_line(line) for line in several or [table]),
        devices_by_machine=tuple(measured_counts),
        at_bytes_per_s=0.0 if table.take("at_bytes_per_s", 0) == 0 else table.rate("at_bytes_per_s"),
        is_everywhere=table.truth("is_everywhere", False),
    )
    for each in [*several, table]:
        each.end()
    return cost


def _read_channel(table: Table) -> ChannelCost:
    kind = table.choice("kind", [str(kind) for kind in ChannelKind if kind is not ChannelKind.GLOO])
    bytes_per_s, latency_s = table.rate("bytes_per_s"), table.seconds("latency_s", 0.0)
    table.end()
    return ChannelCost(kind=ChannelKind(kind), bytes_per_s=bytes_per_s, latency_s=latency_s)


def _read_line(table: Table) -> CostLine:
    latency_s = table.seconds("latency_s", 0.0)
    if (s_per_byte := table.seconds("s_per_byte", 0.0)) > 0:
        return CostLine(latency_s, s_per_byte)
    return CostLine(latency_s, 1.0 / table.rate("bytes_per_s"))


def write_cluster(cluster: Cluster, path: Path | str) -> None:
    """Writes a cluster file: all of it, or none.

    Raises:
        OSError: The file cannot be written.
    """
    write_whole(path, cluster_to_toml(cluster))


def cluster_to_toml(cluster: Cluster) -> str:
    """Returns the text of a cluster file."""
    return "\n".join(_lines(cluster)) + "\n"


def _lines(cluster: Cluster) -> Iterator[str]:
    yield f"name = {_text(cluster.name)}"
    if cluster.source:
        yield f"source = {_text(cluster.source)}"
    yield f"flops_per_multiply_add = {cluster.flops_per_multiply_add}"
    inside = {link.source: link for link in cluster.links if link.source == link.target}
    for machine, devices in groupby(cluster.devices, key=lambda device: device.machine):
        yield from ("", "[[machines]]", f"name = {_text(machine)}")
        if machine in inside:
            link = inside[machine]
            yield f"inside = {{ bytes_per_s = {link.bytes_per_s}, latency_s = {link.latency_s} }}"
        for interface in (each for each in cluster.interfaces if each.machine == machine):
            yield from ("", "[[machines.interfaces]]", f"name = {_text(interface.name)}")
            yield f"bytes_per_s = {interface.bytes_per_s}"
            yield from [f"address = {_text(interface.address)}"] if interface.address else ()
        for device, alike in groupby(devices):
            yield from _device(device, len(list(alike)))
    for link in cluster.links:
        if link.source != link.target:
            yield from _link(f"[{_text(link.source)}, {_text(link.target)}]", link)
    if cluster.between_all:
        yield from _link('"all"', cluster.between_all)
    for cost in cluster.collectives:
        yield from _collective(cost)
    if both := cluster.contention:
        yield from ("", "[contention]", f"computing = {both.computing}", f"communicating = {both.communicating}")
        yield from [f"waiting_s = {both.waiting_s}"] if both.waiting_s else ()
    for channel in cluster.channels:
        yield from ("", "[[channels]]", f"kind = {_text(channel.kind)}")
        yield from (f"bytes_per_s = {channel.bytes_per_s}", f"latency_s = {channel.latency_s}")


def _device(device: Device, count: int) -> Iterator[str]:
    yield from ("", "[[machines.devices]]", f"name = {_text(device.name)}")
    if count > 1:
        yield f"count = {count}"
    yield f"flops_per_s = {device.flops_per_s}"
    yield f"memory_bytes = {device.memory_bytes}"
    if not isinf(device.memory_bytes_per_s):
        yield f"memory_bytes_per_s = {device.memory_bytes_per_s}"
    yield f"overhead_s = {device.overhead_s}"
    if device.view_s:
        yield f"view_s = {device.view_s}"


def _link(between: str, link: Link) -> Iterator[str]:
    yield from ("", "[[links]]", f"between = {between}")
    yield from (f"bytes_per_s = {link.bytes_per_s}", f"latency_s = {link.latency_s}")


def _collective(cost: CollectiveCost) -> Iterator[str]:
    yield from ("", "[[collectives]]", f"kind = {_text(cost.kind)}", f"algorithm = {_text(cost.algorithm)}")
    yield f"lines = [{', '.join(map(_line, cost.lines))}]"
    yield f"devices_by_machine = {list(cost.devices_by_machine)}"
    if cost.at_bytes_per_s:
        yield f"at_bytes_per_s = {cost.at_bytes_per_s}"
    if cost.is_everywhere:
        yield "is_everywhere = true"


def _line(line: CostLine) -> str:
    rate = float(f"{1 / line.s_per_byte:.6g}")  # what people wrote was a round rate
    cost = f"bytes_per_s = {rate}" if 1 / rate == line.s_per_byte else f"s_per_byte = {line.s_per_byte}"
    return f"{{ latency_s = {line.latency_s}, {cost} }}"


def _text(text: str) -> str:
    return json.dumps(text)
