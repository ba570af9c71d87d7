"""The world outside of the servers: what effects have done. It is no part of the served code: versions have copies of that."""

from collections.abc import Callable

EFFECTS: list[int] = []
"""What `served.write_down` was given, in order."""
MOMENTS: list[Callable[[], None]] = []
"""Called when an effect happens."""


def happen(values: list[int]) -> None:
    """Has effects."""
    EFFECTS.extend(values)
    for call in MOMENTS:
        call()
