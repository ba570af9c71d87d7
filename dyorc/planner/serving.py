"""What a replica that runs a plan needs of torch: to check that the plan is of its module, and to stand in for the module."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_unflatten, treespec_loads

from dyorc.errors import PlanError, ProgramCaptureError
from dyorc.planner.plan import Inference, Plan
from dyorc.planner.program import Example, eager, recapture_inference
from dyorc.planner.runtime.rank_weights import missing_weights, read_whole


class PlannedModule(nn.Module):
    """A stand-in for a module whose weights lie in other processes: called like it, it returns what it would."""

    def __init__(self, inference: Inference, run: Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]]) -> None:
        super().__init__()
        self._call = treespec_loads(inference.call_structure) if inference.call_structure else None
        self._answer = treespec_loads(inference.answer_structure) if inference.answer_structure else None
        self._run = run
        self.eval()

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """Answers a batch.

        Raises:
            PlanError: It is called in another way than the module was when it was planned.
        """
        example = Example.of(inputs, keywords)
        if self._call is not None and example.structure != self._call:
            raise PlanError(f"the module was planned for calls like {self._call}, and is called like {example.structure}")
        outputs = self._run(example.tensors)
        if self._answer is not None:
            return tree_unflatten(outputs, self._answer)
        return outputs[0] if len(outputs) == 1 else outputs


def inference_of(plan: Plan) -> Inference:
    """Returns what a plan takes and returns.

    Raises:
        PlanError: It is of a training step, or has not been proved.
    """
    if plan.inference is None:
        raise PlanError("the plan is of a training step; make one of a model that answers: dyorc plan --inference")
    if not plan.inference.is_proved:
        raise PlanError("the plan has not been proved")
    return plan.inference


def check_module(plan: Plan, make: Callable[[], Any]) -> None:
    """Captures a module again, without its weights, and compares it with the one that was planned.

    Raises:
        PlanError: It is another one, or has been changed.
        ProgramCaptureError: It cannot be captured.
    """
    args, keywords = example_of(plan).arguments()
    try:
        with torch.device("meta"):
            module = make()
        program = recapture_inference(module, args, keywords)
    except ProgramCaptureError:  # tensors that are plain attributes have no elements there, and numbers are part of the program
        program = recapture_inference(make(), args, keywords)
    plan.check_program(program)


def example_of(plan: Plan) -> Example:
    """Returns a call like the one with which a plan's module was captured, with tensors that hold nothing."""
    inference = inference_of(plan)
    values = [plan.values[name] for name in inference.inputs]
    tensors = [torch.empty(value.shape, dtype=getattr(torch, value.dtype)) for value in values]
    if not inference.call_structure:
        return Example.of(tensors)
    return Example(tuple(tensors), treespec_loads(inference.call_structure))


def computed_weights(plan: Plan, make: Callable[[], Any], path: Path) -> Mapping[str, torch.Tensor]:
    """Returns those of a module's weights that its file does not hold by the plan's names.

    That is what the module computes when it is made, and a parameter that it has by several names if the file holds another.

    Raises:
        PlanError: The file cannot be read, is of another model, or lacks what the module does not compute.
    """
    missing = missing_weights(plan, path)
    if not missing:
        return {}
    made = eager(make())
    held = dict[str, torch.Tensor](made.named_buffers()) | tied_weights(made, missing, path)
    if any(name not in held for name in missing):
        args, keywords = example_of(plan).arguments()
        held |= recapture_inference(made, args, keywords).constants
    for name in missing:
        if name not in held:
            raise PlanError(f"the plan needs the {plan.values[name].kind} {name}, which {path} does not hold")
    return {name: held[name] for name in missing}


def tied_weights(module: nn.Module, missing: Sequence[str], path: Path) -> dict[str, torch.Tensor]:
    """Returns parameters and buffers that a file holds by another of their names.

    Args:
        module: Says which names are of one parameter.
        missing: Names that the file does not hold.
        path: The file.
    """
    names: dict[int, list[str]] = {}
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    for name, tensor in named:
        names.setdefault(id(tensor), []).append(name)
    same_of = {name: same for same in names.values() for name in same}
    weights: dict[str, torch.Tensor] = {}
    for name in missing:  # a tensor may have more than two names, and the file any of them
        for alias in same_of.get(name, ()):
            weights |= read_whole(path, {name: alias})
    return weights
