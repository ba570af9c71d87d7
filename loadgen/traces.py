"""Draws traces: requests over an hour or a day whose rate, or whose branches, change. The same seed gives the same trace.

A kind is a course of rates over time; a Poisson process follows it. Every course is scaled to the mean rate asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dyorc.traffic.request_traces import TracedRequest

Course: TypeAlias = NDArray[np.float64]
"""Rates, one for each cell of `_CELL_S` seconds."""

_CELL_S = 0.25
_NUM_DAYS = 3
_STAY_LOW_S, _STAY_HIGH_S, _HIGH_RATIO = 60.0, 20.0, 8.0
_ON_S, _OFF_S, _JITTER = 60.0, 90.0, 0.5
_CROWD_RATIO, _CROWD_RISE_S, _CROWD_STAYS_S, _CROWD_FALLS_S = 15.0, 10.0, 60.0, 120.0
_DRIFT_SPREAD = 0.3


class TraceKind(StrEnum):
    """Kinds of traces by name."""

    DIURNAL = "diurnal"
    BURSTY = "bursty"
    ON_OFF = "on-off"
    DRIFT = "drift"
    FLASH = "flash"


@dataclass(frozen=True, kw_only=True)
class TracePlan:
    """What is drawn.

    Attributes:
        rate_rps: Requests per second on average.
        weights: Each workflow's share of the requests; these need not add up to 1.
    """

    kind: TraceKind
    duration_s: float = 3600.0
    rate_rps: float = 6.0
    seed: int = 0
    weights: Mapping[str, float] = field(default_factory=lambda: {"": 1.0})

    def __post_init__(self) -> None:
        if not self.duration_s >= 60 or not self.rate_rps > 0:
            raise ValueError(f"a trace of {self.duration_s} s at {self.rate_rps} requests per second, expected at least 60 s")
        if not self.weights or not all(weight > 0 for weight in self.weights.values()):
            raise ValueError(f"workflows have the shares {dict(self.weights)}, expected numbers above 0")


def draw_trace(plan: TracePlan) -> Sequence[TracedRequest]:
    """Returns the requests of a trace, in order."""
    rng = np.random.default_rng([plan.seed, list(TraceKind).index(plan.kind)])
    course = _COURSES[plan.kind](round(plan.duration_s / _CELL_S), rng)
    times_s = _arrivals(course * (plan.rate_rps / course.mean()), rng)
    names = list(plan.weights)
    shares = np.asarray(list(plan.weights.values()))
    workflows = rng.choice(len(names), len(times_s), p=shares / shares.sum())
    branches = rng.random(len(times_s))
    if plan.kind is TraceKind.DRIFT:
        # They cover three tenths of [0, 1) at a time, and move through all of it once.
        branches = (times_s / plan.duration_s + _DRIFT_SPREAD * branches) % 1.0
    columns = zip(times_s.tolist(), workflows.tolist(), branches.tolist(), strict=True)
    return [TracedRequest(round(at_s, 6), names[which], round(branch, 6) % 1.0) for at_s, which, branch in columns]


def _arrivals(course: Course, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns the times of a Poisson process: an even one, with its time stretched to the course."""
    expected = np.concatenate([[0.0], np.cumsum(course * _CELL_S)])
    num_arrivals = rng.poisson(expected[-1])
    even = np.sort(rng.uniform(0.0, expected[-1], num_arrivals))
    return np.interp(even, expected, np.arange(len(expected)) * _CELL_S)


def _diurnal(num_cells: int, rng: np.random.Generator) -> Course:
    """Three days in the time there is: quiet nights, a peak at noon and a lower one in the evening; no two days are equal."""
    day = np.linspace(0.0, _NUM_DAYS, num_cells, endpoint=False)
    noon, evening = np.exp(4.0 * (np.cos(2 * np.pi * (day - 0.5)) - 1)), np.exp(8.0 * (np.cos(2 * np.pi * (day - 0.85)) - 1))
    heights = rng.uniform(0.85, 1.15, _NUM_DAYS)[np.minimum(day.astype(int), _NUM_DAYS - 1)]
    return 0.06 + heights * (noon + 0.5 * evening)


def _bursty(num_cells: int, rng: np.random.Generator) -> Course:
    """A Markov-modulated process: it leaps between two rates and stays exponentially long."""
    course, at, is_high = np.ones(num_cells), 0, False
    while at < num_cells:
        stay = int(rng.exponential(_STAY_HIGH_S if is_high else _STAY_LOW_S) / _CELL_S) + 1
        course[at : at + stay] = _HIGH_RATIO if is_high else 1.0
        at, is_high = at + stay, not is_high
    return course


def _on_off(num_cells: int, rng: np.random.Generator) -> Course:
    """An even rate for a while, then none; neither takes equally long twice."""
    course, at, is_on = np.zeros(num_cells), 0, True
    while at < num_cells:
        stay = int((_ON_S if is_on else _OFF_S) * rng.uniform(1 - _JITTER, 1 + _JITTER) / _CELL_S)
        course[at : at + stay] = float(is_on)
        at, is_on = at + stay, not is_on
    return course


def _even(num_cells: int, rng: np.random.Generator) -> Course:
    """The same rate all the time: what changes is where requests go."""
    return np.ones(num_cells)


def _flash(num_cells: int, rng: np.random.Generator) -> Course:
    """An even rate, and once, at a time that nobody expects, fifteen times as many requests within ten seconds."""
    since_s = (np.arange(num_cells) * _CELL_S) - rng.uniform(0.35, 0.65) * num_cells * _CELL_S
    rising = np.clip(since_s / _CROWD_RISE_S, 0.0, 1.0)
    falling = np.exp(-np.clip(since_s - _CROWD_STAYS_S, 0.0, None) / _CROWD_FALLS_S)
    return np.asarray(1.0 + (_CROWD_RATIO - 1.0) * rising * falling, np.float64)


_COURSES: Mapping[TraceKind, Callable[[int, np.random.Generator], Course]] = {
    TraceKind.DIURNAL: _diurnal,
    TraceKind.BURSTY: _bursty,
    TraceKind.ON_OFF: _on_off,
    TraceKind.DRIFT: _even,
    TraceKind.FLASH: _flash,
}
