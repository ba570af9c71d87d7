"""Data parallel: each rank holds all parameters and takes a share of the batch; gradients are summed.

ZeRO holds parameters, gradients and the optimizer's state in shards instead: parameters are gathered for the ranks to compute
with, gradients are reduced and scattered, and each rank updates its shard (ZeRO, SC'20, stage 3; a gathered parameter is kept
until its last use in the step, as in FSDP without resharding after the forward pass).
"""

from collections.abc import Sequence

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan
from dyorc.planner.planners.baselines.assemble import in_order, one_stage, plan_of
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
    return plan_of(choices, axes, one_stage(choices, len(cluster.devices)), in_order(choices, num_parts), name, cluster)


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
