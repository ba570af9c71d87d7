"""A plain loop of PyTorch on one device: the ruler for plans that train for several steps."""

from collections.abc import Sequence

import torch
from torch import nn

from dyorc.planner.program.example import Example
from dyorc.planner.program.flat_module import copied
from dyorc.planner.program.returned import loss_in
from dyorc.planner.reference.update_step import TorchOptimizer, optimizer_of

LOSS_TOLERANCE = 1e-3
"""How far a loss may be from that of one device, relative to it: small differences of the parameters grow from step to step."""


def losses_of(
    module: nn.Module,
    example: Example,
    num_steps: int,
    optimizer: tuple[TorchOptimizer, int] | None,
    learning_rate: float,
) -> list[float]:
    """Trains a copy of a module, and returns the loss of each step.

    Args:
        module: Stays as it was.
        example: The same in each step.
        num_steps: How many.
        optimizer: Which, and over how many microbatches; plain gradient descent if None.
        learning_rate: Of plain gradient descent.
    """
    module = copied(module)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    name, num_parts = optimizer or (None, 1)
    by = torch.optim.SGD(trained, lr=learning_rate) if name is None else optimizer_of(name, trained)
    losses: list[float] = []
    for _ in range(num_steps):
        by.zero_grad()
        total = 0.0
        for _ in range(num_parts):
            loss = loss_in(example.call(module)) / num_parts
            loss.backward()
            total += loss.item()
        losses.append(total)
        by.step()
    return losses


def first_wrong_step(losses: Sequence[float], expected: Sequence[float]) -> int | None:
    """Returns the first step whose loss is not that of one device."""
    for step, (loss, right) in enumerate(zip(losses, expected, strict=True)):
        if not abs(loss - right) <= LOSS_TOLERANCE * abs(right):
            return step
    return None
