"""The ways in which one operation can run on the pieces that several devices hold.

Placements carry the names of torch's DTensor. What several devices hold of a value, along one dimension of a device mesh, is

    Replicate()   all of it, each
    Shard(dim)    a part each, cut along `dim`; sizes may differ and may be zero
    Partial()     a tensor of the whole shape each; the value is their sum

A strategy says: with inputs placed so, running the operation on the pieces computes the outputs placed so. These are the Hoare
triples of HAP (EuroSys'24, figure 9) with Identity, All-Gather(d) and All-Reduce for Replicate, Shard(d) and Partial.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from dyorc.planner.program.axes import Axes
from dyorc.planner.program.graph import Node, TensorProgram
from dyorc.planner.program.rules import Rule, rule_of
from dyorc.planner.program.simplify import VIEW


@dataclass(frozen=True, slots=True)
class Replicate:
    """Each device holds all of it."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, slots=True)
class Partial:
    """Each device holds a tensor of the whole shape, and the value is their sum."""

    def __str__(self) -> str:
        return "P"


@dataclass(frozen=True, slots=True)
class Shard:
    """Each device holds a part, cut along a dimension.

    Attributes:
        dim: The dimension, from 0.
        sizes: How much of it each device holds, in elements; None in a strategy, which fits any sizes that respect the unit.
    """

    dim: int
    sizes: tuple[int, ...] | None = None

    def __str__(self) -> str:
        if self.sizes is None:
            return f"S{self.dim}"
        runs = [(size, len(list(run))) for size, run in groupby(self.sizes)]
        return f"S{self.dim}(" + ",".join(f"{size}*{count}" if count > 1 else str(size) for size, count in runs) + ")"


Placement: TypeAlias = Replicate | Partial | Shard
REPLICATE, PARTIAL = Replicate(), Partial()


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to run an operation on pieces.

    Attributes:
        inputs: How each input must be placed, in the order of `Node.inputs`.
        outputs: How each output is placed then; an output that no node reads is replicated.
        axis: The axis that is split, by its number in `Axes`; None if none is.
    """

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    axis: int | None = None


def strategies_of(program: TensorProgram, node: Node, axes: Axes) -> tuple[Strategy, ...]:
    """Returns every way to run a node: whole on each device, split along each axis, and on partial sums."""
    whole = Strategy((REPLICATE,) * len(node.inputs), (REPLICATE,) * len(node.outputs))
    if node.op == VIEW:
        strategies = _of_view(program, node, axes)
    elif rule := rule_of(node, program.values):
        strategies = [*_split(node, rule, axes), *_partial(node, rule)]
    else:
        strategies = []
    return tuple(dict.fromkeys([whole, *(strategy for strategy in strategies if _is_possible(program, node, strategy))]))


def _split(node: Node, rule: Rule, axes: Axes) -> list[Strategy]:
    letters = dict.fromkeys(letter for part in (*rule.inputs, *rule.outputs) for letter in part if letter)
    return [strategy for letter in letters if (strategy := _along(letter, node, rule, axes))]


def _along(letter: str, node: Node, rule: Rule, axes: Axes) -> Strategy | None:
    """The strategy that splits one letter; None if its dimensions cannot be cut alike."""
    cut = {
        axes.outermost[name][dim]
        for name, part in zip((*node.inputs, *node.outputs), (*rule.inputs, *rule.outputs), strict=True)
        if name
        for dim, strategies in enumerate(part)
        if strategies == letter
    }
    if len(cut) != 1 or None in cut:
        return None
    has_letter = any(letter in part for part in rule.inputs)
    outputs = tuple(
        _of_letter(letter, part, PARTIAL if has_letter and (letter, index) not in rule.untouched else REPLICATE)
        if name
        else REPLICATE
        for index, (name, part) in enumerate(zip(node.outputs, rule.outputs, strict=True))
    )
    return Strategy(tuple(_of_letter(letter, part, REPLICATE) for part in rule.inputs), outputs, next(iter(cut)))


def _of_letter(letter: str, part: Sequence[str | None], otherwise: Placement) -> Placement:
    return Shard(part.index(letter)) if letter in part else otherwise


def _partial(node: Node, rule: Rule) -> list[Strategy]:
    return [
        Strategy(
            tuple(PARTIAL if index in members else REPLICATE for index in range(len(node.inputs))),
            tuple(PARTIAL if name else REPLICATE for name in node.outputs),
        )
        for members in rule.linear
    ]


def _of_view(program: TensorProgram, node: Node, axes: Axes) -> list[Strategy]:
    """A view splits along an axis that is outermost in a dimension before and in one after it, with the same extents outside."""
    source, target = node.inputs[0], node.outputs[0]
    strategies = [Strategy((PARTIAL,), (PARTIAL,))]
    starts = {start: dim for dim, start in _starts(program.values[target].shape)}
    for dim, start in _starts(program.values[source].shape):
        other = starts.get(start)
        if other is None:
            continue
        axis = axes.outermost[source][dim]
        if axis is not None and axis == axes.outermost[target][other]:
            strategies.append(Strategy((Shard(dim),), (Shard(other),), axis))
    return strategies


def _starts(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """For each dimension longer than 1, the product of the extents left of it."""
    starts: list[tuple[int, int]] = []
    product = 1
    for dim, extent in enumerate(shape):
        if extent != 1:
            starts.append((dim, product))
        product *= extent
    return starts


def _is_possible(program: TensorProgram, node: Node, strategy: Strategy) -> bool:
    """Whether a value that is read twice is read in one placement, and no truth value is a sum."""
    placed: dict[str, Placement] = {}
    tensors = [(*zip(node.inputs, strategy.inputs, strict=True),), (*zip(node.outputs, strategy.outputs, strict=True),)]
    is_sum = any(p == PARTIAL and program.values[name].dtype == "bool" for pairs in tensors for name, p in pairs if name)
    return not is_sum and all(placed.setdefault(name, placement) == placement for name, placement in tensors[0])
