"""How a program is cut in two microbatches: along time, the batch is halved, and what does not depend on it is computed once.

This is HiDup's duplex transform (SoCC'22): operations are doubled, the batch is split in two, gradients are sums of both halves.
Here it follows from the same strategies as every other split; so what mixes the samples of a batch (a count of targets, a batch
norm) is exact as well: both halves wait for each other there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from dyorc.errors import PlanError
from dyorc.planner.plan import MeshAxis
from dyorc.planner.planners.baselines.follow import choices_of
from dyorc.planner.program import (
    PARTIAL,
    REPLICATE,
    Axes,
    Node,
    Placement,
    Shard,
    Strategy,
    TensorProgram,
    ValueKind,
)

TIME = MeshAxis(name="microbatch", size=2, is_time=True)


@dataclass(frozen=True, kw_only=True)
class Halves:
    """What happens along the axis of time.

    Attributes:
        axes: The program's axes.
        batch: The axis that is halved.
        strategies: Every way to run each node along an axis of space, by the node's name.
        along_time: What each node does along time.
        placed: How each value lies along time when it is made.
    """

    axes: Axes
    batch: int
    strategies: Mapping[str, tuple[Strategy, ...]]
    along_time: Mapping[str, Strategy]
    placed: Mapping[str, Placement]

    def is_whole(self, node: Node) -> bool:
        """Whether a node runs once for both microbatches."""
        strategy = self.along_time[node.name]
        return all(placement == REPLICATE for placement in (*strategy.inputs, *strategy.outputs))


@lru_cache(maxsize=8)
def halves_of(program: TensorProgram) -> Halves:
    """Halves a program along its batch.

    Raises:
        PlanError: It has no batch, or one that cannot be halved.
    """
    choices = choices_of(program)
    axes, strategies = choices.axes, choices.strategies
    batch = next((axes.outermost[name][0] for name in program.inputs if program.values[name].shape), None)
    if batch is None or axes.extents[batch] % 2:
        problem = "has no batch" if batch is None else f"has a batch of {axes.extents[batch]}"
        raise PlanError(f"{program.name} {problem}: two interleaved microbatches need a batch that can be halved")
    placed = {name: _source(program, axes, batch, name) for name in program.sources}
    along: dict[str, Strategy] = {}
    for node in program.nodes:
        fitting = [s for s in strategies[node.name] if s.axis in (None, batch)]
        along[node.name] = min(fitting, key=lambda strategy, node=node: _cost(program, node, strategy, placed))
        placed |= {name: p for name, p in zip(node.outputs, along[node.name].outputs, strict=True) if name}
    return Halves(axes=axes, batch=batch, strategies=strategies, along_time=along, placed=placed)


def _source(program: TensorProgram, axes: Axes, batch: int, name: str) -> Placement:
    is_cut = program.values[name].kind is ValueKind.INPUT and batch in axes.outermost[name]
    return Shard(axes.outermost[name].index(batch)) if is_cut else REPLICATE


def _cost(program: TensorProgram, node: Node, strategy: Strategy, placed: Mapping[str, Placement]) -> tuple[int, int, int, bool]:
    """How many bytes wait for both halves; then what is cut again; then sums, which have to be added; then what is shared."""
    waiting = cuts = 0
    for name, wanted in dict(zip(node.inputs, strategy.inputs, strict=True)).items():
        before = placed[name]
        if before == wanted:
            continue
        if before == REPLICATE:
            cuts += 1 + (1 << 20) * (wanted == PARTIAL)
        else:
            waiting += 1 + program.values[name].num_bytes + (1 << 60) * (wanted == PARTIAL)
    return waiting, cuts, sum(placement == PARTIAL for placement in strategy.outputs), strategy.axis is None
