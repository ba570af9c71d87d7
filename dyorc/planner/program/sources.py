"""The tensors that a program reads, of the module that it was captured from."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from dyorc.planner.program.graph import TensorProgram, ValueKind


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
