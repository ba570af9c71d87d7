"""The paper's placements for captured programs: which ranks run which stage of a pipeline, and along which axis of their own.

* `v`: one stage for each rank.
* `x`: each stage on two ranks, first and last, second and second to last, and so on; each of the two takes half of a microbatch.
* `m`: lookups in tables on all ranks, cut along the hidden dimension, before one stage for each rank. `NN` is the same with
  lookups further back, too.
* `k`: two branches that read different inputs, each on half of the ranks; what depends on both on all ranks, cut along the batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dyorc.errors import PlanError
from dyorc.planner.plan import MeshAxis
from dyorc.planner.planners.baselines.assemble import Stages
from dyorc.planner.planners.baselines.follow import AxisPlan, Choices, batch_of, follow
from dyorc.planner.planners.baselines.pipeline import layers_of, stages_of, stages_with
from dyorc.planner.program import Shard, TensorProgram
from dyorc.planner.program.graph import Phase

_LOOKUP = "aten.embedding.default"


def v_placement(choices: Choices, num_ranks: int) -> Stages:
    """One stage for each rank."""
    return stages_of(choices, num_ranks, num_ranks)


def x_placement(choices: Choices, num_ranks: int) -> Stages:
    """Each stage on the first and the last rank that have none yet of its half, in both directions."""
    if num_ranks % 2:
        raise PlanError(f"placement x needs an even number of ranks, and there are {num_ranks}")
    ranks = [(stage, num_ranks - 1 - stage) for stage in range(num_ranks)]
    halves = _batch_axis(choices, "direction", 2)
    return replace(stages_with(choices, layers_of(choices.program, num_ranks), ranks), inside=((halves,),) * num_ranks)


def m_placement(choices: Choices, num_ranks: int) -> Stages:
    """Lookups on all ranks, wherever they are, and one stage for each rank between them."""
    program = choices.program
    tables = {node.inputs[0]: None for node in program.nodes if node.op == _LOOKUP and node.phase is Phase.FORWARD}
    wide = [name for name in tables if name in program.parameters and choices.axes.extent_of(name, 1) >= num_ranks]
    if not wide:
        raise PlanError(f"placement m shares tables among all ranks, and {program.name} has none that is wide enough")
    layers = layers_of(program, num_ranks, set(program.parameters) - set(wide))
    stage_of, is_shared = _between(program, wide, layers)
    each = iter(range(num_ranks))
    ranks = [tuple(range(num_ranks)) if shared else (next(each),) for shared in is_shared]
    columns = {name: Shard(1) for name in wide}
    axis = MeshAxis(name="column", size=num_ranks)
    shared = follow(choices, axis, columns, pinned=columns.keys())
    return replace(
        stages_with(choices, stage_of, ranks), inside=tuple((shared,) if is_for_lookups else () for is_for_lookups in is_shared)
    )


def _between(program: TensorProgram, tables: Sequence[str], layers: Mapping[str, int]) -> tuple[dict[str, int], list[bool]]:
    """Puts a stage for lookups before the first stage that needs them; which stage each parameter belongs to, and which stages
    are for lookups.
    """
    needed: dict[int, list[str]] = {}
    for table in tables:
        reached = {table}
        for node in program.nodes:
            if node.phase is Phase.FORWARD and not reached.isdisjoint(node.inputs):
                met = [layers[name] for name in node.inputs if name in layers]
                if met:
                    needed.setdefault(min(met), []).append(table)
                    break
                reached.update(filter(None, node.outputs))
        else:
            needed.setdefault(max(layers.values()), []).append(table)
    is_shared: list[bool] = []
    moved: dict[int, int] = {}
    stage_of: dict[str, int] = {}
    for stage in range(1 + max(layers.values())):
        if stage in needed:
            stage_of |= dict.fromkeys(needed[stage], len(is_shared))
            is_shared.append(True)
        moved[stage] = len(is_shared)
        is_shared.append(False)
    return stage_of | {name: moved[stage] for name, stage in layers.items()}, is_shared


def k_placement(choices: Choices, num_ranks: int) -> Stages:
    """Each branch on half of the ranks, what depends on both on all."""
    program, half = choices.program, num_ranks // 2
    branches, both = _branches(program)
    if num_ranks % 2 or len(branches) != 2 or not both:
        raise PlanError(
            f"placement k needs an even number of ranks and two branches that meet; there are {num_ranks} ranks, and "
            f"{program.name} has {len(branches)} parts that read one input each"
        )
    stage_of = dict.fromkeys(both, num_ranks)
    for number, names in enumerate(branches):
        stage_of |= {name: stage + number * half for name, stage in layers_of(program, half, names).items()}
    ranks = [*((rank,) for rank in range(num_ranks)), tuple(range(num_ranks))]
    shared = _batch_axis(choices, "row", num_ranks)
    stages = stages_with(choices, stage_of, ranks, [rank // half for rank in range(num_ranks)])
    return replace(stages, inside=(*((),) * num_ranks, (shared,)))


def _branches(program: TensorProgram) -> tuple[list[list[str]], list[str]]:
    """The parameters that each single input meets, and the parameters that several inputs meet."""
    parameters, made_of = set(program.parameters), dict[str, set[str]]()
    reads: dict[str, frozenset[str]] = {name: frozenset([name]) for name in program.inputs}
    of_parameter: dict[str, frozenset[str]] = {}
    for node in program.nodes:
        if node.phase is Phase.FORWARD:
            read = frozenset[str]().union(*(reads.get(name, frozenset()) for name in node.inputs))
            reads |= dict.fromkeys(filter(None, node.outputs), read)
            for name in node.inputs:
                for parameter in sorted(made_of.get(name, {name} & parameters)):  # the same plan for every hash seed
                    of_parameter[parameter] = of_parameter.get(parameter, frozenset()) | read
            if not read:  # such as the transpose of a matrix
                own = {each for name in node.inputs for each in made_of.get(name, {name} & parameters)}
                made_of |= dict.fromkeys(filter(None, node.outputs), own)
    alone: dict[frozenset[str], list[str]] = {}
    for name, read in of_parameter.items():
        alone.setdefault(read, []).append(name)
    both = [name for read, names in alone.items() if len(read) > 1 for name in names]
    return [names for read, names in alone.items() if len(read) == 1], both


def _batch_axis(choices: Choices, name: str, size: int) -> AxisPlan:
    return follow(choices, MeshAxis(name=name, size=size), batch_of(choices))


PLACEMENTS: Mapping[str, Callable[[Choices, int], Stages]] = {
    "v": v_placement,
    "x": x_placement,
    "m": m_placement,
    "k": k_placement,
}
"""By name: each takes the program and the number of ranks, and raises PlanError if the program is not made so."""
