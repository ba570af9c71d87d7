"""The states of a simulated replica, how long the ways between them take, and how long replicas were in each."""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto

from dyorc.errors import InvalidInputError
from dyorc.scaling.model import LeadTimes


class State(Enum):
    """Where a replica that is not cold stands. `STARTING` ones will be warm, `STARTING_PARKED` ones will be parked."""

    STARTING = auto()
    WARMING = auto()
    WARM = auto()
    STARTING_PARKED = auto()
    PARKED = auto()


HOLDS_DEVICE = frozenset({State.STARTING, State.WARMING, State.WARM})
"""What counts as warm in replica-seconds: everything that has its processors and devices, or waits for nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimes:
    """How long a replica takes from one state to another.

    The defaults are what a second replica of a small CPU program takes on two cores with Ray Serve; nearly all of it is imports.
    """

    cold_to_warm_s: float = 3.0
    cold_to_parked_s: float = 2.5
    parked_to_warm_s: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.parked_to_warm_s <= self.cold_to_warm_s or not 0 < self.cold_to_parked_s <= self.cold_to_warm_s:
            raise InvalidInputError(
                f"a replica takes {self.cold_to_warm_s} s to be warm, {self.cold_to_parked_s} s to be parked and"
                f" {self.parked_to_warm_s} s from parked to warm; expected times above 0, the first at least the others"
            )

    @property
    def lead(self) -> LeadTimes:
        """The same, as the policies see it."""
        return LeadTimes(from_parked_s=self.parked_to_warm_s, from_cold_s=self.cold_to_warm_s)


class Timeline:
    """How many replicas were in which state, over time.

    Args:
        from_ns: Seconds before this are not counted.
        to_ns: Nor seconds after this.
    """

    def __init__(self, from_ns: int, to_ns: int) -> None:
        self.now = Counter[tuple[str, State]]()
        self.spent_ns = Counter[tuple[str, State]]()
        self._from_ns, self._to_ns = from_ns, to_ns
        self._last_ns = from_ns
        self._times_ns: list[int] = []
        self._totals: list[tuple[int, int]] = []

    def moved(self, program: str, before: State | None, after: State | None, now_ns: int) -> None:
        """Notes that a replica goes from one state to another; None is cold."""
        self.advance(now_ns)
        if before is not None:
            self.now[program, before] -= 1
        if after is not None:
            self.now[program, after] += 1
        num_warm = sum(number for (_, state), number in self.now.items() if state in HOLDS_DEVICE)
        self._times_ns.append(now_ns)
        self._totals.append((num_warm, self.now.total() - num_warm))

    def advance(self, now_ns: int) -> None:
        """Counts the time up to now."""
        until_ns = min(now_ns, self._to_ns)
        if until_ns > self._last_ns:
            for key, number in self.now.items():
                self.spent_ns[key] += number * (until_ns - self._last_ns)
            self._last_ns = until_ns

    def seconds(self, *, warm: bool) -> float:
        """Returns how many seconds all replicas were warm or on the way there; or parked, or on the way there."""
        return sum(spent for (_, state), spent in self.spent_ns.items() if (state in HOLDS_DEVICE) is warm) / 1e9

    def totals_at(self, at_ns: int) -> tuple[int, int]:
        """Returns how many replicas were warm and how many parked, over all programs, each with those on the way there."""
        position = bisect_right(self._times_ns, at_ns)
        return self._totals[position - 1] if position else (0, 0)
