"""How the optimizer's operations run: on the pieces of the parameters, gradients and states, as they lie."""

from collections.abc import Mapping
from functools import partial

from dyorc.planner.planners.hidup.halves import Halves
from dyorc.planner.program import REPLICATE, Node, Partial, Placement, Strategy, TensorProgram, ValueKind
from dyorc.planner.program.graph import Phase


def states_like_parameters(program: TensorProgram, held: Mapping[str, Placement]) -> dict[str, Placement]:
    """Places each state of the optimizer like the parameter that it is updated with: one of the same shape."""
    belongs = {gradient: parameter for parameter, gradient in program.gradients.items()}
    placements: dict[str, Placement] = {}
    for node in program.nodes:
        if node.phase is not Phase.UPDATE:
            continue
        parameter = next((belongs[name] for name in node.inputs if name in belongs), None)
        if parameter is None:
            continue
        shape = program.values[parameter].shape
        for name in (*node.inputs, *node.outputs):
            if name and program.values[name].shape == shape:
                belongs.setdefault(name, parameter)
                if program.values[name].kind is ValueKind.STATE:
                    placements[name] = held.get(parameter, REPLICATE)
    return placements


def update_strategies(program: TensorProgram, halves: Halves, held: Mapping[str, Placement]) -> dict[str, Strategy]:
    """Chooses a strategy for each of the optimizer's nodes, so that as little as possible is moved.

    Args:
        program: The program.
        halves: Its strategies.
        held: How each source and each gradient lies.
    """
    placed, chosen = dict(held), dict[str, Strategy]()
    for node in program.nodes:
        if node.phase is Phase.UPDATE:
            possible = [s for s in halves.strategies[node.name] if not any(isinstance(p, Partial) for p in s.inputs)]
            chosen[node.name] = min(possible, key=partial(_moved, node, placed))
            placed |= {name: p for name, p in zip(node.outputs, chosen[node.name].outputs, strict=True) if name}
    return chosen


def _moved(node: Node, placed: Mapping[str, Placement], strategy: Strategy) -> tuple[int, int]:
    """How many inputs have to be moved; then how many are cut."""
    pairs = [(placed.get(name, REPLICATE), wanted) for name, wanted in zip(node.inputs, strategy.inputs, strict=True)]
    return sum(before not in (wanted, REPLICATE) for before, wanted in pairs), sum(before != wanted for before, wanted in pairs)
