"""Follows the graph of a model for inference along one axis of a mesh, so that communication takes least time on a cluster.

The choice at one node affects later ones: a sum that is scattered, to save half an all-reduce, has to be gathered by the node
that reads all of it. So choices are not made one after another, as in follow.py. A beam search keeps the cheapest ways so far;
of ways that hold the same pieces, only the cheapest. Few values are held at any time. In training, all that the backward pass
will read is held as well, in one placement or another: a beam is no help there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis
from dyorc.planner.planners.baselines.follow import AxisPlan, Choices, results_of
from dyorc.planner.planners.baselines.placement_changes import PlacementChanges, bit_of
from dyorc.planner.program import REPLICATE, Node, Placement, Shard, Strategy
from dyorc.planner.program.costs import costs_of

_WIDTH = 32
"""How many ways go on from each node."""
_PS = 1e12


def cheapest(
    choices: Choices,
    outer: Sequence[AxisPlan],
    axis: MeshAxis,
    sources: Mapping[str, Sequence[Placement]],
    cluster: Cluster,
) -> AxisPlan:
    """Chooses a strategy for each node.

    Args:
        choices: The program.
        outer: What happens along the axes outside this one.
        axis: The axis of the mesh, which divides evenly.
        sources: How some parameters may lie, which are not moved if it can be helped. Of several ways, the cheapest is taken.
            Sources that are not named are replicated.
        cluster: What communication costs.

    Raises:
        PlanError: No strategies fit together.
    """
    changes = PlacementChanges(choices, outer, axis, cluster, sources)
    return _Search(choices, changes, sources, axis, cluster).plan()


class _Cost(NamedTuple):
    """What is compared, in this order. Computing counts where communication is equal.

    Attributes:
        num_gathered: How many parameters are moved that should stay.
        moved_ps: What communication takes.
        computed_ps: What a rank computes.
    """

    num_gathered: int
    moved_ps: int
    computed_ps: int


@dataclass(frozen=True, slots=True)
class _Choice:
    """A strategy, where sources lie that it is the first to read, and the choice before."""

    node: str
    strategy: Strategy
    sources: Mapping[str, Placement]
    before: "_Choice | None"


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to have come this far.

    Attributes:
        cost: Of it.
        held: The placements of each value that is still read, as bits.
        key: Equal for ways that hold the same.
        last: The newest choice.
    """

    cost: _Cost
    held: Mapping[str, int]
    key: int
    last: _Choice | None


class _Step(NamedTuple):
    """One way on: by a strategy, from a way."""

    cost: _Cost
    way: _Way
    strategy: Strategy
    sources: Mapping[str, Placement]
    held: Mapping[str, int]


class _Search:
    def __init__(
        self,
        choices: Choices,
        changes: PlacementChanges,
        sources: Mapping[str, Sequence[Placement]],
        axis: MeshAxis,
        cluster: Cluster,
    ) -> None:
        self._choices = choices
        self._program = choices.program
        self._changes = changes
        self._axis = axis
        self._cluster = cluster
        self._costs = costs_of(self._program)
        self._numbers = {name: number for number, name in enumerate(self._program.values)}
        placed: dict[str, Sequence[Placement]] = {name: sources.get(name, [REPLICATE]) for name in self._program.sources}
        self._placed = {name: ways[0] for name, ways in placed.items()}
        self._open = {name: ways for name, ways in placed.items() if len(ways) > 1}
        held = {name: bit_of(placement) for name, placement in self._placed.items() if name not in self._open}
        self._ways = [_Way(_Cost(0, 0, 0), held, 0, None)]

    def plan(self) -> AxisPlan:
        """Goes through the program."""
        results, last = results_of(self._program, self._placed), self._last_uses()
        for node in self._program.nodes:
            self._go_on(node, last[node.name])
        self._bring(results)
        strategies, sources = dict[str, Strategy](), dict(self._placed)
        choice = self._ways[0].last
        while choice is not None:
            strategies[choice.node] = choice.strategy
            sources |= choice.sources
            choice = choice.before
        ratios = (1.0,) * self._axis.size
        return AxisPlan(axis=self._axis, ratios=ratios, sources=sources, strategies=strategies, results=results)

    def _last_uses(self) -> dict[str, list[str]]:
        """The values that nothing reads after a node."""
        last = {name: node.name for node in self._program.nodes for name in (*node.outputs, *node.inputs) if name}
        last_by_node: dict[str, list[str]] = {node.name: [] for node in self._program.nodes}
        for value, node in last.items():
            if value not in self._program.results:
                last_by_node[node].append(value)
        return last_by_node

    def _go_on(self, node: Node, ended: Sequence[str]) -> None:
        """Extends each way by each strategy, and keeps the cheapest."""
        strategies = [(strategy, need, self._computed_ps(node, strategy)) for strategy, need in self._needs(node)]
        best_by_key: dict[int, _Step] = {}
        for way in self._ways:
            for placed in self._placings(way, node):
                start = {name: bit_of(placement) for name, placement in placed.items()}
                for strategy, need, computed_ps in strategies:
                    changed = self._changed(way, start, need)
                    if changed is None:
                        continue
                    (num_gathered, moved_ps), held = changed
                    before = way.cost
                    cost = _Cost(before.num_gathered + num_gathered, before.moved_ps + moved_ps, before.computed_ps + computed_ps)
                    held |= {name: bit_of(p) for name, p in zip(node.outputs, strategy.outputs, strict=True) if name}
                    key = self._key(way, held, ended)
                    if key not in best_by_key or cost < best_by_key[key].cost:
                        best_by_key[key] = _Step(cost, way, strategy, placed, held)
        if not best_by_key:
            raise PlanError(
                f"no strategy of {node.name} of {self._program.name} fits what comes before it along {self._axis.name}"
            )
        cheapest_first = sorted(best_by_key.items(), key=lambda item: item[1].cost)[:_WIDTH]
        self._ways = [_after(key, node, step, ended) for key, step in cheapest_first]

    def _needs(self, node: Node) -> Iterable[tuple[Strategy, Mapping[str, int]]]:
        """Each strategy with the placement of each input, except strategies that want one input in two placements."""
        for strategy in self._choices.strategies[node.name]:
            wanted = {(name, bit_of(placement)) for name, placement in zip(node.inputs, strategy.inputs, strict=True)}
            need = {name: bit_of(placement) for name, placement in zip(node.inputs, strategy.inputs, strict=True)}
            if len(wanted) == len(need):
                yield strategy, need

    def _placings(self, way: _Way, node: Node) -> Iterable[Mapping[str, Placement]]:
        """The ways in which sources may lie that nothing has read so far."""
        names = [name for name in dict.fromkeys(node.inputs) if name in self._open and name not in way.held]
        return (dict(zip(names, each, strict=True)) for each in product(*(self._open[name] for name in names)))

    def _changed(
        self, way: _Way, start: Mapping[str, int], need: Mapping[str, int]
    ) -> tuple[tuple[int, int], dict[str, int]] | None:
        """What it costs to bring values into placements, and what is held then of these."""
        num_gathered, moved_ps, held = 0, 0, dict(start)
        for name, wanted in need.items():
            before = start[name] if name in start else way.held[name]
            change = self._changes.into(name, before, wanted)
            if change is None:
                return None
            num_gathered += change.num_gathered
            moved_ps += change.moved_ps
            if change.held != before:
                held[name] = change.held
        return (num_gathered, moved_ps), held

    def _key(self, way: _Way, held: Mapping[str, int], ended: Iterable[str]) -> int:
        """A hash of all that is held after a step, updated incrementally."""
        key = way.key
        for name, bits in held.items():
            if name in way.held:
                key ^= self._hash(name, way.held[name])
            key ^= self._hash(name, bits)
        for name in ended:
            key ^= self._hash(name, held[name] if name in held else way.held[name])
        return key

    def _hash(self, name: str, bits: int) -> int:
        return hash((self._numbers[name], bits))

    def _computed_ps(self, node: Node, strategy: Strategy) -> int:
        is_cut = any(isinstance(placement, Shard) for placement in (*strategy.inputs, *strategy.outputs))
        return round(self._cluster.compute_s(self._costs[node.name], 0, 1 / self._axis.size if is_cut else 1.0) * _PS)

    def _bring(self, wanted: Mapping[str, Placement]) -> None:
        """Brings results where they belong."""
        need, ways = {name: bit_of(placement) for name, placement in wanted.items()}, list[_Way]()
        for way in self._ways:
            changed = self._changed(way, {}, need)
            if changed is not None:
                (num_gathered, moved_ps), held = changed
                cost = _Cost(way.cost.num_gathered + num_gathered, way.cost.moved_ps + moved_ps, way.cost.computed_ps)
                ways.append(_Way(cost, {**way.held, **held}, self._key(way, held, ()), way.last))
        if not ways:
            raise PlanError(f"results of {self._program.name} cannot be brought together along {self._axis.name}")
        self._ways = sorted(ways, key=lambda way: way.cost)


def _after(key: int, node: Node, step: _Step, ended: Iterable[str]) -> _Way:
    held = {**step.way.held, **step.held}
    for name in ended:
        del held[name]
    return _Way(step.cost, held, key, _Choice(node.name, step.strategy, step.sources, step.way.last))
