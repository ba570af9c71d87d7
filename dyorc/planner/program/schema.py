"""What torch calls the arguments of its operations, so that one given by position and one given by name are the same."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from dyorc.planner.program.evaluate import operation
from dyorc.planner.program.graph import Argument


def bound(op: str, arguments: Sequence[Argument], keywords: Sequence[tuple[str, Argument]]) -> dict[str, Argument]:
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
    given = dict(zip(parameters, arguments, strict=False)) | dict(keywords)
    if len(arguments) > len(parameters) or not given.keys() <= parameters.keys():
        raise TypeError(
            f"{op} takes {', '.join(parameters)}; it is given {len(arguments)} arguments and {sorted(dict(keywords))}"
        )
    return {name: given.get(name, default) for name, default in parameters.items()}


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
