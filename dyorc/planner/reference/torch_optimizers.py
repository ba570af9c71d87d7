"""One or several steps of torch.optim on one device: the reference for programs with an optimizer's step, and for training."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from dyorc.planner.program.example import Example, loss_in
from dyorc.planner.program.flat_module import copy_module

TorchOptimizer: TypeAlias = Literal["sgd", "momentum", "adam"]
Optimizer: TypeAlias = Literal["sgd", "momentum", "adam", "adama"]
LEARNING_RATE, MOMENTUM, BETAS, EPS = 1e-3, 0.9, (0.9, 0.999), 1e-8
"""Those of `dyorc.planner.program.update.with_update`."""
_STATES = {"momentum_buffer": "momentum", "exp_avg": "mean", "exp_avg_sq": "square"}
"""How the program calls torch's states."""


def first_update_of(
    optimizer: TorchOptimizer, parameters: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Returns parameters and states after the first step, by the names that they have in the program.

    Args:
        optimizer: Which.
        parameters: Before the step.
        gradients: Of some or all of them.
    """
    named = {name: torch.nn.Parameter(parameters[name].clone()) for name in gradients}
    for name, parameter in named.items():
        parameter.grad = gradients[name].to(parameter.dtype)
    by = optimizer_of(optimizer, list(named.values()))
    by.step()
    after = {name: parameter.detach() for name, parameter in named.items()}
    for name, parameter in named.items():
        states: Mapping[str, Any] = by.state[parameter]
        after |= {f"{name}.{_STATES[key]}": state for key, state in states.items() if key in _STATES and state is not None}
    return after


def optimizer_of(optimizer: TorchOptimizer, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Returns torch's optimizer, as `with_update` writes it."""
    match optimizer:
        case "sgd":
            return torch.optim.SGD(parameters, lr=LEARNING_RATE)
        case "momentum":
            return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM)
        case "adam":
            return torch.optim.Adam(parameters, lr=LEARNING_RATE, betas=BETAS, eps=EPS)


def first_adama_averages_of(gradients: list[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Returns AdamA's averages after the first step (arXiv 2305.19982), from the gradients of each microbatch."""
    num = len(gradients)
    after: dict[str, torch.Tensor] = {}
    for name in gradients[0]:
        parts = torch.stack([part[name] for part in gradients]) / num
        after[f"{name}.mean"] = (1 - BETAS[0]) * parts.sum(0)
        after[f"{name}.square"] = (1 - BETAS[1]) * parts.square().sum(0)
    return after


def first_adama_update_of(parameter: torch.Tensor, mean: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
    """Returns a parameter after Adam's first step with given averages (arXiv 1412.6980, algorithm 1)."""
    return parameter - LEARNING_RATE * (mean / (1 - BETAS[0])) / ((square / (1 - BETAS[1])).sqrt() + EPS)


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
    module = copy_module(module)
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
