"""Where a plan may be given a fault, and how its steps are written anew."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from dyorc.planner.plan import Apply, Plan, Step
from dyorc.planner.program import TensorProgram
from dyorc.planner.program.graph import rename_values

Mutation: TypeAlias = Callable[[TensorProgram, Plan], Plan | None]
"""Returns a faulty plan, or None if the plan has no place for the fault."""
Choice: TypeAlias = Callable[[Plan, int, Step], Step | list[Step] | None]
"""Returns what takes a step's place, or None if the step is no place for the fault."""


def first(choose: Choice) -> Mutation:
    """Replaces the first step for which there is a replacement."""

    def mutate(program: TensorProgram, plan: Plan) -> Plan | None:
        for number, step in enumerate(plan.steps):
            made = choose(plan, number, step)
            if made is not None:
                return with_steps(plan, number, made)
        return None

    return mutate


def with_steps(plan: Plan, number: int, made: Step | list[Step]) -> Plan:
    """Returns the plan with other steps in place of one."""
    steps = made if isinstance(made, list) else [made]
    return replace(plan, steps=(*plan.steps[:number], *steps, *plan.steps[number + 1 :]))


def reading(step: Step, names: Mapping[str, str]) -> Step:
    """Returns a step that reads other tensors."""
    if isinstance(step, Apply):
        arguments = tuple(rename_values(argument, names) for argument in step.arguments)
        return replace(step, arguments=arguments)
    return replace(step, source=names.get(step.source, step.source))


def like(plan: Plan, number: int, tensor: str, *, with_sources: bool = True) -> str | None:
    """Another tensor of the same shape and layout, on the same mesh, that is made before a step."""
    placed = plan.tensors[tensor]
    value = plan.values[placed.value]
    made = {name for step in plan.steps[:number] for name in step.outputs if name}
    sources = {name for names in plan.sources.values() for name in names} if with_sources else set[str]()
    for name in sorted(made | sources):
        other = plan.tensors[name]
        twin = plan.values[other.value]
        lies_alike = other.value != placed.value and (other.mesh, other.layout) == (placed.mesh, placed.layout)
        if lies_alike and (twin.shape, twin.dtype) == (value.shape, value.dtype):
            return name
    return None
