"""Data parallel: each rank holds all parameters and takes a share of the batch; gradients are summed.

ZeRO holds parameters, gradients and the optimizer's state in shards instead: parameters are gathered for the ranks to compute
with, gradients are reduced and scattered, and each rank updates its shard (ZeRO, SC'20, stage 3; a gathered parameter is kept
until its last use in the step, as in FSDP without resharding after the forward pass).

Parallel experts, as in GShard (ICLR'21): each rank holds some of the experts, tokens go to them and come back by all-to-all, and
everything else is data parallel.
"""

import re
from collections.abc import Mapping, Sequence

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan
from dyorc.planner.planners.baselines.assemble import build_plan, in_order, one_stage
from dyorc.planner.planners.baselines.follow import AxisPlan, Choices, batch_of, choices_of, follow
from dyorc.planner.program import Placement, Shard, TensorProgram, ValueKind


def dp_even(program: TensorProgram, cluster: Cluster, *, microbatches: int = 1) -> Plan:
    """Data parallel, the same share for each rank."""
    return _data_parallel(program, cluster, [1.0] * len(cluster.devices), microbatches, "dp_even")


def dp_proportional(
    program: TensorProgram, cluster: Cluster, *, microbatches: int = 1, ratios: Sequence[float] | None = None
) -> Plan:
    """Data parallel, shares in proportion to the ranks' speeds, or as given."""
    ratios = ratios or [device.flops_per_s for device in cluster.devices]
    return _data_parallel(program, cluster, ratios, microbatches, "dp_proportional")


def zero(program: TensorProgram, cluster: Cluster, *, microbatches: int = 1, ratios: Sequence[float] | None = None) -> Plan:
    """Data parallel with parameters, gradients and the optimizer's state in shards."""
    ratios = ratios or [1.0] * len(cluster.devices)
    choices = choices_of(program)
    shards = _shards(choices, len(ratios))
    axis = MeshAxis(name="data", size=len(ratios))
    gathered = {name for name in shards if program.values[name].kind is ValueKind.PARAMETER}
    along = follow(choices, axis, batch_of(choices) | shards, ratios=tuple(ratios), gathered=gathered)
    return _one_stage_plan(choices, [*parts_along(choices, microbatches), along], cluster, microbatches, "zero")


def parts_along(choices: Choices, microbatches: int) -> list[AxisPlan]:
    """The axis of time that cuts the batch into microbatches; none if there is only one."""
    axis = MeshAxis(name="microbatch", size=microbatches, is_time=True)
    return [follow(choices, axis, batch_of(choices))] if microbatches > 1 else []


def _data_parallel(program: TensorProgram, cluster: Cluster, ratios: Sequence[float], microbatches: int, name: str) -> Plan:
    choices = choices_of(program)
    along = follow(choices, MeshAxis(name="data", size=len(ratios)), batch_of(choices), ratios=tuple(ratios))
    return _one_stage_plan(choices, [*parts_along(choices, microbatches), along], cluster, microbatches, name)


def _one_stage_plan(choices: Choices, axes: Sequence[AxisPlan], cluster: Cluster, num_parts: int, name: str) -> Plan:
    return build_plan(choices, axes, one_stage(choices, len(cluster.devices)), in_order(choices, num_parts), name, cluster)


def _shards(choices: Choices, num_ranks: int) -> dict[str, Placement]:
    """Shards each parameter and state along the dimension that can be cut into most pieces, if every rank can have one."""
    program, axes = choices.program, choices.axes
    shards: dict[str, Placement] = {}
    for name in program.sources:
        value = program.values[name]
        if value.kind in (ValueKind.PARAMETER, ValueKind.STATE) and value.shape:
            dim = max(range(len(value.shape)), key=lambda dim: axes.extent_of(name, dim))
            if axes.extent_of(name, dim) >= num_ranks:
                shards[name] = Shard(dim)
    return shards


def expert_parallel(program: TensorProgram, cluster: Cluster, *, experts: str = "", microbatches: int = 1) -> Plan:
    """Shards experts, and the batch for the rest.

    Args:
        program: What to plan.
        cluster: Where it runs.
        experts: A regular expression for the names of parameters whose first dimension is the expert. If it is empty, these
            are the parameters with three dimensions: stacks of matrices. The gate, which has a column for each expert, is
            whole on every rank.
        microbatches: Into how many parts each rank's batch is cut.
    """
    choices = choices_of(program)
    matching = [name for name in program.parameters if re.search(experts, name)] if experts else experts_of(program)
    shards: dict[str, Placement] = dict.fromkeys(matching, Shard(0))
    axis = MeshAxis(name="expert", size=len(cluster.devices))
    batch = batch_of(choices)
    along = follow(choices, axis, batch | shards, pinned=shards.keys(), whole=_axes(choices, batch))
    axes = [*parts_along(choices, microbatches), along]
    order = in_order(choices, microbatches)
    return build_plan(choices, axes, one_stage(choices, len(cluster.devices)), order, "expert_parallel", cluster)


def _axes(choices: Choices, placements: Mapping[str, Placement]) -> set[int]:
    """The axes of the program that placements shard."""
    axes = {choices.axes.outermost[name][p.dim] for name, p in placements.items() if isinstance(p, Shard)}
    return {axis for axis in axes if axis is not None}


def experts_of(program: TensorProgram) -> tuple[str, ...]:
    """The parameters that are stacks of matrices, one for each expert, and can be cut between them."""
    outermost = choices_of(program).axes.outermost
    return tuple(n for n in program.parameters if len(program.values[n].shape) == 3 and outermost[n][0] is not None)
