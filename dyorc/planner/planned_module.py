"""Loads the modules that `dyorc plan` plans: `MODULE:MAKE` names a function that returns a module and example inputs.

`MODULE:MAKE+adam` has a step of an optimizer in the program, too: of `sgd`, `momentum`, `adam` or `adama`. A number behind it
says over how many microbatches a step goes, each like the example inputs: `+adam4` adds their gradients up, `+adama4` takes each
into Adam's averages at once (`dyorc.planner.passes.adama`).
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dyorc.errors import DefinitionError, PlanError, ProgramCaptureError, text_of

if TYPE_CHECKING:
    from torch import nn

    from dyorc.planner.plan import ModuleCheck, Plan
    from dyorc.planner.program import Example, TensorProgram
    from dyorc.planner.reference import Optimizer


def program_of(target: str, *, is_inference: bool = False) -> "TensorProgram":
    """Captures what `target` makes, with the step of its optimizer.

    Args:
        target: The function, and the optimizer.
        is_inference: Whether the module answers; otherwise it returns the loss by which it trains.

    Raises:
        DefinitionError: There is no such function or optimizer, or the function does not make a module with inputs.
        ProgramCaptureError: The module cannot be captured.
    """
    return capture_target(target, is_inference=is_inference).program


@dataclass(frozen=True, kw_only=True)
class CapturedModule:
    """A module, and the programs that were captured from it.

    Attributes:
        module: As it was made.
        example: The call with which it was captured.
        step: What it computes.
        program: The same with the step of the optimizer; what is planned.
        optimizer: The name of the optimizer and the number of microbatches, if there is one.
    """

    module: "nn.Module"
    example: "Example"
    step: "TensorProgram"
    program: "TensorProgram"
    optimizer: "tuple[Optimizer, int] | None"

    def compare(self) -> "ModuleCheck":
        """Compares the module with what was captured, and the step of its optimizer with torch's.

        Raises:
            ProgramCaptureError: They compute something else.
        """
        from dyorc.planner.reference import compare_update, compare_with_module

        check = compare_with_module(self.step, self.module, self.example)
        if self.optimizer:
            compare_update(self.program, self.module, self.example, self.optimizer)
        return check


def capture_target(target: str, *, is_inference: bool = False) -> CapturedModule:
    """Captures what `target` makes, and keeps the module. Arguments and errors are those of `program_of`."""
    optimizer = _optimizer_of(target)
    if is_inference and optimizer is not None:
        raise DefinitionError(f"{target} names an optimizer, and a model that answers is not trained")
    module, example = module_of(target)
    from dyorc.planner.program import capture, capture_inference

    args, keywords = example.arguments()
    step = (capture_inference if is_inference else capture)(module, args, keywords)
    program = step if optimizer is None else _with_optimizer(step, *optimizer)
    return CapturedModule(module=module, example=example, step=step, program=program, optimizer=optimizer)


def _optimizer_of(target: str) -> "tuple[Optimizer, int] | None":
    """The name of an optimizer, and the number of microbatches."""
    _, plus, text = target.rpartition(":")[2].partition("+")
    if not plus:
        return None
    match = re.fullmatch(r"(sgd|momentum|adam|adama)([1-9]\d*)?", text)
    if match is None:
        raise DefinitionError(
            f"{target} names the optimizer {text!r}; expected sgd, momentum, adam or adama, and behind it the number of "
            "microbatches if there are several, like adama4"
        )
    return cast("Optimizer", match[1]), int(match[2] or 1)


def _with_optimizer(program: "TensorProgram", optimizer: "Optimizer", num_parts: int) -> "TensorProgram":
    from dyorc.planner.passes.adama import accumulate_microbatches, with_adama
    from dyorc.planner.program.update import with_update

    match optimizer:
        case "adama":
            return with_adama(program, num_parts)
        case "sgd" | "momentum" | "adam":
            return with_update(accumulate_microbatches(program, num_parts) if num_parts > 1 else program, optimizer)


def program_of_plan(plan: "Plan", target: str | None) -> "TensorProgram":
    """Captures the program of a plan. Arguments and errors are those of `captured_of_plan`."""
    return captured_of_plan(plan, target).program


def captured_of_plan(plan: "Plan", target: str | None) -> CapturedModule:
    """Captures the program of a plan, and keeps its module.

    Args:
        plan: Says where its model is.
        target: Where it is instead, or None.

    Raises:
        PlanError: Neither the caller nor the plan says where the model is, or it is another one.
    """
    if not (target or plan.target):
        raise PlanError("the plan does not say where its model is: name it with --model MODULE:MAKE")
    model = capture_target(target or plan.target, is_inference=plan.inference is not None)
    plan.check_program(model.program)
    return model


def module_of(target: str) -> "tuple[nn.Module, Example]":
    """Calls the function that `target` names; random numbers that it draws are the same each time.

    Raises:
        DefinitionError: There is no such function, or it does not return a module and a sequence of tensors.
        ModuleImportError: The module that holds the function raised when it was imported.
        ProgramCaptureError: The function raised.
    """
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise DefinitionError(f"{target!r} names no model; expected MODULE:FUNCTION, like model.py:make_model")
    name = name.partition("+")[0]
    from dyorc.authoring.loading import import_place  # here, because most commands need neither it nor NumPy

    function = getattr(import_place(place), name, None)
    if not callable(function):
        raise DefinitionError(f"{place} has no function {name!r} that makes a model")
    import torch

    torch.manual_seed(0)
    try:
        made: Any = function()
    except (Exception, SystemExit) as error:
        raise ProgramCaptureError(f"{target}() raised {type(error).__name__}: {text_of(error)}") from error
    from dyorc.planner.program import Example, eager

    match made:
        case (torch.nn.Module() as module, tuple() | list() as inputs):
            keywords: Any = {}
        case (torch.nn.Module() as module, dict() as keywords):
            inputs = ()
        case (torch.nn.Module() as module, tuple() | list() as inputs, dict() as keywords):
            pass
        case _:
            raise DefinitionError(
                f"{target}() must return a module and a tuple of example inputs, a dictionary of inputs by name, or both; it "
                f"returned {_described(made)}"
            )
    try:
        return eager(module), Example.of(inputs, keywords)
    except ProgramCaptureError as error:
        raise DefinitionError(f"{target}(): {error}") from error


def _described(made: Any) -> str:
    if isinstance(made, tuple | list):
        return f"{type(made).__name__} of {', '.join(type(part).__name__ for part in made)}"
    return type(made).__name__
