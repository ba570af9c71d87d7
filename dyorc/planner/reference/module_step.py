"""Runs a module on one device by PyTorch alone, and gives its results the names that people know."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.utils.checkpoint as checkpoints
from torch import nn

from dyorc.planner.program.example import Example, loss_in, tensors_in
from dyorc.planner.program.graph import TensorProgram, ValueKind
from dyorc.planner.program.randomness import CounterBased

LOSS = "the loss"
Result = TypeVar("Result")


def gradient_label(parameter: str) -> str:
    """How the gradient of a parameter is called."""
    return f"the gradient of {parameter}"


def output_label(index: int) -> str:
    """How an answer is called, by its number."""
    return f"output {index}"


def buffer_label(name: str) -> str:
    """How what becomes of a buffer is called."""
    return f"the buffer {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a module computed.

    Attributes:
        returned: The loss, or its answers, by label.
        gradients: Of each parameter that has one, by its name.
        buffers: After the step, by name.
        changed: The names of the buffers that the step changed.
    """

    returned: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor]
    buffers: Mapping[str, torch.Tensor]
    changed: frozenset[str] = frozenset()

    def results(self, program: TensorProgram, *, has_gradients: bool = True) -> dict[str, torch.Tensor]:
        """Returns what a program of the module must compute, by label.

        Gradients that the module does not compute are zero. Gradients that only the module computes count, unless they are zero.
        A buffer that changes counts, even if the program leaves it alone.

        Args:
            program: Which.
            has_gradients: Whether it computes them whole at all; a step of AdamA does not.
        """
        updated = {name for name in program.updates if name in self.buffers}
        expected = {**self.returned, **{buffer_label(name): self.buffers[name] for name in sorted(updated | self.changed)}}
        return expected | self._gradients(program) if has_gradients else expected

    def _gradients(self, program: TensorProgram) -> dict[str, torch.Tensor]:
        expected: dict[str, torch.Tensor] = {}
        for name in program.gradients:
            value = program.values[name]
            zeros = torch.zeros(value.shape, dtype=getattr(torch, value.dtype))
            expected[gradient_label(name)] = self.gradients.get(name, zeros)
        for name, gradient in self.gradients.items():
            if name not in program.gradients and bool((gradient != 0).any()):
                expected[gradient_label(name)] = gradient
        return expected


def training_step_of(module: nn.Module, example: Example, number: int = 0) -> Step:
    """Runs forward and backward of a module that returns its loss; leaves its gradients, and changes its buffers.

    Args:
        module: Draws counter-based random numbers, as its program does.
        example: What it is called with.
        number: How many steps came before: each draws other numbers.
    """
    module.zero_grad(set_to_none=True)
    before = _buffers(module)
    with keep_activations(), CounterBased(number):
        loss = loss_in(example.call(module))
        loss.backward()
    gradients = {name: p.grad.detach().clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad(set_to_none=True)
    buffers = _buffers(module)
    changed = frozenset(name for name, buffer in buffers.items() if not identical(buffer, before[name]))
    return Step(returned={LOSS: loss.detach()}, gradients=gradients, buffers=buffers, changed=changed)


def _buffers(module: nn.Module) -> dict[str, torch.Tensor]:
    """All of them: a step may give one tensor two names."""
    return {name: buffer.detach().clone() for name, buffer in module.named_buffers(remove_duplicate=False)}


def mean_of(steps: Sequence[Step]) -> Step:
    """Returns what steps over several microbatches make together: the mean loss and gradients, and the last buffers."""
    return Step(
        returned=_means([step.returned for step in steps]),
        gradients=_means([step.gradients for step in steps]),
        buffers=steps[-1].buffers,
        changed=frozenset[str]().union(*(step.changed for step in steps)),
    )


def _means(parts: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([part[name] for part in parts]).sum(0) / len(parts) for name in parts[0]}


def answers_of(module: nn.Module, example: Example) -> Step:
    """Runs a module that answers; it is taken as if `eval` had been called."""
    with torch.no_grad():
        tensors, _ = tensors_in(example.call(module.eval()))
    return Step(returned={output_label(index): tensor for index, tensor in enumerate(tensors)}, gradients={}, buffers={})


def label_results(program: TensorProgram, results: Mapping[str, Result]) -> dict[str, Result]:
    """Gives what there is of each result of a program, which are called like its values, the labels of `Step.results`."""
    named = {output_label(index): results[name] for index, name in enumerate(program.outputs)}
    if program.loss:
        named[LOSS] = results[program.loss]
    named |= {gradient_label(parameter): results[value] for parameter, value in program.gradients.items()}
    buffers = [name for name in program.updates if program.values[name].kind is ValueKind.BUFFER]
    return named | {buffer_label(name): results[program.updates[name]] for name in buffers}


def identical(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors of one shape hold the same; what is not a number is the same as what is not."""
    return bool(((first == second) | ((first != first) & (second != second))).all())


@contextmanager
def keep_activations() -> Generator[None]:
    """Runs modules as if they had no checkpoints (`torch.utils.checkpoint`). Not for several threads.

    What is computed again in the backward pass draws random numbers again; a captured program keeps activations, too.
    """
    module: Any = checkpoints
    names = {"_checkpoint_without_reentrant_generator": _keep, "CheckpointFunction": _PlainFunction}
    before = {name: getattr(module, name) for name in names}
    try:
        for name, plain in names.items():
            setattr(module, name, plain)
        yield
    finally:
        for name, original in before.items():
            setattr(module, name, original)


def _keep(*args: object, **kwargs: object) -> Generator[None]:
    """What torch runs a checkpointed function between."""
    yield


class _PlainFunction:
    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """Calls the function."""
        return function(*args)
