"""The boundaries of a pipeline's stages: operations move to the neighbouring stage where that makes fewer bytes cross.

Stages follow parameters. What reads none, such as the part of RMS normalization before its weight, begins where its inputs are.
Which of these operations should be on the other side of a boundary is a minimal cut: an edge for each tensor, which is cut if
both sides need it. Of equal cuts, the one that moves least is taken.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import networkx as nx

from dyorc.planner.program import Node, TensorProgram
from dyorc.planner.program.costs import costs_of
from dyorc.planner.program.graph import Phase

_BEFORE, _AFTER = object(), object()


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a stage ends.

    Attributes:
        early: The stage.
        late: The stage that follows it.
        before: All stages from the first to `early`.
    """

    early: int
    late: int
    before: frozenset[int]


def boundaries_of(branches: Sequence[int]) -> list[Boundary]:
    """Returns the boundaries of a pipeline.

    Args:
        branches: The branch of each stage but the last one, which follows all of them.
    """
    boundaries: list[Boundary] = []
    for stage, branch in enumerate(branches):
        late = stage + 1 if branches[stage + 1 : stage + 2] == [branch] else len(branches)
        before = frozenset(each for each in range(stage + 1) if branches[each] == branch)
        boundaries.append(Boundary(stage, late, before))
    return boundaries


def with_least_crossing(
    program: TensorProgram, stage_of: Mapping[str, int], fixed: Set[str], boundaries: Sequence[Boundary]
) -> dict[str, int]:
    """Moves operations over boundaries as long as fewer bytes cross then.

    What computes more than it reads and writes stays, so that stages remain as even as they are.

    Args:
        program: What the stages compute.
        stage_of: The stage of each node that has one. In the forward pass nothing reads what a later stage makes, in the backward
            pass what an earlier stage makes.
        fixed: The nodes that stay, since they read a parameter or make its gradient.
        boundaries: Of the stages.

    Returns:
        The stage of each node that has one, with the same promise.
    """
    costs = costs_of(program)
    heavy = {name for name, cost in costs.items() if cost.flops > cost.num_bytes}
    cutting = _Cutting(program, dict(stage_of), fixed | heavy)
    while any(map(cutting.has_moved, boundaries)):  # one makes room for the next
        pass
    return cutting.stage_of


class _Cutting:
    def __init__(self, program: TensorProgram, stage_of: dict[str, int], fixed: Set[str]) -> None:
        self._program = program
        staged = [node for node in program.nodes if node.name in stage_of]
        self._forward = [node for node in staged if node.phase is Phase.FORWARD and node.name not in fixed]
        self._backward = [node for node in staged if node.phase is Phase.BACKWARD and node.name not in fixed]
        self.stage_of = stage_of

    def has_moved(self, boundary: Boundary) -> bool:
        """Moves operations that are better on the other side; returns whether any moved."""
        movable = self._movable(boundary)
        if not movable:
            return False
        _, (_, after) = nx.minimum_cut(self._graph(movable, boundary), _BEFORE, _AFTER)
        stages = {name: boundary.late if name in after else boundary.early for name in movable}
        has_moved = any(self.stage_of[name] != stage for name, stage in stages.items())
        self.stage_of |= stages
        return has_moved

    def _movable(self, boundary: Boundary) -> dict[str, Node]:
        """What may lie on either side, because of all that it must not overtake, and that has to do with what crosses."""
        movable: dict[str, Node] = {}

        def is_after(node: Node) -> bool:
            return node.name in movable or self.stage_of[node.name] not in boundary.before

        def is_before(node: Node) -> bool:
            return node.name in movable or self.stage_of[node.name] in boundary.before

        for node in (*reversed(self._forward), *self._backward):
            may_move = self.stage_of[node.name] == boundary.early and all(map(is_after, self._nearer_the_end(node)))
            if may_move and any(is_after(other) for name in (*node.inputs, *node.outputs) for other in self._around(name)):
                movable[node.name] = node
        for node in reversed(self._backward):
            readers = self._readers(node)
            if self.stage_of[node.name] == boundary.late and readers and all(map(is_before, readers)):
                movable[node.name] = node
        return movable

    def _graph(self, movable: Mapping[str, Node], boundary: Boundary) -> "nx.DiGraph[object]":
        def side(node: Node) -> object:
            if node.name in movable:
                return node.name
            return _BEFORE if self.stage_of[node.name] in boundary.before else _AFTER

        graph: nx.DiGraph[object] = nx.DiGraph()
        graph.add_nodes_from((_BEFORE, _AFTER))
        for value in dict.fromkeys(name for node in movable.values() for name in (*node.inputs, *node.outputs)):
            sides = dict.fromkeys(side(node) for node in self._around(value))  # in order: of equal cuts, the first is taken
            if sides and not sides.keys() >= {_BEFORE, _AFTER}:  # else it crosses in any case
                into, out_of = ("into", value), ("out of", value)
                # Every byte counts more than all moves together.
                graph.add_edge(into, out_of, capacity=self._program.values[value].num_bytes * (len(movable) + 1))
                graph.add_edges_from((each, into) for each in sides)
                graph.add_edges_from((out_of, each) for each in sides)
        for name, node in movable.items():
            # Without a capacity: what is nearer the end stays on the same side, or comes after.
            graph.add_edges_from((side(other), name) for other in self._nearer_the_end(node) if side(other) is not _AFTER)
            is_early = self.stage_of[name] == boundary.early
            graph.add_edge(*((_BEFORE, name) if is_early else (name, _AFTER)), capacity=1)
        return graph

    def _around(self, value: str) -> list[Node]:
        """What makes and what reads a value, if it is made by what has a stage: others are made wherever they are read."""
        producer = self._program.producers.get(value)
        if producer is None or producer.name not in self.stage_of:
            return []
        return [node for node in (producer, *self._program.consumers[value]) if node.name in self.stage_of]

    def _readers(self, node: Node) -> list[Node]:
        """What reads a node's results in the same pass."""
        return self._same_pass(node, (other for name in node.outputs if name for other in self._program.consumers[name]))

    def _nearer_the_end(self, node: Node) -> list[Node]:
        """What reads a node's results in the forward pass; in the backward pass, what makes that it reads."""
        if node.phase is Phase.FORWARD:
            return self._readers(node)
        return self._same_pass(node, (self._program.producers[n] for n in node.inputs if n in self._program.producers))

    def _same_pass(self, node: Node, others: Iterable[Node]) -> list[Node]:
        return [other for other in others if other.phase is node.phase and other.name in self.stage_of]
