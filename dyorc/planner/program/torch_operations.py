"""Torch's operations by name: the names of their arguments, and which of them work on planes.

A plane is the last dimensions of a tensor, for each sample and channel by itself.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch

from dyorc.planner.program.graph import Argument

_PLANES_NAMES = """
    max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices max_pool3d_with_indices_backward
    adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward
    replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_bicubic2d
    upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward upsample_bilinear2d_backward
    upsample_bicubic2d_backward
"""
PLANES = frozenset(_PLANES_NAMES.split())
WITH_POSITIONS = frozenset({"max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d"})
"""Operations that also return where in the plane each element comes from."""


def num_space_of(name: str) -> int:
    """Returns how many dimensions a plane has, which the operation's name says: 2 of `avg_pool2d`."""
    digit = re.search(r"(\d)d", name)
    assert digit, name
    return int(digit[1])


@cache
def operation(op: str) -> Any:
    """Returns torch's operation of that name.

    Raises:
        KeyError: torch has no operation of that name.
    """
    library, name, overload = op.split(".")
    packet = getattr(getattr(torch.ops, library), name, None)
    if packet is None or not hasattr(packet, overload):
        raise KeyError(op)
    return getattr(packet, overload)


def bind_arguments(op: str, arguments: Sequence[Argument], keywords: Sequence[tuple[str, Argument]]) -> dict[str, Argument]:
    """Gives each argument of an operation its name, as `inspect.Signature.bind` does.

    Args:
        op: ATen's name with its overload.
        arguments: As in a node, by position.
        keywords: The same, by name.

    Returns:
        Every argument by name, in the order of the operation's schema, with defaults where none is given.

    Raises:
        TypeError: There are more arguments than the operation has, or one that it does not have.
    """
    parameters = parameters_of(op)
    named = dict(zip(parameters, arguments, strict=False)) | dict(keywords)
    if len(arguments) > len(parameters) or not named.keys() <= parameters.keys():
        raise TypeError(
            f"{op} takes {', '.join(parameters)}; it is given {len(arguments)} arguments and {sorted(dict(keywords))}"
        )
    return {name: named.get(name, default) for name, default in parameters.items()}


@cache
def parameters_of(op: str) -> Mapping[str, Argument]:
    """Returns the names of an operation's arguments with their defaults, in order; None where there is no default.

    Raises:
        KeyError: torch has no operation of that name.
    """
    schema: Any = operation(op)._schema
    return {each.name: _default(each.default_value) for each in schema.arguments}


def _default(value: Any) -> Argument:
    if isinstance(value, list | tuple):
        return tuple(_default(part) for part in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value if isinstance(value, int | float | bool | str) else None
