"""Limits for quantiles of a measurement's times, as a user writes them: ``first_part_p99<200ms``."""

import re
from dataclasses import dataclass

from loadgen.results import Quantiles, RunResult

_FORM = re.compile(r"(?P<time>[a-z_]+)_(?P<quantile>p50|p90|p99|p999|max|mean)\s*<\s*(?P<limit>\d+(\.\d+)?)\s*(?P<unit>ms|s)")
_TIMES = ("latency", "first_part", "between_parts")


@dataclass(frozen=True, slots=True)
class Objective:
    """A limit for one quantile.

    Attributes:
        time: ``latency``, ``first_part`` or ``between_parts``.
        quantile: A field of `Quantiles`, e.g. ``p99``.
        limit_ms: Larger values miss the objective.
    """

    time: str
    quantile: str
    limit_ms: float

    @classmethod
    def parse(cls, text: str) -> "Objective":
        """Reads an objective.

        Raises:
            ValueError: If it is malformed, or names no known time.
        """
        found = _FORM.fullmatch(text.strip())
        if found is None or found["time"] not in _TIMES:
            raise ValueError(
                f"the objective is {text!r}, expected TIME_QUANTILE<LIMIT such as first_part_p99<200ms, with a time of "
                f"{', '.join(_TIMES)} and a quantile of p50, p90, p99, p999, mean, max"
            )
        return cls(found["time"], found["quantile"], float(found["limit"]) * (1e3 if found["unit"] == "s" else 1.0))

    @property
    def is_about_parts(self) -> bool:
        """Whether only streamed answers have this time."""
        return self.time != "latency"

    def value_ms(self, result: RunResult) -> float | None:
        """Returns the quantile in a measurement; None if it has none, e.g. because no answer had two parts."""
        times: Quantiles | None = result.latency_ms
        if self.is_about_parts:
            parts = result.parts
            times = None if parts is None else parts.first_part_ms if self.time == "first_part" else parts.between_parts_ms
        return None if times is None else float(getattr(times, self.quantile))

    def is_met(self, result: RunResult) -> bool:
        """Whether the quantile is within the limit, or does not exist."""
        value_ms = self.value_ms(result)
        return value_ms is None or value_ms < self.limit_ms

    def __str__(self) -> str:
        return f"{self.time}_{self.quantile}<{self.limit_ms:g}ms"
