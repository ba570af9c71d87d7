"""A module as AOTAutograd wants it: from tensors to tensors, with each parameter once, and nothing that it changes in place.

AOTAutograd refuses parameters that have several names, and calls what a step changes by the result that is its new value, so that
two that become equal are one to it. Here each parameter and buffer is there once, by the first of its names, and the buffers'
new values are returned like other results.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

from dyorc.planner.program.example import Example
from dyorc.planner.program.randomness import CounterBased, WithoutRandomness
from dyorc.planner.program.randomness.philox import STEP

Pick = Callable[[Any], tuple[torch.Tensor, ...]]
"""Takes the tensors that matter out of what a module returns."""
Modes = Callable[[Sequence[torch.Tensor], torch.Tensor], AbstractContextManager[CounterBased | WithoutRandomness]]
"""In what a module is to run, given its inputs, and the step that its random numbers are of."""


class FlatModule(nn.Module):
    """Calls a module with its parameters, buffers and inputs as a flat list of tensors.

    Args:
        module: Is called; not registered as a part, so that its parameters are not found twice.
        example: Says how its arguments are made of the inputs.
        pick: Takes what is returned out of what the module returns.
        modes: In what the module runs.

    Attributes:
        parameter_names: Of the parameters, each once, in the order in which this module has them.
        buffer_names: The same of the buffers; the last is the count of steps, which is the module's own only if it draws.
    """

    def __init__(self, module: nn.Module, example: Example, pick: Pick, modes: Modes) -> None:
        super().__init__()
        self._outer = [_WithBuffers(module, modes)]
        self._example = example
        self._pick = pick
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        if STEP in parameters or STEP in buffers:
            raise TypeError(f"the module calls a tensor {STEP}, as programs call their count of steps: call it something else")
        buffers[STEP] = self._outer[0].step
        self.parameter_names, self.buffer_names = tuple(parameters), tuple(buffers)
        for index, parameter in enumerate(parameters.values()):
            self.register_parameter(f"parameter{index}", parameter)
        for index, buffer in enumerate(buffers.values()):
            self.register_buffer(f"buffer{index}", buffer)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns what is picked, and each buffer after the call."""
        tensors: dict[str, torch.Tensor] = {}
        for index, name in enumerate(self.parameter_names):
            parameter = getattr(self, f"parameter{index}")
            tensors[f"module.{name}"] = parameter.view_as(parameter)  # so that equal gradients are results of their own
        for index, name in enumerate(self.buffer_names):
            place = "step" if name == STEP else f"module.{name}"
            tensors[place] = getattr(self, f"buffer{index}").clone()  # which the module may change
        args, kwargs = self._example.arguments(inputs)
        answer, buffers = functional_call(self._outer[0], tensors, args, kwargs, tie_weights=True)
        if missing := next((name for name in self.buffer_names if buffers.get(name) is None), None):
            raise TypeError(f"the module removes its buffer {missing} when it is called: a plan repeats one step")
        return (*self._pick(answer), *(buffers[name].detach() for name in self.buffer_names))


class _WithBuffers(nn.Module):
    """Returns a module's buffers after a call, too, even if the call has replaced them, and the next step."""

    step: torch.Tensor

    def __init__(self, module: nn.Module, modes: Modes) -> None:
        super().__init__()
        self.module = module
        self._modes = modes
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, Mapping[str, torch.Tensor]]:
        with self._modes(tree_leaves((args, kwargs)), self.step) as draws:
            answer = self.module(*args, **kwargs)
        after = self.step + 1 if draws.num_draws else self.step
        return answer, dict(self.module.named_buffers(remove_duplicate=False)) | {STEP: after}


def strip_elements(module: nn.Module, fake: Callable[[torch.Tensor], torch.Tensor], frozen: Sequence[str] = ()) -> nn.Module:
    """Returns a copy of a module whose parameters and buffers have no elements; other tensors that it holds stay as they are.

    Args:
        module: Stays as it was.
        fake: Makes a tensor of the same shape and type without elements.
        frozen: Parameters that get no gradients.
    """
    known: dict[int, Any] = {id(value): value for value in attributes_of(module)}
    for parameter in module.parameters():
        known[id(parameter)] = nn.Parameter(fake(parameter), requires_grad=parameter.requires_grad)
    known |= {id(buffer): fake(buffer) for buffer in module.buffers()}
    copy = eager(deepcopy(module, known))
    for name in frozen:
        copy.get_parameter(name).requires_grad_(False)
    return copy


def attributes_of(module: nn.Module) -> list[torch.Tensor]:
    """Returns the tensors that are attributes of a module and its parts, also in lists and dictionaries."""
    leaves = [leaf for part in module.modules() for leaf in tree_leaves([*vars(part).values()])]
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and not isinstance(leaf, nn.Parameter)]


def copy_module(module: nn.Module) -> nn.Module:
    """Returns a copy of a module, also of one with attributes that were computed, which `deepcopy` alone refuses."""
    known: dict[int, Any] = {id(value): value.detach().clone() for value in attributes_of(module) if not value.is_leaf}
    return deepcopy(module, known)


def eager(module: nn.Module) -> nn.Module:
    """Returns a module without what `torch.compile` put around it and its parts; the same parameters. Changes its parts."""
    original = getattr(module, "_orig_mod", module)
    for part in original.modules():
        part._compiled_call_impl = None  # pyright: ignore[reportPrivateUsage]  # of `module.compile()`
        for name, child in part.named_children():
            if hasattr(child, "_orig_mod"):
                setattr(part, name, child._orig_mod)
    return original
