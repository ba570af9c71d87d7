"""Faults of kernels that make what they reduce while it goes round a ring."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.papers.mutants.places import Mutation
from dyorc.planner.plan import Overlap, Plan
from dyorc.planner.program import PARTIAL, TensorProgram


def _of_overlap(change: Callable[[Plan, Overlap], Overlap]) -> Mutation:
    """Changes the first kernel that overlaps."""

    def mutate(program: TensorProgram, plan: Plan) -> Plan | None:
        for index, kernel in enumerate(plan.kernels):
            if kernel.overlap is not None:
                wrong = replace(kernel, overlap=change(plan, kernel.overlap))
                return replace(plan, kernels=(*plan.kernels[:index], wrong, *plan.kernels[index + 1 :]))
        return None

    return mutate


def _backwards(plan: Plan, overlap: Overlap) -> Overlap:
    return replace(overlap, order=overlap.order[::-1])


def _uncut(plan: Plan, overlap: Overlap) -> Overlap:
    """What slices need a part of is read whole: the first that is no term of the sum."""
    left_out = next(name for name in overlap.cuts if PARTIAL not in plan.tensors[name].layout)
    return replace(overlap, cuts={name: dim for name, dim in overlap.cuts.items() if name != left_out})


MUTATIONS: Mapping[str, Mutation] = {
    "kernel makes its slices in another order than the ring sends them": _of_overlap(_backwards),
    "kernel reads a factor whole of which each slice needs a part": _of_overlap(_uncut),
}
"""By name."""
