"""A clock that stands still until the test moves it."""

from dataclasses import dataclass


@dataclass
class ManualClock:
    """Returns `now_s` when called."""

    now_s: float = 100.0

    def __call__(self) -> float:
        """Returns the time."""
        return self.now_s
