"""The small GPT that is trained, and its data: walks over the vocabulary whose next token can be learned."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from dyorc.planner.models import gpt
from dyorc.planner.program import TensorProgram, ValueKind, capture, evaluate

LEARNING_RATE = 0.3
_STRIDES = (1, 3, 5)
_SIZES = {
    "full": {"layers": 2, "hidden": 128, "heads": 4, "vocabulary": 256, "sequence": 64, "batch": 24},
    "quick": {"layers": 1, "hidden": 64, "heads": 4, "vocabulary": 128, "sequence": 32, "batch": 12},
}


@dataclass(frozen=True, slots=True)
class Task:
    """What is trained.

    Attributes:
        program: The training step.
        sources: Parameters to begin with.
        sizes: The model's, and its batch's.
    """

    program: TensorProgram
    sources: Mapping[str, torch.Tensor]
    sizes: Mapping[str, int]

    def batch(self, step: int) -> dict[str, torch.Tensor]:
        """Returns the inputs of a step, always the same ones."""
        generator = torch.Generator().manual_seed(step)
        shape = (self.sizes["batch"], 1)
        start = torch.randint(0, self.sizes["vocabulary"], shape, generator=generator)
        stride = torch.tensor(_STRIDES)[torch.randint(0, len(_STRIDES), shape, generator=generator)]
        walk = (start + stride * torch.arange(self.sizes["sequence"] + 1)) % self.sizes["vocabulary"]
        return dict(zip(self.program.inputs, (walk[:, :-1].contiguous(), walk[:, 1:].contiguous()), strict=True))


def task(size: str) -> Task:
    """Captures the model: `full` or `quick`."""
    torch.manual_seed(0)
    module, inputs = gpt(**_SIZES[size])
    program = capture(module, inputs, name=f"gpt-{size}")
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    kept = (ValueKind.PARAMETER, ValueKind.BUFFER)
    sources = {name: tensors[name].detach() for name, value in program.values.items() if value.kind in kept}
    return Task(program, sources, _SIZES[size])


def losses_on_one_device(trained_task: Task, steps: int) -> list[float]:
    """Trains on one device, without any plan."""
    sources, losses = dict(trained_task.sources), list[float]()
    for step in range(steps):
        results = evaluate(trained_task.program, {**sources, **trained_task.batch(step)})
        losses.append(float(results[trained_task.program.loss]))
        for name, gradient in trained_task.program.gradients.items():
            sources[name] = sources[name] - LEARNING_RATE * results[gradient]
    return losses
