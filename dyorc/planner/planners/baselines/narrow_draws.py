"""Lets each rank draw only the random numbers that it reads.

Following a graph meets a draw before its readers, and nothing that the draw reads says how it should be split. So draws,
and what is computed of them alone, are made whole first; here they take the shards that all their readers want:

    slice f(r) = f(slice r)        "narrow" in passes/coconet/rewriting.py
"""

from collections.abc import Mapping, Sequence

from dyorc.planner.program import Partial, Placement, Shard, Strategy, TensorProgram
from dyorc.planner.program.randomness.nodes import draw_of


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
