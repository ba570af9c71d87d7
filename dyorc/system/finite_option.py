"""A check for options of commands that take a `float`: Python reads `nan` and `inf` as such, and no limit stops `nan`."""

import math
from typing import TypeVar

import typer

T = TypeVar("T")


def finite(value: T) -> T:
    """Returns an option's value; for `callback` of `typer.Option`.

    Raises:
        typer.BadParameter: If it, or an item of its list, is infinite or not a number.
    """
    for item in value if isinstance(value, list | tuple) else (value,):  # pyright: ignore[reportUnknownVariableType]
        if isinstance(item, float) and not math.isfinite(item):
            raise typer.BadParameter(f"{item} is not a finite number")
    return value
