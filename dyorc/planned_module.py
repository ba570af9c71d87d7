"""Loads the modules that `dyorc plan` plans: `MODULE:MAKE` names a function that returns a module and example inputs.

`MODULE:MAKE+adam` has a step of an optimizer in the program, too: of `sgd`, `momentum`, `adam` or `adama`. A number behind it
says over how many microbatches a step goes, each like the example inputs: `+adam4` adds their gradients up, `+adama4` takes each
into Adam's averages at once (`dyorc.offline.passes.adama`).
"""

import re
from typing import TYPE_CHECKING, Any

from dyorc.errors import DefinitionError, PlanError, ProgramCaptureError, text_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from dyorc.offline.plan import Plan
    from dyorc.offline.program import TensorProgram


def program_of(target: str, *, is_inference: bool = False) -> "TensorProgram":
    """Captures what `target` makes.

    Args:
        target: The function, and the optimizer.
        is_inference: Whether the module answers; otherwise it returns the loss by which it trains.

    Raises:
        DefinitionError: There is no such function or optimizer, or the function does not make a module with inputs.
        ProgramCaptureError: The module cannot be captured.
    """
    optimizer = _optimizer_of(target)
    if is_inference and optimizer is not None:
        raise DefinitionError(f"{target} names an optimizer, and a model that answers is not trained")
    module, inputs = module_of(target)
    from dyorc.offline.program import capture, capture_inference

    if is_inference:
        return capture_inference(module, inputs)
    program = capture(module, inputs)
    return program if optimizer is None else _with_optimizer(program, *optimizer)


def _optimizer_of(target: str) -> tuple[str, int] | None:
    """The name of an optimizer, and the number of microbatches."""
    _, plus, text = target.rpartition(":")[2].partition("+")
    if not plus:
        return None
    found = re.fullmatch(r"(sgd|momentum|adam|adama)([1-9]\d*)?", text)
    if found is None:
        raise DefinitionError(
            f"{target} names the optimizer {text!r}; expected sgd, momentum, adam or adama, and behind it the number of "
            "microbatches if there are several, like adama4"
        )
    return found[1], int(found[2] or 1)


def _with_optimizer(program: "TensorProgram", optimizer: str, num_parts: int) -> "TensorProgram":
    from dyorc.offline.passes.adama import accumulated, with_adama
    from dyorc.offline.program.update import with_update

    match optimizer:
        case "adama":
            return with_adama(program, num_parts)
        case "sgd" | "momentum" | "adam":
            return with_update(accumulated(program, num_parts) if num_parts > 1 else program, optimizer)
        case _:
            raise AssertionError(optimizer)


def program_of_plan(plan: "Plan", target: str | None) -> "TensorProgram":
    """Captures the program of a plan.

    Args:
        plan: Says where its model is.
        target: Where it is instead, or None.

    Raises:
        PlanError: Nobody says where the model is, or it is another one.
    """
    if not (target or plan.target):
        raise PlanError("the plan does not say where its model is: name it with --model MODULE:MAKE")
    program = program_of(target or plan.target, is_inference=plan.inference is not None)
    plan.check_program(program)
    return program


def module_of(target: str) -> tuple["nn.Module", tuple["Tensor", ...]]:
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
    except Exception as error:
        raise ProgramCaptureError(f"{target}() raised {type(error).__name__}: {text_of(error)}") from error
    match made:
        case (torch.nn.Module() as module, tuple() | list() as inputs) if all(isinstance(i, torch.Tensor) for i in inputs):
            return module, tuple(inputs)
        case _:
            raise DefinitionError(
                f"{target}() must return a module and a tuple of example inputs, and returned {_described(made)}"
            )


def sources_of(program: "TensorProgram", module: "nn.Module", inputs: tuple["Tensor", ...]) -> "dict[str, Tensor]":
    """Returns the tensor of each source of a program: the module's parameters and buffers, its inputs, and zeros for states.

    All microbatches of a step are the same inputs.
    """
    import torch

    from dyorc.offline.program import ValueKind

    named = {name: tensor.detach() for name, tensor in [*module.named_parameters(), *module.named_buffers()]}
    found = {name: tensor for name, tensor in named.items() if name in program.values}
    missing = [name for name in program.inputs if name not in found]
    states = [value for value in program.values.values() if value.kind is ValueKind.STATE]
    found |= {value.name: torch.zeros(value.shape, dtype=getattr(torch, value.dtype)) for value in states}
    return found | dict(zip(missing, inputs * (len(missing) // max(len(inputs), 1)), strict=True))


def answers_of(module: "nn.Module", inputs: tuple["Tensor", ...]) -> tuple["Tensor", ...]:
    """Returns what a module answers on one device."""
    import torch

    with torch.no_grad():
        found = module.eval()(*inputs)
    return (found,) if isinstance(found, torch.Tensor) else tuple(found)


def loss_of(module: "nn.Module", inputs: tuple["Tensor", ...]) -> float:
    """Returns the loss on one device."""
    import torch

    with torch.no_grad():
        return float(module(*inputs))


def _described(made: Any) -> str:
    if isinstance(made, tuple | list):
        return f"{type(made).__name__} of {', '.join(type(part).__name__ for part in made)}"
    return type(made).__name__
