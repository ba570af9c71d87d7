"""Runs a module, and the program captured from it, in float64: there rounding hides no wrong operation."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from dyorc.planner.program.flat_module import attributes_of
from dyorc.planner.program.graph import Argument, Dtype, Node, TensorProgram

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_NARROW_NAMES = {"float32", "float16", "bfloat16"}


class InFloat64(TorchDispatchMode):
    """Has operations compute in float64 that name a narrower floating type, or make new tensors of one."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for each operation."""
        result = func(*tree_map(_wide, args), **tree_map(_wide, dict(kwargs or {})))
        makes_new = "lift_fresh" in str(func) or not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((args, kwargs)))
        return widen(result) if makes_new and isinstance(result, torch.Tensor) else result


def _wide(argument: Any) -> Any:
    return torch.float64 if isinstance(argument, torch.dtype) and argument in _NARROW else argument


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor in float64 if its type is a floating one."""
    return tensor.double() if tensor.is_floating_point() else tensor


def module_in_float64(module: nn.Module) -> nn.Module:
    """Returns a copy of a module whose parameters, buffers and other tensors are in float64."""
    known: dict[int, Any] = {id(value): widen(value.detach()).clone() for value in attributes_of(module)}
    return deepcopy(module, known).double()


def program_in_float64(program: TensorProgram) -> TensorProgram:
    """Returns a program that computes in float64 what another computes in narrower types."""
    values = {
        name: replace(value, dtype="float64") if value.dtype in _NARROW_NAMES else value for name, value in program.values.items()
    }
    return replace(program, values=values, nodes=tuple(map(_node_in_float64, program.nodes)))


def _node_in_float64(node: Node) -> Node:
    keywords = tuple((key, _argument_in_float64(value)) for key, value in node.keywords)
    return replace(node, arguments=tuple(map(_argument_in_float64, node.arguments)), keywords=keywords)


def _argument_in_float64(argument: Argument) -> Argument:
    match argument:
        case Dtype(name) if name in _NARROW_NAMES:
            return Dtype("float64")
        case tuple():
            return tuple(map(_argument_in_float64, argument))
        case _:
            return argument
