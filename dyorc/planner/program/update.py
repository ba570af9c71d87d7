"""Adds the optimizer's step to a program, so that plans can shard its states and its work."""

from collections.abc import Callable
from typing import Literal

from dyorc.planner.program.graph import TensorProgram
from dyorc.planner.program.writer import ProgramWriter

Optimizer = Literal["sgd", "momentum", "adam"]


def with_update(
    program: TensorProgram,
    optimizer: Optimizer,
    *,
    lr: float = 1e-3,
    momentum: float = 0.9,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> TensorProgram:
    """Returns the program with a step of an optimizer after its gradients.

    The step computes what `torch.optim.SGD` and `torch.optim.Adam` compute. Its states are sources of the program, zero at first:
    `PARAMETER.momentum`; `PARAMETER.mean` and `PARAMETER.square`, and one `optimizer.step` for all, a scalar.

    Args:
        program: A training step without updates of parameters.
        optimizer: `sgd`, `momentum` (SGD with momentum) or `adam`.
        lr: Learning rate.
        momentum: What is kept of the momentum.
        betas: What Adam keeps of the mean gradient and of its mean square.
        eps: What Adam adds to the root of the mean square.
    """
    writer = ProgramWriter(program)
    match optimizer:
        case "sgd":
            step = _sgd(writer, lr)
        case "momentum":
            step = _momentum(writer, lr, momentum)
        case "adam":
            step = _adam(writer, lr, betas, eps)
    for parameter, gradient in program.gradients.items():
        step(parameter, gradient)
    return writer.program()


def _sgd(writer: ProgramWriter, lr: float) -> Callable[[str, str], None]:
    def step(parameter: str, gradient: str) -> None:
        writer.of(gradient)
        change = writer.add(f"{parameter}.change", "mul.Tensor", parameter, gradient, lr)
        writer.becomes(parameter, writer.add(f"{parameter}.next", "sub.Tensor", parameter, parameter, change))

    return step


def _momentum(writer: ProgramWriter, lr: float, momentum: float) -> Callable[[str, str], None]:
    sgd = _sgd(writer, lr)

    def step(parameter: str, gradient: str) -> None:
        writer.of(gradient)
        state = writer.state(f"{parameter}.momentum", parameter)
        kept = writer.add(f"{state}.kept", "mul.Tensor", parameter, state, momentum)
        now = writer.add(f"{state}.next", "add.Tensor", parameter, kept, gradient)
        writer.becomes(state, now)
        sgd(parameter, now)

    return step


def _adam(writer: ProgramWriter, lr: float, betas: tuple[float, float], eps: float) -> Callable[[str, str], None]:
    step = adam_step(writer, lr, betas, eps)

    def with_averages(parameter: str, gradient: str) -> None:
        writer.of(gradient)
        mean = _average(writer, f"{parameter}.mean", parameter, gradient, betas[0])
        squared = writer.add(f"{parameter}.squared", "mul.Tensor", parameter, gradient, gradient)
        step(parameter, mean, _average(writer, f"{parameter}.square", parameter, squared, betas[1]))

    return with_averages


def adam_step(writer: ProgramWriter, lr: float, betas: tuple[float, float], eps: float) -> Callable[[str, str, str], None]:
    """Adds Adam's count of steps, and returns what changes a parameter by its averages (arXiv 1412.6980, algorithm 1).

    Arranged as in torch: the corrections of the bias are scalars of the step.

    Returns:
        A function that takes the names of a parameter, its mean gradient and its mean square.
    """
    count = writer.state("optimizer.step")
    now = writer.add("optimizer.step.next", "add.Tensor", count, count, 1.0)
    writer.becomes(count, now)
    mean_share = _bias(writer, "optimizer.step.mean_bias", now, betas[0])
    square_share = writer.add(
        "optimizer.step.square_bias.root", "sqrt.default", now, _bias(writer, "optimizer.step.square_bias", now, betas[1])
    )

    def step(parameter: str, mean: str, square: str) -> None:
        root = writer.add(f"{parameter}.root", "sqrt.default", parameter, square)
        share = writer.add(f"{parameter}.root.fair", "div.Tensor", parameter, root, square_share)
        below = writer.add(f"{parameter}.below", "add.Tensor", parameter, share, eps)
        fair = writer.add(f"{parameter}.mean.fair", "div.Tensor", parameter, mean, mean_share)
        change = writer.add(f"{parameter}.direction", "div.Tensor", parameter, fair, below)
        _sgd(writer, lr)(parameter, change)

    return step


def _average(writer: ProgramWriter, name: str, parameter: str, value: str, beta: float) -> str:
    """Adds a state that is a moving average of a value, and returns what it becomes."""
    state = writer.state(name, parameter)
    kept = writer.add(f"{name}.kept", "mul.Tensor", parameter, state, beta)
    added = writer.add(f"{name}.added", "mul.Tensor", parameter, value, 1 - beta)
    now = writer.add(f"{name}.next", "add.Tensor", parameter, kept, added)
    writer.becomes(state, now)
    return now


def _bias(writer: ProgramWriter, name: str, count: str, beta: float) -> str:
    """Adds 1 - beta ** count."""
    power = writer.add(f"{name}.power", "pow.Scalar", count, beta, count)
    return writer.add(name, "rsub.Scalar", count, power, 1.0)
