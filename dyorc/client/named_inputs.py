"""Inputs as callers give them."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from dyorc.errors import InvalidInputError

Inputs: TypeAlias = Mapping[str, Any]
"""Inputs and parameters by name."""


def merge_inputs(inputs: Inputs | None, named: Inputs) -> Inputs:
    """Merges inputs that were given in both ways.

    Raises:
        InvalidInputError: If one was given twice.
        TypeError: If one is called `timeout`: the protocol has that, in microseconds, and people who write it mean seconds.
    """
    if "timeout" in named:
        raise TypeError("timeout would be the protocol's parameter, in microseconds; say timeout_s=..., in seconds")
    if inputs is None:
        return named
    if twice := sorted(inputs.keys() & named.keys()):
        raise InvalidInputError(f"input {twice[0]!r} was given twice")
    return {**inputs, **named}
