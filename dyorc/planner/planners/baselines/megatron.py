"""Megatron's three ways at once: tensor parallel within layers, pipelines of layers, and data parallel.

Tensor parallel splits a layer's first matrix by columns and its second by rows, so that nothing moves between them (Megatron-LM,
arXiv 1909.08053). Here such pairs are found from the axes of the program: an axis that at least two matrices share and that every
operation on the way can be split along, such as heads, or the inner dimension of a feed-forward part. Of two axes that meet in
one matrix, the one that fewer parameters have is taken: the axis that goes through all layers is left whole.
"""

from collections.abc import Sequence

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan
from dyorc.planner.planners.baselines.assemble import build_plan, in_order, one_stage
from dyorc.planner.planners.baselines.cheapest import cheapest
from dyorc.planner.planners.baselines.data_parallel import parts_along
from dyorc.planner.planners.baselines.follow import AxisPlan, Choices, batch_of, choices_of, follow
from dyorc.planner.planners.baselines.pipeline import one_forward_one_backward, stages_of
from dyorc.planner.program import REPLICATE, Node, Placement, Shard, Strategy, TensorProgram


def megatron(
    program: TensorProgram,
    cluster: Cluster,
    *,
    dp: int = 1,
    tp: int | None = None,
    pp: int = 1,
    microbatches: int = 1,
    name: str = "megatron",
) -> Plan:
    """Tensor parallel, and if wanted pipeline and data parallel.

    Args:
        program: What to plan.
        cluster: Where it runs; neighbouring ranks are in one tensor-parallel group.
        dp: Into how many shares the batch is split.
        tp: Into how many shares matrices are split; all ranks that are left if None.
        pp: How many stages the pipeline has.
        microbatches: How many parts of the batch go through the pipeline.
        name: The planner that the plan names.

    Raises:
        PlanError: The cluster has another number of ranks.
    """
    num_ranks = len(cluster.devices)
    tp = num_ranks // (dp * pp) if tp is None else tp
    if dp * tp * pp != num_ranks:
        raise PlanError(f"{dp} x {tp} x {pp} ranks (data, tensor, pipeline) are wanted, and {cluster.name} has {num_ranks}")
    choices = choices_of(program)
    outer = [*parts_along(choices, microbatches), *_data_parallel(choices, dp)]
    axes = [*outer, _tensor_parallel(choices, outer, tp, cluster)]
    stages = one_stage(choices, num_ranks) if pp == 1 else stages_of(choices, pp, num_ranks)
    time = axes[0] if microbatches > 1 else None
    order = in_order(choices) if time is None else one_forward_one_backward(choices, time, stages)
    return build_plan(choices, axes, stages, order, name, cluster)


def pipeline(program: TensorProgram, cluster: Cluster) -> Plan:
    """A stage on each rank, and the batch whole."""
    return megatron(program, cluster, tp=1, pp=len(cluster.devices), name="pipeline")


def _data_parallel(choices: Choices, dp: int) -> list[AxisPlan]:
    return [follow(choices, MeshAxis(name="data", size=dp), batch_of(choices))] if dp > 1 else []


def _tensor_parallel(choices: Choices, outer: Sequence[AxisPlan], tp: int, cluster: Cluster) -> AxisPlan:
    axis, shards = MeshAxis(name="tensor", size=tp), columns_and_rows(choices)
    if not choices.program.outputs or tp == 1:
        return follow(choices, axis, shards, pinned=shards.keys())
    ways = {name: [placement] for name, placement in shards.items()}
    return cheapest(choices, outer, axis, _lone_matrices(choices, tp) | ways, cluster)


def columns_and_rows(choices: Choices) -> dict[str, Placement]:
    """Shards parameters along the axes that pairs of matrices share."""
    program, axes = choices.program, choices.axes
    having: dict[int, list[str]] = {}
    for name in program.parameters:
        for axis in dict.fromkeys(axes.outermost[name]):
            if axis is not None:
                having.setdefault(axis, []).append(name)
    splittable = _splittable(choices)
    shards: dict[str, Placement] = {}
    for axis, names in sorted(having.items(), key=lambda item: len(item[1])):
        num_matrices = sum(len(program.values[name].shape) > 1 for name in names)
        if num_matrices > 1 and axis in splittable and shards.keys().isdisjoint(names):
            shards |= {name: Shard(axes.outermost[name].index(axis)) for name in names}
    return shards


def _lone_matrices(choices: Choices, num_ranks: int) -> dict[str, Sequence[Placement]]:
    """Returns every way to cut each matrix that all its readers can take in shards while what else they read is whole:
    embeddings, for example.

    What they make has to be gathered. That pays where nothing is trained: the weights are what does not fit.
    """
    program = choices.program
    cuts: dict[str, Sequence[Placement]] = {}
    for name in program.parameters:
        readers, shape = program.consumers[name], program.values[name].shape
        dims = [dim for dim in range(len(shape)) if choices.axes.extent_of(name, dim) >= num_ranks] if len(shape) == 2 else []
        ways = [Shard(dim) for dim in dims if all(_takes(choices, node, name, Shard(dim)) for node in readers)]
        if readers and ways:
            cuts[name] = ways
    return cuts


def _takes(choices: Choices, node: Node, name: str, wanted: Placement) -> bool:
    def fits(strategy: Strategy) -> bool:
        return all(
            placement == (wanted if read == name else REPLICATE)
            for read, placement in zip(node.inputs, strategy.inputs, strict=True)
        )

    return any(map(fits, choices.strategies[node.name]))


def _splittable(choices: Choices) -> set[int]:
    """The axes along which every operation that meets them can be split."""
    axes = choices.axes
    splittable = set(range(len(axes.extents)))
    for node in choices.program.nodes:
        met = {axis for name in (*node.inputs, *node.outputs) if name for axis in axes.outermost[name]}
        splittable -= met - {strategy.axis for strategy in choices.strategies[node.name]}
    return splittable
