"""Captures a module as one graph: its training step, with forward, loss and backward together, or its answers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dyorc.errors import ProgramCaptureError
from dyorc.planner.program.batch import batch_dims_of
from dyorc.planner.program.example import loss_in
from dyorc.planner.program.exporting import ExportedCall, Keywords
from dyorc.planner.program.graph import TensorProgram
from dyorc.planner.program.layers import number_layers
from dyorc.planner.program.simplify import simplify


def capture(module: nn.Module, inputs: Sequence[Any], keywords: Keywords | None = None, *, name: str = "") -> TensorProgram:
    """Captures the training step of a module whose call returns its loss.

    Nothing is computed: the module's parameters may lie on the `meta` device. Nodes of layers that it repeats have their number.
    Parameters that get no gradient are frozen: the program reads them, and a warning names them. One that the module has by
    several names is one parameter, called by the first of them. What draws random numbers, such as dropout, becomes a function of
    the step, which is counted in the state `random.step`, and of the place of each element; the module draws the same inside of
    `CounterBased`.

    Args:
        module: Called with the inputs, it returns the loss, a scalar; or a dictionary or an object that holds it as `loss`; or a
            tuple whose first element it is.
        inputs: Examples; the shapes and types of their tensors become the program's.
        keywords: The same, by name.
        name: For people; the class of the module if empty.

    Raises:
        ProgramCaptureError: torch cannot export the module, its result is not a scalar, or it draws random numbers that are no
            function of a counter, such as `torch.poisson`.
    """
    call = ExportedCall.of(name, module, inputs, keywords)
    trained = {name: parameter for name, parameter in call.module.named_parameters() if parameter.requires_grad}
    _check_hooks(call, trained)
    _check_memory(call, trained)
    program = call.exported(lambda answer: (loss_in(answer),), is_trained=True).training_step()
    _check_memory(call, program.updates)
    return number_layers(simplify(program))


def capture_inference(
    module: nn.Module, inputs: Sequence[Any], keywords: Keywords | None = None, *, name: str = ""
) -> TensorProgram:
    """Captures what a module answers to a batch; computes nothing either.

    It is captured twice, the second time for one sample more: what differs is what grows with the batch.

    Args:
        module: Called with the inputs, it returns a tensor, or several in a tuple, a dictionary or any other pytree; it
            is taken as if `eval` had been called.
        inputs: Examples, each tensor with the samples along its first dimension.
        keywords: The same, by name.
        name: For people; the class of the module if empty.

    Raises:
        ProgramCaptureError: torch cannot export the module, it returns something else, draws random numbers, changes its buffers,
            or does other operations for other numbers of samples.
    """
    call = ExportedCall.of(name, module, inputs, keywords)
    num_samples = {tuple(tensor.shape[:1]) for tensor in call.example.tensors}
    if len(num_samples) != 1 or () in num_samples or (0,) in num_samples:
        raise ProgramCaptureError(
            f"{call.name}: every example input must have the samples along its first dimension; the shapes are "
            f"{[list(tensor.shape) for tensor in call.example.tensors]}"
        )
    program = call.answers()
    more = call.with_one_sample_more().answers()
    return replace(program, batch_dims=batch_dims_of(program, more, len(call.example.tensors[0])))


def recapture_inference(
    module: nn.Module, inputs: Sequence[Any], keywords: Keywords | None = None, *, name: str = ""
) -> TensorProgram:
    """Captures what a module answers once only, to compare its digest: what grows with the batch is not found out."""
    return ExportedCall.of(name, module, inputs, keywords).answers()


def _check_hooks(call: ExportedCall, parameters: Mapping[str, nn.Parameter]) -> None:
    for name, parameter in parameters.items():
        hooks = [getattr(parameter, key, None) for key in ("_backward_hooks", "_post_accumulate_grad_hooks")]
        if any(hooks):
            raise ProgramCaptureError(
                f"{call.name}: {name} has a hook on its gradient, which no graph holds; change it in the module's call"
            )


def _check_memory(call: ExportedCall, changed: Iterable[str]) -> None:
    if pair := overlapping_pair(call.module, call.example.tensors, changed):
        raise ProgramCaptureError(
            f"{call.name}: {pair[0]}, which training changes, lies in the same memory as {pair[1]}, and ranks hold them apart; "
            "make them one parameter, make one a copy, or compute it from the other"
        )


def overlapping_pair(module: nn.Module, inputs: Sequence[torch.Tensor], changed: Iterable[str]) -> tuple[str, str] | None:
    """Returns a tensor that a step changes and another that lies in the same memory, by name; None if no two do.

    One tensor with two names is one value, and no such pair. What lies on `meta` lies nowhere.

    Args:
        module: Its parameters, buffers, and the tensors that are attributes of it and of its parts.
        inputs: With which it is called.
        changed: The names of what the step changes.
    """
    tensors = dict[str, torch.Tensor]([*module.named_parameters(), *module.named_buffers()])
    for prefix, part in module.named_modules():
        attributes = {key: value for key, value in vars(part).items() if isinstance(value, torch.Tensor)}
        tensors |= {".".join(filter(None, (prefix, key))): value for key, value in attributes.items()}
    inputs_by_name = {f"input {number}": tensor.detach() for number, tensor in enumerate(inputs)}
    for name in changed:
        for other, tensor in {**tensors, **inputs_by_name}.items():
            if name in tensors and tensor is not tensors[name] and _meet(tensors[name], tensor):
                return name, other
    return None


def _meet(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    if tensor.is_meta or other.is_meta or tensor.device != other.device or not tensor.numel() or not other.numel():
        return False
    (first, end), (start, last) = _extent(tensor), _extent(other)
    return first < last and start < end


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """From the first byte to that after the last; what lies between may be of others."""
    reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()
