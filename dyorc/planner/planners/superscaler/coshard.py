"""Coshard: the operations of a layer are cut as if for several devices, and the parts run on the same device one after another.

With recomputation, only the part that is at work holds the layer's intermediate results, so that the peak of memory is lower, and
nothing more is communicated: only the blocks that are cut have an axis of time.

Source: the plan is SuperScaler's (arXiv 2301.08984, section 3). Here the blocks are the model's layers, cut along the batch.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan
from dyorc.planner.planners.baselines.pipeline import stages_of
from dyorc.planner.planners.operation_graphs import topological_order
from dyorc.planner.planners.superscaler.recipe import Cut, Recipe, WorkUnit
from dyorc.planner.program import Node, TensorProgram
from dyorc.planner.program.graph import Phase

_NUMBERED = re.compile(r"(.*?\.)?\d+\.")


def coshard(
    program: TensorProgram, cluster: Cluster, *, parts: int = 2, layers: int | None = None, recompute: bool = True
) -> Plan:
    """Data parallel, with each layer's work cut into parts that run one after another.

    Args:
        program: What to plan.
        cluster: Where it runs.
        parts: Into how many parts each rank's share of a layer is cut; 1 only recomputes.
        layers: How many layers the model has; None counts them by the names of its parameters.
        recompute: Whether the backward pass computes a layer's intermediate results again instead of keeping them.

    Raises:
        PlanError: The batch cannot be cut so, or the model has fewer layers.
    """
    recipe, ranks = Recipe(program), range(len(cluster.devices))
    batch = recipe.axis(program.inputs[0], 0)
    blocks = _Blocks(recipe, batch, layers)
    if parts > 1:
        recipe.transform(blocks.nodes(), batch, parts, Cut.IN_TIME)
    recipe.transform(program.nodes, batch, len(ranks))
    recipe.assign(program.nodes, ranks)
    recipe.order(_units(recipe, blocks, parts, recompute))
    return recipe.materialise("coshard", cluster, {"parts": str(parts), "recompute": "yes" if recompute else "no"})


class _Blocks:
    """The nodes of each layer that can be cut along the batch, forward and backward by themselves."""

    def __init__(self, recipe: Recipe, batch: int, layers: int | None) -> None:
        num_layers = layers or _num_layers(recipe.program)
        stages = stages_of(recipe.choices, num_layers, num_layers)
        self.units: dict[tuple[int, Phase], list[Node]] = {}
        last = recipe.program.producers[recipe.program.loss]
        for node in recipe.program.nodes:
            is_cut = recipe.can_cut(node, batch) and node.name != last.name and node.phase is not Phase.UPDATE
            if is_cut and len(stages.of_node[node.name]) == 1:
                self.units.setdefault((stages.of_node[node.name][0], node.phase), []).append(node)
        kept = convex(recipe.program, self.units.values())
        self.units = {key: unit for key, unit in zip(self.units, kept, strict=True) if unit}

    def nodes(self) -> Iterator[Node]:
        for unit in self.units.values():
            yield from unit

    def again(self, backward: Sequence[Node]) -> list[Node]:
        """What of the forward pass a layer's backward pass needs, and what that needs in the same layer."""
        layer = next(number for (number, _), unit in self.units.items() if unit is backward)
        needed = {name for node in backward for name in node.inputs}
        nodes: list[Node] = []
        for node in reversed(self.units.get((layer, Phase.FORWARD), [])):
            if not needed.isdisjoint(node.outputs):
                nodes.append(node)
                needed.update(node.inputs)
        return nodes[::-1]


def _num_layers(program: TensorProgram) -> int:
    """How many modules with a number in their name hold parameters."""
    matches = (_NUMBERED.match(name) for name in program.parameters)
    return len({match[0] for match in matches if match}) or 1


def _units(recipe: Recipe, blocks: _Blocks, parts: int, recompute: bool) -> Iterator[WorkUnit]:
    for nodes in in_order(recipe.program, blocks.units.values()):
        if not any(nodes is unit for unit in blocks.units.values()):
            yield WorkUnit(work=[(node, 0) for node in nodes])
            continue
        again = blocks.again(nodes) if recompute and nodes[0].phase is Phase.BACKWARD else []
        for part in range(parts):
            work = [(node, part) for node in (*again, *nodes)]
            yield WorkUnit(work=work, forgotten=[o for node in again for o in node.outputs if o] if part == 0 else ())


def in_order(program: TensorProgram, units: Iterable[Sequence[Node]]) -> list[Sequence[Node]]:
    """Returns the units, and every other node as a unit by itself, as nearly in the program's order as dependencies allow.

    Raises:
        PlanError: Two units need something of each other.
    """
    everything = [unit for unit in units if unit]
    inside = {node.name for unit in everything for node in unit}
    everything += [[node] for node in program.nodes if node.name not in inside]
    place = {node.name: float(index) for index, node in enumerate(program.nodes)}
    unit_of = {node.name: number for number, unit in enumerate(everything) for node in unit}
    before: list[set[int]] = []
    for number, unit in enumerate(everything):
        makers = {program.producers[name].name for node in unit for name in node.inputs if name in program.producers}
        before.append({unit_of[maker] for maker in makers} - {number})
    order = topological_order(before, [place[unit[-1].name] for unit in everything])
    if len(order) < len(everything):
        stuck = next(unit for number, unit in enumerate(everything) if number not in order)
        raise PlanError(f"units of work need something of each other; one begins with {stuck[0].name}")
    return [everything[number] for number in order]


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
