"""What requests of a workflow call next, learned from requests that have ended.

A request's *stage* is the set of programs that it has called. A stage knows the probability that a request there
goes on to call another program, and after how long. How often a program is called again, in loops and fans, is learned for the
workflow as a whole: of the requests that called it n times, how many called it once more. All of it is averaged with decay, so it
follows drift.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DECAY = 0.98
"""Weight that a request keeps when the next one of its kind is learned."""
_PRIOR_WEIGHT = 2.0
"""How many requests the workflow as a whole counts for within a stage."""
_MAX_REPEATS = 64
"""Most calls of one program by one request that are distinguished."""
_MAX_WEIGHT = 1e9


@dataclass(frozen=True, slots=True)
class Due:
    """Calls that requests in flight will make, spread evenly from now on.

    Attributes:
        number: Requests.
        mean: Calls of each, on average.
        square: The average of their square.
        lasts_s: Until when they come.
    """

    number: int
    mean: float
    square: float
    lasts_s: float


class _Next:
    """A program after a stage: how often it was called, and how long after, both in decayed sums."""

    __slots__ = ("delays_s", "times")

    def __init__(self, times: float = 0.0, delays_s: float = 0.0) -> None:
        self.times = times
        self.delays_s = delays_s


class VisitStage:
    """Requests that have called the same programs.

    Attributes:
        called: These programs.
        following: The stage after the first call of another program.
        num_here: Requests in flight that are here now.
        sum_entered_ns: When they came here, all added up.
    """

    __slots__ = ("_ahead", "_total", "_weight", "called", "following", "num_here", "sum_entered_ns")

    def __init__(self, called: frozenset[str]) -> None:
        self.called = called
        self.following: dict[str, VisitStage] = {}
        self.num_here = 0
        self.sum_entered_ns = 0
        self._weight = 1.0
        self._total = 0.0
        self._ahead: dict[str, _Next] = {}

    def learn(self, called: Mapping[str, int], entered_ns: int) -> None:
        """Takes in a request that was here, and when it first called which programs."""
        self._weight /= _DECAY
        self._total += self._weight
        for program, at_ns in called.items():
            if program not in self.called:
                ahead = self._ahead.get(program)
                if ahead is None:
                    ahead = self._ahead[program] = _Next()
                ahead.times += self._weight
                ahead.delays_s += self._weight * max(at_ns - entered_ns, 0) / 1e9
        if self._weight > _MAX_WEIGHT:
            self._rescale()

    def probability(self, program: str, prior: float = 0.0) -> float:
        """Returns the probability that a request here calls a program that it has not called."""
        ahead = self._ahead.get(program)
        times = ahead.times if ahead is not None else 0.0
        prior_weight = _PRIOR_WEIGHT * self._weight
        return (times + prior * prior_weight) / (self._total + prior_weight) if self._total or prior else 0.0

    def frequency(self, program: str) -> float:
        """Returns the fraction of the requests here that called a program."""
        ahead = self._ahead.get(program)
        return ahead.times / self._total if ahead is not None else 0.0

    def delay_s(self, program: str) -> float | None:
        """Returns how long after coming here a program is first called; None if that has not happened."""
        ahead = self._ahead.get(program)
        return ahead.delays_s / ahead.times if ahead is not None and ahead.times else None

    @property
    def programs(self) -> set[str]:
        """Programs that were called after this stage."""
        return set(self._ahead)

    def _rescale(self) -> None:
        self._ahead = {
            program: _Next(ahead.times / self._weight, ahead.delays_s / self._weight)
            for program, ahead in self._ahead.items()
            if ahead.times > 1e-4 * self._weight
        }
        self._total /= self._weight
        self._weight = 1.0

    def to_state(self) -> dict[str, Any]:
        """Returns what was learned."""
        self._rescale()
        ahead = {program: [ahead.times, ahead.delays_s] for program, ahead in self._ahead.items()}
        return {"called": sorted(self.called), "total": self._total, "ahead": ahead}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes in what was exported."""
        self._total = float(state["total"])
        self._ahead = {program: _Next(float(times), float(delays)) for program, (times, delays) in state["ahead"].items()}


class Repeats:
    """How often one program is called by a request of one workflow, once it is called at all.

    Attributes:
        here: Requests in flight by how often they have called it.
        gap_s: Usual time between its calls.
    """

    __slots__ = ("_reached", "_weight", "gap_s", "here")

    def __init__(self) -> None:
        self.here: dict[int, int] = {}
        self.gap_s = 0.0
        self._weight = 1.0
        self._reached: list[float] = []

    def add_call(self, made: int) -> None:
        """Counts a request that has called it once more; `made` includes this call."""
        if made > 1:
            self.remove_request(made - 1)
        self.here[made] = self.here.get(made, 0) + 1

    def remove_request(self, made: int) -> None:
        """Removes a request that had called it `made` times and is gone or has moved on."""
        left = self.here.get(made, 0) - 1
        if left > 0:
            self.here[made] = left
        else:
            self.here.pop(made, None)

    def learn(self, made: int, lasted_s: float) -> None:
        """Takes in a request that called it `made` times, from first to last within `lasted_s`."""
        self._weight /= _DECAY
        counted = min(made, _MAX_REPEATS)
        self._reached.extend([0.0] * (counted - len(self._reached)))
        for index in range(counted):
            self._reached[index] += self._weight
        if made > 1:
            gap_s = lasted_s / (made - 1)
            self.gap_s += (gap_s - self.gap_s) * (1 - _DECAY if self.gap_s else 1.0)
        if self._weight > _MAX_WEIGHT:
            self._rescale()

    def ahead_of(self, made: int) -> tuple[float, float]:
        """Returns how many calls follow after `made`, on average, and the average of their square."""
        reached = self._reached
        if made >= len(reached) or (made and not reached[made - 1]):
            return 0.0, 0.0
        base = reached[made - 1] if made else reached[0]
        mean = square = 0.0
        for extra, times in enumerate(reached[made:], 1):
            mean += times / base
            square += (2 * extra - 1) * times / base
        return mean, square

    def due(self) -> list[Due]:
        """Returns the further calls of all requests in flight that have called it."""
        dues: list[Due] = []
        for made, number in self.here.items():
            mean, square = self.ahead_of(made)
            if mean:
                dues.append(Due(number, mean, square, max(mean * self.gap_s, 1e-6)))
        return dues

    def _rescale(self) -> None:
        self._reached = [times / self._weight for times in self._reached if times > 1e-4 * self._weight]
        self._weight = 1.0

    def to_state(self) -> dict[str, Any]:
        """Returns what was learned."""
        self._rescale()
        return {"reached": list(self._reached), "gap_s": self.gap_s}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes in what was exported."""
        self._reached = [float(times) for times in state["reached"]]
        self.gap_s = float(state["gap_s"])
