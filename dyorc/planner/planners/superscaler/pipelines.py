"""Pipelines whose stages people choose: the interlaced pipeline, and three forward passes for each backward pass (3F1B).

A stage here is virtual: several may run on the same ranks, such as the stages of each forward pass, or on all ranks, such as an
embedding that is too large for one.

Source: both plans are SuperScaler's (arXiv 2301.08984, section 3); the order within the pipeline is 1F1B's.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan
from dyorc.planner.planners.baselines.assemble import Stages
from dyorc.planner.planners.baselines.data_parallel import parts_along
from dyorc.planner.planners.baselines.pipeline import one_forward_one_backward, stages_of
from dyorc.planner.planners.superscaler.recipe import Cut, Recipe, WorkUnit
from dyorc.planner.program import TensorProgram
from dyorc.planner.program.graph import Phase


def interlaced(program: TensorProgram, cluster: Cluster, *, microbatches: int = 4) -> Plan:
    """A pipeline of one stage for each rank, between whose stages all ranks share the embedding and what reads the vocabulary.

    Lookups are cut along the hidden dimension, the output layer along the vocabulary, so that no rank holds either whole.

    Raises:
        PlanError: The program looks nothing up, has fewer layers than the cluster ranks, or its batch cannot be cut so.
    """
    recipe, num_ranks = Recipe(program, time_first=True), len(cluster.devices)
    shared = _shared(recipe)
    inner = stages_of(recipe.choices, num_ranks, num_ranks)
    first, last = 0, num_ranks + 1
    stage_of = {node.name: min(inner.of_node[node.name]) + 1 for node in program.nodes}
    stage_of |= {name: first if program.node_named[name].op.startswith("aten.embedding") else last for name in shared}
    all_ranks = tuple(range(num_ranks))
    ranks = (all_ranks, *((rank,) for rank in range(num_ranks)), all_ranks)
    for node in program.nodes:
        if node.name in shared:
            recipe.transform([node], shared[node.name], num_ranks)
    return _pipeline(recipe, stage_of, ranks, microbatches, "interlaced", cluster)


def _shared(recipe: Recipe) -> dict[str, int]:
    """The nodes that all ranks share, and the axis that each is cut along."""
    program, axis_of = recipe.program, dict[str, int]()
    rows = recipe.axis(program.inputs[0], 0)
    vocabularies = _of_outputs(recipe)
    for node in program.nodes:
        if node.op.startswith("aten.embedding"):
            value = node.outputs[0] if node.phase is Phase.FORWARD else node.inputs[0]
            axis_of[node.name] = recipe.axis(value, len(program.values[value].shape) - 1)
            continue
        values = [name for name in (*node.inputs, *node.outputs) if name]
        axes = {axis for name in values for axis in recipe.choices.axes.outermost[name]}
        if vocabulary := sorted(vocabularies & {axis for axis in axes if axis is not None}):
            axis_of[node.name] = vocabulary[0] if recipe.can_cut(node, vocabulary[0]) else rows
    if not axis_of:
        raise PlanError(f"{program.name} looks nothing up, so that there is no embedding to share")
    return axis_of | dict.fromkeys(_between(program, axis_of), rows)


def _between(program: TensorProgram, shared: Mapping[str, int]) -> set[str]:
    """The nodes from the output layer to the loss and back: they belong to it, so that stages do not wait for each other."""
    names, after, before = set[str](), set[str](), set[str]()
    for node in program.nodes:
        is_output = node.name in shared and not node.op.startswith("aten.embedding")
        if node.phase is Phase.FORWARD and (is_output or not after.isdisjoint(node.inputs)):
            after.update(filter(None, node.outputs))
            names.add(node.name)
    for node in reversed(program.nodes):
        is_output = node.name in shared and not node.op.startswith("aten.embedding")
        if node.phase is Phase.BACKWARD and (is_output or not before.isdisjoint(node.outputs)):
            before.update(node.inputs)
            names.add(node.name)
    return names - shared.keys()


def _of_outputs(recipe: Recipe) -> set[int]:
    """The axes of vocabularies that are computed: of matrices with as many rows as a table that is looked up."""
    program, axes = recipe.program, recipe.choices.axes
    tables = {node.inputs[0] for node in program.nodes if node.op.startswith("aten.embedding.")}
    sizes = {program.values[table].shape[0] for table in tables}
    outputs: set[int] = set()
    for name in program.parameters:
        axis = axes.outermost[name][0] if program.values[name].shape else None
        if name not in tables and axis is not None and program.values[name].shape[0] in sizes:
            outputs.add(axis)
    return outputs


def three_forward_one_backward(
    program: TensorProgram,
    cluster: Cluster,
    *,
    microbatches: int = 4,
    stage_of_parameter: Callable[[str], int | None] | None = None,
) -> Plan:
    """A pipeline through which each microbatch goes forward several times before it goes backward once, as AlphaFold2's recycling
    does. Each pass begins again at the first stage, on the ranks of the pass before.

    Args:
        program: Each layer is used once in each pass.
        cluster: Its ranks are the stages.
        microbatches: How many parts of the batch go through the pipeline.
        stage_of_parameter: Returns the stage that a parameter belongs to by its name, None if to any; by default layers are
            shared out evenly.

    Raises:
        PlanError: The program goes through its layers once, or has fewer of them than the cluster ranks, or its batch cannot be
            cut so.
    """
    recipe, num_ranks = Recipe(program, time_first=True), len(cluster.devices)
    stage_of = _passes(program, num_ranks, stage_of_parameter or _evenly(program, num_ranks))
    num_passes = 1 + max(stage_of.values()) // num_ranks
    if num_passes == 1 and num_ranks > 1:
        raise PlanError(f"{program.name} goes through its layers once: a pipeline of megatron (pp) does that")
    ranks = tuple((rank,) for _ in range(num_passes) for rank in range(num_ranks))
    return _pipeline(recipe, stage_of, ranks, microbatches, "3f1b", cluster)


_NUMBERED = re.compile(r"(?:.*?\.)?\d+\.")


def _evenly(program: TensorProgram, num_stages: int) -> Callable[[str], int | None]:
    layers = list(dict.fromkeys(match[0] for name in program.parameters if (match := _NUMBERED.match(name))))
    if len(layers) < num_stages:
        raise PlanError(f"{program.name} has {len(layers)} layers, too few for {num_stages} stages")

    def stage(name: str) -> int | None:
        match = _NUMBERED.match(name)
        return layers.index(match[0]) * num_stages // len(layers) if match else None

    return stage


def _passes(program: TensorProgram, num_stages: int, stage_of_parameter: Callable[[str], int | None]) -> dict[str, int]:
    """The virtual stage of each node: going forward, a stage that is before the one that its input is from begins a new pass;
    going backward, a node is where what it reads of the forward pass is.
    """
    of_value: dict[str, int] = {name: stage for name in program.parameters if (stage := stage_of_parameter(name)) is not None}
    parameters, stage_of = set(of_value), dict[str, int]()
    owners = {gradient: parameter for parameter, gradient in program.gradients.items()}
    for node in program.nodes:
        weights = [of_value[name] for name in node.inputs if name in parameters]
        others = [of_value[name] for name in node.inputs if name in of_value and name not in parameters]
        if not weights and not others:
            stage_of[node.name] = _NOWHERE
        elif node.phase is Phase.FORWARD:
            now = max(others, default=0)
            wanted = max(weights) if weights else now % num_stages
            stage_of[node.name] = now - now % num_stages + wanted + (num_stages if wanted < now % num_stages else 0)
        else:
            owned = [of_value[owners[name]] for name in node.outputs if owners.get(name) in parameters]
            stage_of[node.name] = min(others, default=_NOWHERE)
            last_pass = max(stage_of.values()) // num_stages * num_stages
            for stage in (*weights, *owned):
                stage_of[node.name] = last_pass + stage
        of_value |= {name: stage_of[node.name] for name in node.outputs if name and others + weights}
        parameters |= {name for name in node.outputs if name and weights and not others and len(node.inputs) == 1}
    return _with_readers(program, stage_of)


_NOWHERE = -1
"""The stage of a node that depends on no parameter and no other stage."""


def _with_readers(program: TensorProgram, stage_of: dict[str, int]) -> dict[str, int]:
    """Puts what depends on no stage where it is read first."""
    for node in reversed(program.nodes):
        if stage_of[node.name] == _NOWHERE:
            readers = [stage_of[reader.name] for name in node.outputs if name for reader in program.consumers[name]]
            stage_of[node.name] = readers[0] if readers else 0
    return stage_of


def _pipeline(
    recipe: Recipe,
    stage_of: Mapping[str, int],
    ranks: Sequence[tuple[int, ...]],
    microbatches: int,
    planner: str,
    cluster: Cluster,
) -> Plan:
    """Cuts everything into microbatches, and runs the virtual stages in the order 1F1B."""
    program = recipe.program
    rows = recipe.axis(program.inputs[0], 0)
    of_node = {name: (stage,) for name, stage in stage_of.items()}
    for node in program.nodes:
        recipe.assign([node], ranks[stage_of[node.name]])
    if microbatches == 1:
        recipe.order(WorkUnit(work=[(node, 0)]) for node in program.nodes)
        return recipe.materialise(planner, cluster)
    time = parts_along(recipe.choices, microbatches)[0]
    recipe.transform(program.nodes, rows, microbatches, Cut.IN_TIME, chosen=time.strategies)
    order = one_forward_one_backward(recipe.choices, time, Stages(ranks=tuple(ranks), of_node=of_node, of_source={}))
    updates = [(node, 0) for node in program.nodes if node.phase is Phase.UPDATE]
    recipe.order([WorkUnit(work=order), WorkUnit(work=updates)])
    return recipe.materialise(planner, cluster, {"microbatches": str(microbatches)})
