"""Scales, which place values in a picture: linear, logarithmic, and by nines."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_MAX_NUM_STEPS = 6
_MAX_NUM_TICKS = 10


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to positions.

    Attributes:
        low, high: The values at the two ends; values beyond are put at the end.
        ticks: The values to label.
        form: The function that spreads values evenly, e.g. a logarithm.
        label: Returns a tick's text.
    """

    low: float
    high: float
    ticks: Sequence[float]
    form: Callable[[float], float]
    label: Callable[[float], str]

    def at(self, value: float) -> float:
        """Returns a value's position, from 0 (at `low`) to 1 (at `high`)."""
        inside = min(max(value, self.low), self.high)
        return (self.form(inside) - self.form(self.low)) / (self.form(self.high) - self.form(self.low))


def linear(high: float, *, label: Callable[[float], str] | None = None) -> Scale:
    """Returns a scale from 0 to a round number that is not below `high`."""
    high = high if high > 0 and math.isfinite(high) else 1.0
    power = 10.0 ** math.floor(math.log10(high))
    step = next(factor * power for factor in (0.1, 0.2, 0.5, 1, 2, 5) if high / (factor * power) <= _MAX_NUM_STEPS)
    num_steps = math.ceil(high / step - 1e-9)
    return Scale(0.0, num_steps * step, [at * step for at in range(num_steps + 1)], float, label or short)


def logarithmic(low: float, high: float, *, label: Callable[[float], str] | None = None) -> Scale:
    """Returns a logarithmic scale between two numbers above 0, with round ends. Ticks are at 1, 2 and 5 times the powers of ten,
    or only at these powers."""
    low = max(low, 1e-9)
    high = max(high, low * 1.01)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1,)):
        marks = [factor * 10.0**power for power in powers for factor in factors]
        below = [mark for mark in marks if mark <= low * 1.0001]
        above = [mark for mark in marks if mark >= high * 0.9999]
        first, last = below[-1], above[0]
        ticks = [mark for mark in marks if first <= mark <= last]
        if len(ticks) <= _MAX_NUM_TICKS:
            break
    return Scale(first, last, ticks, math.log10, label or short)


def nines(num_samples: int) -> Scale:
    """Returns a scale of shares from 0 to 1 on which each nine takes as much room, as far as `num_samples` can tell."""
    num_nines = min(max(math.ceil(math.log10(max(num_samples, 10)) - 1e-9), 2), 6)
    ticks = [0.0, 0.5, *(1 - 10.0**-nine for nine in range(1, num_nines + 1))]
    high = ticks[-1]
    return Scale(0.0, high, ticks, lambda share: -math.log10(1 - share), lambda share: f"{round(100 * share, 8):g} %")


def short(value: float) -> str:
    """Returns a number as people write it, with up to three significant digits: 0.25, 12.5, 1,200."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
