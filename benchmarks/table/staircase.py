"""The highest rate within the SLO of several systems, found in turns of a few seconds.

Each system climbs a staircase of rates: a step up when the SLO was met, a step down when it was not. Steps become smaller each
time the direction changes, so that after a few turns the rate moves about the highest one. If the machine becomes faster or
slower, all staircases follow, and since systems take turns, their rates of the same turn can be compared.

A bisection of one system after another does not work on such a machine: it takes a minute or more for each, and each decision is
for good, so one slow second can halve the result.

Source: the up-and-down method (Dixon and Mood: "A method for obtaining and analyzing sensitivity data", 1948), with steps that
become smaller at reversals (Kesten: "Accelerated stochastic approximation", 1958).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import geometric_mean
from typing import TypeAlias

from benchmarks.table.rounds import rotated
from loadgen.results import RunResult
from loadgen.sweep import is_met

Probe: TypeAlias = Callable[[str, int, float], RunResult | None]
"""Measures a system in a turn, at a rate in requests per second. None if it could not be measured; then it is left out from then
on."""
NUM_TURNS = 14
_NUM_KEPT = 6
"""The last turns, of which the result is the mean. Until then, steps have become small."""
_FIRST_STEP, _LEAST_STEP = 2.0, 1.09
_MIN_GOODPUT_RATIO = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where a staircase starts, and between which rates it stays, in requests per second."""

    start_rps: float
    min_rps: float
    max_rps: float


class Staircase:
    """The rates at which one system is tried.

    Attributes:
        rate_rps: The next one.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.rate_rps = bounds.start_rps
        self._step = _FIRST_STEP
        self._tried: list[tuple[float, bool, bool]] = []

    def tell(self, result: RunResult) -> None:
        """Takes a step up if the SLO was met at the present rate, and one down if it was not."""
        met = is_met(result, _MIN_GOODPUT_RATIO)
        if self._tried and met is not self._tried[-1][1]:
            self._step = max(_LEAST_STEP, sqrt(self._step))
        self._tried.append((self.rate_rps, met, bool(result.client_warning)))
        following = self.rate_rps * self._step if met else self.rate_rps / self._step
        self.rate_rps = min(self._bounds.max_rps, max(self._bounds.min_rps, following))

    @property
    def rates_rps(self) -> list[float]:
        """The rates of the last turns; empty if the SLO was met in none of them."""
        last = self._tried[-_NUM_KEPT:]
        return [rate_rps for rate_rps, _, _ in last] if any(met for _, met, _ in last) else []

    @property
    def highest_rps(self) -> float:
        """Their mean; 0 if there are none."""
        return geometric_mean(self.rates_rps) if self.rates_rps else 0.0

    @property
    def is_client_limited(self) -> bool:
        """Whether the load generator may have been too slow in half of the last turns or more that missed the SLO."""
        missed = [warned for _, met, warned in self._tried[-_NUM_KEPT:] if not met]
        return bool(missed) and 2 * sum(missed) >= len(missed)


def climbed(bounds: Mapping[str, Bounds], probe: Probe, num_turns: int = NUM_TURNS) -> dict[str, Staircase]:
    """Returns the staircases of all systems that could be measured.

    Args:
        bounds: Of each system.
    """
    staircases = {system: Staircase(each) for system, each in bounds.items()}
    for turn in range(num_turns):
        for system in rotated(list(staircases), turn):
            result = probe(system, turn, staircases[system].rate_rps)
            if result is None:
                del staircases[system]
            else:
                staircases[system].tell(result)
    return staircases
