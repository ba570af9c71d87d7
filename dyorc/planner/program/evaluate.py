"""Computes one operation, or a whole program, with torch, on the tensors of a module. Plans compute their pieces the same way."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import torch
from torch import nn

import dyorc.planner.program.randomness.philox  # noqa: F401  # pyright: ignore[reportUnusedImport]  registers an operator of our own
from dyorc.planner.program.graph import (
    Argument,
    Dtype,
    Node,
    OutputShape,
    OutputStart,
    TensorProgram,
    ValueKind,
    ValueRef,
    inputs_of,
    locate,
)
from dyorc.planner.program.torch_operations import PLANES, WITH_POSITIONS, operation

Array = TypeVar("Array")
Operation: TypeAlias = Callable[
    [str, Sequence[Argument], Sequence[tuple[str, Argument]], Mapping[str, Array], tuple[int, ...]], tuple[Array, ...]
]
"""Computes one operation: its name, arguments, keywords, the tensors that they name, and the shape of the output."""


def compute(
    op: str,
    arguments: Sequence[Argument],
    keywords: Sequence[tuple[str, Argument]],
    tensors: Mapping[str, torch.Tensor],
    output_shape: tuple[int, ...],
) -> tuple[torch.Tensor, ...]:
    """Computes one operation.

    Args:
        op: ATen's name with its overload.
        arguments: As in a node; a `Ref` is looked up in `tensors`.
        keywords: The same, by name.
        tensors: Pieces or whole tensors.
        output_shape: The value of an `OutputShape` among the arguments.
    """
    return prepare_operation(op, arguments, keywords, output_shape)(tensors)


def prepare_operation(
    op: str, arguments: Sequence[Argument], keywords: Sequence[tuple[str, Argument]], output_shape: tuple[int, ...]
) -> Callable[[Mapping[str, torch.Tensor]], tuple[torch.Tensor, ...]]:
    """Returns what computes an operation on any tensors of one shape; what does not depend on the tensors is found out now.

    The arguments are those of `compute`.
    """

    def reads(argument: Argument) -> bool:
        return bool(inputs_of((argument,), ()))

    def fixed(argument: Argument) -> Any:
        return None if reads(argument) else _actual(argument, {}, output_shape)

    if op == "aten.view.default":  # a piece may not be contiguous where the whole is
        op = "aten.reshape.default"
    positional, named = [fixed(argument) for argument in arguments], {key: fixed(value) for key, value in keywords}
    direct = [(index, argument.name) for index, argument in enumerate(arguments) if isinstance(argument, ValueRef)]
    nested = [(index, part) for index, part in enumerate(arguments) if reads(part) and not isinstance(part, ValueRef)]
    named_refs = [(key, value) for key, value in keywords if reads(value)]
    read = inputs_of(tuple(arguments), tuple(keywords))
    function, needs_elements, reads_memory = operation(op), op in _NEEDS_ELEMENTS, op.startswith(_BY_MEMORY)

    def call(tensors: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        values = positional.copy()
        for index, name in direct:
            values[index] = tensors[name].contiguous() if reads_memory else tensors[name]
        for index, argument in nested:
            values[index] = _actual(argument, tensors, output_shape)
        if needs_elements and any(tensors[name].numel() == 0 for name in read):
            return _of_nothing(op, values, output_shape)
        if named_refs:
            result = function(*values, **named | {key: _actual(value, tensors, output_shape) for key, value in named_refs})
        else:
            result = function(*values, **named)
        return (result,) if isinstance(result, torch.Tensor) else tuple(result)

    return call


def _actual(argument: Argument, tensors: Mapping[str, torch.Tensor], output_shape: tuple[int, ...]) -> Any:
    # not a closure that calls itself: that is a cycle, and would hold the tensors until garbage is collected
    match argument:
        case ValueRef(name):
            return tensors[name]
        case OutputShape():
            return list(output_shape)
        case Dtype(name):
            return getattr(torch, name)
        case OutputStart():
            raise TypeError("expected arguments for a piece, as `locate` returns them, and found OutputStart()")
        case tuple():
            return [_actual(part, tensors, output_shape) for part in argument]
        case _:
            return argument


BY_STRIDES = "aten.as_strided"
"""What reads memory rather than elements: a piece, or what a rank has received, may lie there in another order."""
_BY_MEMORY = (BY_STRIDES, "aten._embedding_bag", "aten.adaptive_max_pool3d_backward")
"""The same, and what torch refuses, or computes wrongly, if its inputs do not lie row by row."""
_NEEDS_ELEMENTS = {f"aten.{name}.default" for name in ("convolution", "convolution_backward", *PLANES)}
"""What torch refuses to compute on pieces without elements, which shares of zero leave."""


def _of_nothing(op: str, arguments: Sequence[Any], output_shape: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    first: torch.Tensor = arguments[0]
    if op == "aten.convolution_backward.default":
        space = [dim for dim in range(first.dim()) if dim != 1]
        return torch.zeros_like(arguments[1]), torch.zeros_like(arguments[2]), first.sum(space)
    zeros = first.new_zeros(output_shape)
    return (zeros, zeros.to(torch.int64)) if op.split(".")[1] in WITH_POSITIONS else (zeros,)


def compute_node(node: Node, tensors: Mapping[str, torch.Tensor], output_shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """Computes a node, whole, and returns its outputs by name."""
    results = compute(node.op, locate(node.arguments, (0,) * len(output_shape)), node.keywords, tensors, output_shape)
    return {name: result for name, result in zip(node.outputs, results, strict=True) if name}


def evaluate(program: TensorProgram, sources: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Runs the program on one device.

    Args:
        program: What to run.
        sources: A tensor for each of the program's sources.

    Returns:
        The results: the loss, the gradients and the updates, by the names of their values.
    """
    return evaluate_with(program, sources, compute)


def evaluate_with(program: TensorProgram, sources: Mapping[str, Array], apply: Operation[Array]) -> dict[str, Array]:
    """Runs the program over any kind of numbers, and keeps no value longer than it is read.

    Args:
        program: What to run.
        sources: An array for each of the program's sources.
        apply: Computes one operation, as `compute` does.
    """
    tensors = dict(sources)
    last_use = {name: index for index, node in enumerate(program.nodes) for name in node.inputs}
    kept = set(program.results)
    for index, node in enumerate(program.nodes):
        first = next(output for output in node.outputs if output)
        shape = program.values[first].shape
        results = apply(node.op, locate(node.arguments, (0,) * len(shape)), node.keywords, tensors, shape)
        tensors |= {name: result for name, result in zip(node.outputs, results, strict=True) if name}
        for name in dict.fromkeys(node.inputs):
            if last_use[name] == index and name not in kept and name not in sources:
                del tensors[name]
    return {name: tensors[name] for name in program.results}


def sources_of(program: TensorProgram, module: nn.Module, inputs: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the tensor of each source: the module's parameters and buffers, constants, inputs, and zeros for states.

    Args:
        program: Says which sources there are.
        module: It was captured from this.
        inputs: The tensors of one microbatch, in order; all microbatches of a step get the same.
    """
    named = {name: tensor.detach() for name, tensor in [*module.named_parameters(), *module.named_buffers()]}
    sources = {name: tensor for name, tensor in named.items() if name in program.values} | dict(program.constants)
    states = [value for value in program.values.values() if value.kind is ValueKind.STATE]
    sources |= {value.name: torch.zeros(value.shape, dtype=getattr(torch, value.dtype)) for value in states}
    num_parts = len(program.inputs) // max(len(inputs), 1)
    return sources | dict(zip(program.inputs, tuple(inputs) * num_parts, strict=True))


def state_of(module: nn.Module, sources: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns what `load_state_dict` of a module takes: tied parameters and buffers have each of their names again.

    Args:
        module: The plan's sources are of this; it may lie on `meta`.
        sources: As `train` and checkpoints return them, by the first name of each; what they lack stays as it is in
            the module, such as buffers that no operation reads.
    """
    state = module.state_dict(keep_vars=True)
    first: dict[int, str] = {}
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        first.setdefault(id(tensor), name)
    return {name: sources.get(first.get(id(tensor), name), tensor) for name, tensor in state.items()}
