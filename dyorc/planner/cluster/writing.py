"""Writes cluster files, which `file.py` reads: the cluster that is read is the one that was written, to the last digit."""

import json
from collections.abc import Iterator
from itertools import groupby
from math import isinf
from pathlib import Path

from dyorc.planner.cluster.cluster import Cluster, Device, Link
from dyorc.planner.cluster.collectives import CollectiveCost, CostLine
from dyorc.planner.whole_file import write_whole


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
