"""Follows a graph along one axis of a mesh: each node takes the strategy for which least has to be moved.

A draw of random numbers comes before its readers, and nothing that it reads says how to split it. So draws, and what is computed
of them alone, are made whole first; then they take the shards that all their readers want (`with_narrow_draws`):

    slice f(r) = f(slice r)        "narrow" in passes/coconet/rewriting.py
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from dyorc.errors import PlanError
from dyorc.planner.plan import CollectiveKind, MeshAxis
from dyorc.planner.plan.steps import kind_between
from dyorc.planner.program import (
    PARTIAL,
    REPLICATE,
    Axes,
    Node,
    Partial,
    Placement,
    Shard,
    Strategy,
    TensorProgram,
    axes_of,
    strategies_of,
)
from dyorc.planner.program.graph import Phase
from dyorc.planner.program.randomness.philox import draw_of


@dataclass(frozen=True, kw_only=True)
class Choices:
    """A program with its axes and every strategy of every node, found once for all axes of a mesh."""

    program: TensorProgram
    axes: Axes
    strategies: Mapping[str, tuple[Strategy, ...]]


@lru_cache(maxsize=8)
def choices_of(program: TensorProgram) -> Choices:
    """Finds the strategies of all nodes; for inference, only the strategies that do not split the samples. Planners ask one
    after another, so they are found once.
    """
    axes = axes_of(program)
    strategies = {node.name: strategies_of(program, node, axes) for node in program.nodes}
    if program.outputs:
        samples = axes.outermost[program.inputs[0]][0]
        strategies = {
            name: tuple(each for each in ways if each.axis is None or each.axis != samples) for name, ways in strategies.items()
        }
    return Choices(program=program, axes=axes, strategies=strategies)


@dataclass(frozen=True, kw_only=True)
class AxisPlan:
    """How everything is split along one axis of a mesh.

    Attributes:
        axis: The axis.
        ratios: The share of each of its steps.
        sources: How each source lies when the step begins.
        strategies: What each node does.
        results: How each result lies when the step ends.
    """

    axis: MeshAxis
    ratios: tuple[float, ...]
    sources: Mapping[str, Placement]
    strategies: Mapping[str, Strategy]
    results: Mapping[str, Placement]

    def placement_of(self, program: TensorProgram, value: str) -> Placement:
        """How a value lies when the step begins, or when it has been made."""
        node = program.producers.get(value)
        return self.sources[value] if node is None else self.strategies[node.name].outputs[node.outputs.index(value)]


def follow(
    choices: Choices,
    axis: MeshAxis,
    sources: Mapping[str, Placement],
    *,
    ratios: tuple[float, ...] | None = None,
    gathered: Set[str] = frozenset(),
    pinned: Set[str] = frozenset(),
    whole: Set[int] = frozenset(),
) -> AxisPlan:
    """Chooses a strategy for each node.

    Args:
        choices: The program.
        axis: The axis of the mesh.
        sources: The placements of sources; the others are replicated.
        ratios: Even if None.
        gathered: Sources that are gathered when they are first used, except by the optimizer.
        pinned: Sources that are never gathered if any strategy reads them as they lie.
        whole: Partial sums of values with one of these axes of the program count as what it takes to add them. Without it only
            the inputs of a node count, and what follows from the sums that it makes does not.
    """
    program = choices.program
    placed: dict[str, Placement] = {name: sources.get(name, REPLICATE) for name in program.sources}
    results = results_of(program, placed)
    held = {name: [REPLICATE if name in gathered else placement] for name, placement in placed.items()}
    following = _Following(choices, axis.size, held, pinned, whole)
    following.run(node for node in program.nodes if node.phase is not Phase.UPDATE)
    for name in (*gathered, *program.gradients.values()):
        held[name].append(placed.get(name) or results[name])
    following.run(node for node in program.nodes if node.phase is Phase.UPDATE)
    strategies = with_narrow_draws(program, choices.strategies, following.chosen)
    return AxisPlan(axis=axis, ratios=ratios or (1.0,) * axis.size, sources=placed, strategies=strategies, results=results)


def batch_of(choices: Choices) -> dict[str, Placement]:
    """Places inputs and buffers so that the batch is split: the outermost axis of the first input, wherever inputs have it."""
    axes, program = choices.axes, choices.program
    batch = next((axes.outermost[name][0] for name in program.inputs if program.values[name].shape), None)
    batched: dict[str, Placement] = {}
    for name in program.inputs:
        if batch is not None and batch in axes.outermost[name]:
            batched[name] = Shard(axes.outermost[name].index(batch))
    return batched


def results_of(program: TensorProgram, placed: Mapping[str, Placement]) -> dict[str, Placement]:
    """Returns how results lie: a gradient as its parameter, what replaces a source as the source, what is returned everywhere."""
    layouts: dict[str, Placement] = dict.fromkeys(program.returned, REPLICATE)
    layouts |= {gradient: placed[parameter] for parameter, gradient in program.gradients.items()}
    return layouts | {after: placed[before] for before, after in program.updates.items()}


class _Following:
    """Tracks which placements of each value exist."""

    def __init__(self, choices: Choices, size: int, held: dict[str, list[Placement]], pinned: Set[str], whole: Set[int]) -> None:
        self._choices = choices
        self._size = size
        self._held = held
        self._pinned = pinned
        self._whole = whole
        self.chosen: dict[str, Strategy] = {}

    def run(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            best = min(self._choices.strategies[node.name], key=lambda strategy: self._cost(node, strategy))
            self.chosen[node.name] = best
            for name, placement in zip(node.inputs, best.inputs, strict=True):
                if placement not in self._held[name]:
                    self._held[name].append(placement)
            for name, placement in zip(node.outputs, best.outputs, strict=True):
                if name:
                    self._held[name] = [placement]

    def _cost(self, node: Node, strategy: Strategy) -> tuple[float, int, bool]:
        """Bytes to be moved; then few partial sums, which have to be added; then work on shards that are there."""
        wanted = dict(zip(node.inputs, strategy.inputs, strict=True))
        moved = sum(self._moved(name, placement) for name, placement in wanted.items())
        moved += sum(self._added(name) for name, p in zip(node.outputs, strategy.outputs, strict=True) if isinstance(p, Partial))
        has_shards = any(isinstance(placement, Shard) for placement in strategy.inputs)
        return moved, sum(isinstance(p, Partial) for p in strategy.outputs), not has_shards

    def _added(self, name: str) -> float:
        has_whole = not self._whole.isdisjoint(self._choices.axes.outermost[name])
        return float(self._choices.program.values[name].num_bytes) if has_whole else 0.0

    def _moved(self, name: str, wanted: Placement) -> float:
        num_bytes = min(self._between(name, before, wanted) for before in self._held[name])
        is_gathered = name in self._pinned and wanted not in self._held[name] and isinstance(self._held[name][0], Shard)
        if isinstance(wanted, Partial) and len(self._choices.program.consumers[name]) > 1:
            num_bytes += self._between(name, PARTIAL, REPLICATE) + 1  # each reader would have to add later
        return num_bytes + 1e18 if is_gathered else num_bytes

    def _between(self, name: str, before: Placement, after: Placement) -> float:
        if before == after:
            return 0.0
        num_bytes = self._choices.program.values[name].num_bytes
        try:
            kind = kind_between(before, after)
        except PlanError:  # shards are no sum
            return float("inf")
        match kind:
            case CollectiveKind.SLICE | CollectiveKind.MASK:
                return 1e-3  # nothing moves, but something is copied
            case CollectiveKind.ALL_REDUCE:
                return 2.0 * num_bytes + 1
            case CollectiveKind.REDUCE_SCATTER:
                return 2.0 * num_bytes + 2  # what is scattered is gathered again
            case CollectiveKind.ALL_TO_ALL:
                return num_bytes / self._size + 1
            case _:
                return float(num_bytes) + 1


def with_narrow_draws(
    program: TensorProgram, strategies: Mapping[str, Sequence[Strategy]], chosen: Mapping[str, Strategy]
) -> dict[str, Strategy]:
    """Returns the chosen strategies, with draws in shards where nothing reads them whole.

    Args:
        program: The program.
        strategies: All of each node, by its name.
        chosen: One for each node.
    """
    narrowed, drawn = dict(chosen), _drawn(program)
    for node in reversed(program.nodes):
        if drawn.isdisjoint(node.outputs) or not set(program.results).isdisjoint(node.outputs):
            continue
        (output,) = node.outputs
        wanted = _wanted(program, output, narrowed)
        if len(wanted) == 1 and isinstance(shard := wanted.pop(), Shard):
            ways = (
                s for s in strategies[node.name] if s.outputs == (shard,) and not any(isinstance(p, Partial) for p in s.inputs)
            )
            narrowed[node.name] = next(ways, narrowed[node.name])
    return narrowed


def _drawn(program: TensorProgram) -> set[str]:
    """The values that are computed of draws, and of constants, alone."""
    constant, drawn = set[str](), set[str]()
    for node in program.nodes:
        if draw_of(node) is not None:
            drawn.update(node.outputs)
        elif (constant | drawn).issuperset(node.inputs) and len(node.outputs) == 1:
            (constant if drawn.isdisjoint(node.inputs) else drawn).update(node.outputs)
    return drawn


def _wanted(program: TensorProgram, value: str, chosen: Mapping[str, Strategy]) -> set[Placement]:
    """How its readers want a value."""
    return {
        placement
        for reader in program.consumers[value]
        for name, placement in zip(reader.inputs, chosen[reader.name].inputs, strict=True)
        if name == value
    }
