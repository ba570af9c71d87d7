"""Puts units of work into an order in which each finds what it reads."""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from dyorc.errors import PlanError
from dyorc.planner.program import Node, TensorProgram


def in_order(program: TensorProgram, units: Iterable[Sequence[Node]]) -> list[Sequence[Node]]:
    """Returns the units, and every other node as a unit by itself, as nearly in the program's order as dependencies allow.

    Raises:
        PlanError: Two units need something of each other.
    """
    everything = [unit for unit in units if unit]
    inside = {node.name for unit in everything for node in unit}
    everything += [[node] for node in program.nodes if node.name not in inside]
    place = {node.name: index for index, node in enumerate(program.nodes)}
    unit_of = {node.name: number for number, unit in enumerate(everything) for node in unit}
    readers: list[set[int]] = [set() for _ in everything]
    for number, unit in enumerate(everything):
        for node in unit:
            for producer in (program.producers[name] for name in node.inputs if name in program.producers):
                if unit_of[producer.name] != number:
                    readers[unit_of[producer.name]].add(number)
    num_waited = [0] * len(everything)
    for each in readers:
        for number in each:
            num_waited[number] += 1
    return _sorted(everything, readers, num_waited, place)


def convex(program: TensorProgram, units: Iterable[Sequence[Node]]) -> list[list[Node]]:
    """Returns each unit without the nodes that need something of it by way of others, so that each can run at one go.

    Units before count as a whole: what needs one node of them needs all. So no two units need something of each other.
    """
    kept: list[list[Node]] = []
    for unit in units:
        whole = {node.name: list(other) for other in kept for node in other}
        kept.append(_convex(program, unit, whole))
    return kept


def _convex(program: TensorProgram, unit: Sequence[Node], whole: Mapping[str, Sequence[Node]]) -> list[Node]:
    names = {node.name for node in unit}
    after: set[str] = set()  # what follows the unit
    while True:
        nodes: list[Node] = []
        made: set[str] = set()  # by the unit
        num_after = len(after)
        for node in program.nodes:
            needs_after = not after.isdisjoint(node.inputs)
            if node.name in names and not needs_after:
                nodes.append(node)
                made.update(filter(None, node.outputs))
            elif needs_after or not made.isdisjoint(node.inputs):
                after.update(name for each in whole.get(node.name, [node]) for name in each.outputs if name)
        if len(after) == num_after:
            return nodes


def _sorted(
    units: Sequence[Sequence[Node]], readers: Sequence[set[int]], num_waited: list[int], place: Mapping[str, int]
) -> list[Sequence[Node]]:
    ready = [(place[unit[-1].name], number) for number, unit in enumerate(units) if not num_waited[number]]
    heapify(ready)
    order: list[Sequence[Node]] = []
    while ready:
        _, number = heappop(ready)
        order.append(units[number])
        for reader in readers[number]:
            num_waited[reader] -= 1
            if not num_waited[reader]:
                heappush(ready, (place[units[reader][-1].name], reader))
    if len(order) < len(units):
        stuck = next(unit for number, unit in enumerate(units) if num_waited[number])
        raise PlanError(f"units of work need something of each other; one begins with {stuck[0].name}")
    return order
