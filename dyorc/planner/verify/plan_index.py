"""Reads a plan once, for all tiers: which steps are alike, and which tensors lie alike.

A verification must read every step: a fault may be in one microbatch of one layer. So reading is cheap, and anything that costs
more is done for distinct steps, or for distinct operations on distinct layouts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from dyorc.planner.plan import Apply, Collective, Layout, Placed, Plan, Step
from dyorc.planner.program import Argument, TensorProgram, ValueRef


@dataclass(frozen=True, slots=True, eq=False)
class StepForm:
    """A step, and all steps that differ from it only in the part of the work.

    Attributes:
        number: Of the first of them.
        step: The first of them.
        inputs: What they read, each once.
        outputs: What they make that is read.
        is_node: Whether they apply the operation of their node, to the same numbers and to tensors of the same values.
    """

    number: int
    step: Step
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    is_node: bool


class PlanIndex:
    """The steps and tensors of a plan, grouped by what they have in common.

    Attributes:
        program: What it distributes.
        plan: The plan.
        forms: The form of each step.
        distinct: Each form once, in the order of its first step.
        spots: For each placed tensor, a number: the same for equal layouts on one mesh.
    """

    def __init__(self, program: TensorProgram, plan: Plan) -> None:
        self.program = program
        self.plan = plan
        self.distinct: list[StepForm] = []
        self.spots = _numbered(plan.tensors)
        alike: dict[tuple[object, ...], list[StepForm]] = {}
        self.forms = [self._form(number, step, alike) for number, step in enumerate(plan.steps)]

    def _form(self, number: int, step: Step, alike: dict[tuple[object, ...], list[StepForm]]) -> StepForm:
        key = _key(step)
        known = alike.setdefault(key, [])
        for form in known:
            if _is_alike(form.step, step):
                return form
        is_apply = isinstance(step, Apply)
        form = StepForm(
            number=number,
            step=step,
            inputs=tuple(dict.fromkeys(step.inputs)) if is_apply else step.inputs,
            outputs=tuple(filter(None, step.outputs)) if is_apply else step.outputs,
            is_node=is_apply and self._is_node(step),
        )
        known.append(form)
        self.distinct.append(form)
        return form

    def _is_node(self, step: Apply) -> bool:
        node, tensors = self.program.node_named.get(step.node), self.plan.tensors
        return (
            node is not None
            and step.op == node.op
            and _is_same(tensors, step.arguments, node.arguments)
            and (step.keywords == node.keywords == () or _is_same(tensors, step.keywords, node.keywords))
        )


def _numbered(tensors: Mapping[str, Placed]) -> dict[str, int]:
    """Layouts are often one object, which is quicker to recognize than to compare."""
    by_identity: dict[tuple[str, int], int] = {}
    by_content: dict[tuple[str, Layout], int] = {}
    numbers: dict[str, int] = {}
    for name, placed in tensors.items():
        key = placed.mesh, id(placed.layout)
        number = by_identity.get(key)
        if number is None:
            number = by_identity[key] = by_content.setdefault((placed.mesh, placed.layout), len(by_content))
        numbers[name] = number
    return numbers


def _key(step: Step) -> tuple[object, ...]:
    """What tells most steps apart: quick to compare."""
    if isinstance(step, Apply):
        return step.key
    if isinstance(step, Collective):
        return step.source, step.target, step.axis, step.part is None
    return step.source, step.target, step.part is None


def _is_alike(step: Step, other: Step) -> bool:
    """Whether two steps with one key are of one form."""
    if isinstance(step, Apply):
        return isinstance(other, Apply) and step.is_part_like(other)
    return not isinstance(step, Collective) or (isinstance(other, Collective) and step.kind is other.kind)


def _is_same(tensors: Mapping[str, Placed], argument: Argument, expected: Argument) -> bool:
    """Whether an argument of a step is that of its node; 1 is not True, and NaN is NaN."""
    kind = type(argument)
    if kind is not type(expected):
        return False
    if isinstance(argument, ValueRef):
        placed = tensors.get(argument.name)
        return placed is not None and isinstance(expected, ValueRef) and placed.value == expected.name
    if isinstance(argument, tuple) and isinstance(expected, tuple):
        return len(argument) == len(expected) and all(map(partial(_is_same, tensors), argument, expected))
    return argument is expected or repr(argument) == repr(expected)
