"""Parallel experts, as in GShard (ICLR'21): each rank holds some of the experts, tokens go to them and come back by all-to-all,
and everything else is data parallel.
"""

import re
from collections.abc import Mapping

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan
from dyorc.planner.planners.baselines.assemble import in_order, one_stage, plan_of
from dyorc.planner.planners.baselines.data_parallel import parts_along
from dyorc.planner.planners.baselines.follow import Choices, batch_of, choices_of, follow
from dyorc.planner.program import Placement, Shard, TensorProgram


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
    return plan_of(choices, axes, one_stage(choices, len(cluster.devices)), order, "expert_parallel", cluster)


def _axes(choices: Choices, placements: Mapping[str, Placement]) -> set[int]:
    """The axes of the program that placements shard."""
    axes = {choices.axes.outermost[name][p.dim] for name, p in placements.items() if isinstance(p, Shard)}
    return {axis for axis in axes if axis is not None}


def experts_of(program: TensorProgram) -> tuple[str, ...]:
    """The parameters that are stacks of matrices, one for each expert, and can be cut between them."""
    outermost = choices_of(program).axes.outermost
    return tuple(n for n in program.parameters if len(program.values[n].shape) == 3 and outermost[n][0] is not None)
