"""Keeps the function of a decision as it is when it is asked.

A predicate like ``lambda score: score > limits[turn]`` reads variables of the workflow. The decision is taken when its value is
there; until then the workflow may go on under a guess, and set these variables to what comes next.
"""

from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any


def freeze(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a function that does what this one would do now, whatever becomes of the variables that it reads.

    Variables keep their values; lists, dicts and sets are copied, and so is what functions among the values read. Of other
    objects, only which one it is stays.

    Cost: none for a function that reads no variables of others.
    """
    if type(function) is not FunctionType or not function.__closure__:
        return function
    return _freeze(function, {})


def _freeze(function: FunctionType, copies: dict[int, FunctionType]) -> FunctionType:
    known = copies.get(id(function))
    if known is not None:
        return known
    closure = function.__closure__ or ()
    cells = tuple([CellType() for _ in closure])
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    copies[id(function)] = copy
    for old, new in zip(closure, cells, strict=True):
        try:
            value = old.cell_contents
        except ValueError:  # the variable has no value yet
            continue
        kind = type(value)
        if kind is FunctionType and value.__closure__:
            value = _freeze(value, copies)
        elif kind is list or kind is dict or kind is set:
            value = value.copy()
        new.cell_contents = value
    return copy
