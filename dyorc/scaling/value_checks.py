"""Checks of option values: each says what is expected, and whether a value fits. A bool is no number."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

Check: TypeAlias = tuple[str, Callable[[Any], bool]]
"""What is expected, and whether a value fits."""


def is_number(value: Any) -> bool:
    """Returns whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_count(value: Any) -> bool:
    """Returns whether a value is a whole number of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


BOOL: Check = ("True or False", lambda value: isinstance(value, bool))
COUNT: Check = ("a whole number of at least 0", is_count)
POSITIVE_COUNT: Check = ("a whole number of at least 1", lambda value: is_count(value) and value > 0)
OPTIONAL_POSITIVE_COUNT: Check = (
    "a whole number of at least 1, or None",
    lambda value: value is None or (is_count(value) and value > 0),
)
OPTIONAL_COUNT: Check = ("a whole number of at least 0, or None", lambda value: value is None or is_count(value))
POSITIVE: Check = ("a finite number above 0 (no bool)", lambda value: is_number(value) and value > 0)
OPTIONAL_POSITIVE: Check = (
    "a finite number above 0 (no bool), or None",
    lambda value: value is None or (is_number(value) and value > 0),
)
POSITIVE_SECONDS: Check = ("more than 0 seconds", lambda value: is_number(value) and value > 0)
SECONDS: Check = ("seconds, at least 0", lambda value: is_number(value) and value >= 0)
OPTIONAL_SECONDS: Check = ("seconds, at least 0, or None", lambda value: value is None or (is_number(value) and value >= 0))


def one_of(*values: str) -> Check:
    """Returns the check for one of several texts."""
    return f"one of {', '.join(map(repr, values))}", lambda value: isinstance(value, str) and value in values
