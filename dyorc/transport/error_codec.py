"""Errors as plain values, for another process."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from dyorc.errors import DyOrcError, InternalError

PackedError: TypeAlias = tuple[str, str, dict[str, Any]]
"""An error's code, its text, and its plain attributes."""


def _classes(root: type[DyOrcError] = DyOrcError) -> Iterator[type[DyOrcError]]:
    yield root
    for child in root.__subclasses__():
        yield from _classes(child)


_BY_CODE = {error_class.code: error_class for error_class in _classes()}


def pack_error(error: Exception) -> PackedError:
    """Returns an error's code, its text, and its plain attributes."""
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
