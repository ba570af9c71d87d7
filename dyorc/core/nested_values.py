"""What is in values as JSON has them, at any depth: numbers, texts, lists and dicts."""

import math
from collections.abc import Iterator
from typing import Any


def leaves(value: Any, *, with_keys: bool = False) -> Iterator[Any]:
    """Yields what is in a value and is itself no dict, list, tuple or set, in no particular order.

    Args:
        with_keys: Whether the keys of dicts count, too.
    """
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            pending.extend(part.values())
            if with_keys:
                pending.extend(part.keys())
        elif isinstance(part, list | tuple | set | frozenset):
            pending.extend(part)
        else:
            yield part


def odd_numbers(value: Any) -> Iterator[float]:
    """Yields the numbers in a value that JSON does not have: NaN and infinity."""
    return (part for part in leaves(value) if isinstance(part, float) and not math.isfinite(part))
