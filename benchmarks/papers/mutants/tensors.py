"""Faults of what a plan says about tensors, results and meshes: the steps are right, and do something else than it says."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.papers.mutants.places import Mutation
from dyorc.planner.plan import Apply, Placed, Plan
from dyorc.planner.program import PARTIAL, REPLICATE, Partial, Shard, TensorProgram


def _change_layout(change: Callable[[Plan, Placed], Placed | None], *, of_collectives: bool = False) -> Mutation:
    """Changes what a tensor is said to be that some step makes.

    What a collective makes must be read by an operation: a result that is cut along another dimension by a collective that does
    so is no fault, but another plan.
    """

    def mutate(program: TensorProgram, plan: Plan) -> Plan | None:
        read = {name for step in plan.steps if isinstance(step, Apply) for name in step.inputs}
        for step in plan.steps:
            for tensor in step.outputs:
                if not tensor or isinstance(step, Apply) == of_collectives or (of_collectives and tensor not in read):
                    continue
                made = change(plan, plan.tensors[tensor])
                if made is not None:
                    return replace(plan, tensors={**plan.tensors, tensor: made})
        return None

    return mutate


def _said_whole(plan: Plan, placed: Placed) -> Placed | None:
    """A partial sum that is said to be the sum: the operation lacks its reduction."""
    layout = tuple(REPLICATE if isinstance(placement, Partial) else placement for placement in placed.layout)
    return replace(placed, layout=layout) if layout != placed.layout else None


def _said_sum(plan: Plan, placed: Placed) -> Placed | None:
    mesh, value = plan.meshes[placed.mesh], plan.values[placed.value]
    for index, axis in enumerate(mesh.axes):
        if axis.size > 1 and not axis.is_time and placed.layout[index] == REPLICATE and value.dtype != "bool":
            return replace(placed, layout=(*placed.layout[:index], PARTIAL, *placed.layout[index + 1 :]))
    return None


def _other_dim(plan: Plan, placed: Placed) -> Placed | None:
    shape = plan.values[placed.value].shape
    for index, placement in enumerate(placed.layout):
        if isinstance(placement, Shard) and placement.sizes and plan.meshes[placed.mesh].axes[index].size > 1:
            for dim, extent in enumerate(shape):
                if dim != placement.dim and extent == sum(placement.sizes):
                    return replace(
                        placed, layout=(*placed.layout[:index], Shard(dim, placement.sizes), *placed.layout[index + 1 :])
                    )
    return None


def _other_sizes(plan: Plan, placed: Placed) -> Placed | None:
    for index, placement in enumerate(placed.layout):
        if isinstance(placement, Shard) and placement.sizes and len(placement.sizes) > 1 and placement.sizes[0] > 0:
            sizes = (placement.sizes[0] - 1, placement.sizes[1] + 1, *placement.sizes[2:])
            return replace(placed, layout=(*placed.layout[:index], Shard(placement.dim, sizes), *placed.layout[index + 1 :]))
    return None


def _too_small(plan: Plan, placed: Placed) -> Placed | None:
    for index, placement in enumerate(placed.layout):
        if isinstance(placement, Shard) and placement.sizes and placement.sizes[0] > 0:
            sizes = (placement.sizes[0] - 1, *placement.sizes[1:])
            return replace(placed, layout=(*placed.layout[:index], Shard(placement.dim, sizes), *placed.layout[index + 1 :]))
    return None


def _wrong_result(program: TensorProgram, plan: Plan) -> Plan | None:
    for value, tensor in plan.results.items():
        for name, placed in plan.tensors.items():
            is_other = placed.value in program.results and placed.value != value
            if is_other and plan.values[placed.value].shape == plan.values[plan.tensors[tensor].value].shape:
                return replace(plan, results={**plan.results, value: name})
    return None


def _no_result(program: TensorProgram, plan: Plan) -> Plan | None:
    return replace(plan, results=dict(list(plan.results.items())[1:]))


def _other_program(program: TensorProgram, plan: Plan) -> Plan | None:
    return replace(plan, program=plan.program[::-1])


def _renamed_value(program: TensorProgram, plan: Plan) -> Plan | None:
    for step in plan.steps:
        for tensor in step.outputs if isinstance(step, Apply) else ():
            if tensor:
                placed = plan.tensors[tensor]
                value = plan.values[placed.value]
                for other in plan.values.values():
                    if other.name != value.name and (other.shape, other.dtype) == (value.shape, value.dtype):
                        return replace(plan, tensors={**plan.tensors, tensor: replace(placed, value=other.name)})
    return None


def _rank_below_zero(program: TensorProgram, plan: Plan) -> Plan | None:
    name, mesh = next(iter(plan.meshes.items()))
    return replace(plan, meshes={**plan.meshes, name: replace(mesh, ranks=(-1, *mesh.ranks[1:]))})


MUTATIONS: Mapping[str, Mutation] = {
    "5 operation lacks its reduction": _change_layout(_said_whole),
    "12 whole said to be a sum: scaled by the ranks": _change_layout(_said_sum),
    "output split along another dimension": _change_layout(_other_dim),
    "collective's target split along another dimension": _change_layout(_other_dim, of_collectives=True),
    "output has other shares": _change_layout(_other_sizes),
    "shares do not add up": _change_layout(_too_small),
    "wrong result": _wrong_result,
    "result left out": _no_result,
    "lineage names another value": _renamed_value,
    "rank that is none": _rank_below_zero,
    "plan of another program": _other_program,
}
"""By name; those with numbers are the bugs of TrainVerify's table (SOSP'25)."""
