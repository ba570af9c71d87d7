"""Errors of the tree in `dyorc.errors`, as plain values."""

from collections.abc import Iterator, Mapping
from typing import Any

from dyorc.errors import DyOrcError, InternalError


def _classes(root: type[DyOrcError] = DyOrcError) -> Iterator[type[DyOrcError]]:
    yield root
    for child in root.__subclasses__():
        yield from _classes(child)


_BY_CODE = {one.code: one for one in _classes()}


def pack_error(error: Exception) -> tuple[str, str, dict[str, Any]]:
    """Returns an error's code, its text, and its attributes as far as they are plain."""
    code = error.code if isinstance(error, DyOrcError) else InternalError.code
    facts = {name: value for name, value in vars(error).items() if value is None or isinstance(value, str | int | float)}
    return code, str(error), facts


def unpack_error(code: str, text: str, facts: Mapping[str, Any]) -> DyOrcError:
    """Returns the error that was packed."""
    kind = _BY_CODE.get(code, InternalError)
    error = kind.__new__(kind)
    error.args = (text,)
    vars(error).update(facts)
    return error
