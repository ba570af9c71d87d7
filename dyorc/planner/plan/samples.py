"""The same plan for fewer samples: a plan of a model that answers is made for the largest batch, and runs for any smaller one.

No step names an extent: operations take the shape of what they make from the layout. So only extents change, in proportion to the
number of samples, and with them the sizes of shards of a dimension that grows with it, such as heads x samples. A plan that cuts
between samples is refused: its shards would not be in proportion, and replicas divide batches among them already.
"""

from dataclasses import replace

from dyorc.errors import PlanError
from dyorc.planner.plan.layout import Layout
from dyorc.planner.plan.plan import Inference, Plan
from dyorc.planner.program import Placement, Shard
from dyorc.planner.program.batch import resized


def for_samples(plan: Plan, num_samples: int) -> Plan:
    """Returns a plan for another number of samples.

    Raises:
        PlanError: The plan trains, is not for so many samples, or divides samples among ranks or in time.
    """
    inference = plan.inference
    if inference is None:
        raise PlanError("the plan is of a training step, which is for one size of batch")
    if not 1 <= num_samples <= inference.max_samples:
        raise PlanError(f"the plan is for at most {inference.max_samples} samples at once, and {num_samples} came")
    dims, before = inference.batch_dims, inference.max_samples
    return replace(
        plan,
        values={name: resized(value, dims.get(name, ()), num_samples, before) for name, value in plan.values.items()},
        tensors={
            name: replace(placed, layout=_layout(name, placed.layout, dims.get(placed.value, ()), num_samples, inference))
            for name, placed in plan.tensors.items()
        },
    )


def _layout(name: str, layout: Layout, dims: tuple[int, ...], num_samples: int, inference: Inference) -> Layout:
    def scaled(placement: Placement) -> Placement:
        if not isinstance(placement, Shard) or placement.dim not in dims:
            return placement
        sizes = placement.sizes or ()
        if any(size % inference.max_samples for size in sizes):
            raise PlanError(
                f"the plan cuts {name} between its samples, so it is for exactly {inference.max_samples} of them: leave the "
                "batch whole, and have more replicas instead"
            )
        return Shard(placement.dim, tuple(size // inference.max_samples * num_samples for size in sizes))

    return tuple(map(scaled, layout)) if dims else layout
