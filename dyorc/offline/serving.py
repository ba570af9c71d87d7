"""What a replica that runs a plan needs of torch: to check that the plan is of its module, and to stand in for the module."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dyorc.errors import PlanError
from dyorc.offline.plan import Inference, Plan
from dyorc.offline.program import recapture_inference
from dyorc.offline.runtime.weights import missing_weights


class PlannedModule(nn.Module):
    """Stands for a module whose weights lie in other processes: called like it, it returns what it would."""

    def __init__(self, run: Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]]) -> None:
        super().__init__()
        self._run = run
        self.eval()

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Answers a batch."""
        found = self._run(inputs)
        return found[0] if len(found) == 1 else found


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
    examples = [
        torch.empty(value.shape, dtype=getattr(torch, value.dtype))
        for value in (plan.values[name] for name in inference_of(plan).inputs)
    ]
    with torch.device("meta"):
        module = make()
    plan.check_program(recapture_inference(module, examples))


def computed_weights(plan: Plan, make: Callable[[], Any], path: Path) -> Mapping[str, torch.Tensor]:
    """Returns those of a module's weights that its file does not hold, since the module computes them when it is made.

    Raises:
        PlanError: The file cannot be read, is of another model, or lacks what the module does not compute.
    """
    missing = missing_weights(plan, path)
    if not missing:
        return {}
    made: Any = make()
    buffers = dict[str, torch.Tensor](made.named_buffers())
    for name in missing:
        if name not in buffers:
            raise PlanError(f"the plan needs the {plan.values[name].kind} {name}, which {path} does not hold")
    return {name: buffers[name] for name in missing}
