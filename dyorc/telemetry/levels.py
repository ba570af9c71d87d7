"""The current activity of one process of a server, in numbers: the source of the live page and its history."""

from collections.abc import Callable, Iterable
from functools import reduce
from operator import add
from typing import Any

import msgspec


class GuessLevels(msgspec.Struct, frozen=True, kw_only=True):
    """Guesses so far: see `dyorc.engine.engine_statistics.GuessCounts`."""

    num_made: int = 0
    num_committed: int = 0
    num_squashed: int = 0
    useful_s: float = 0.0
    wasted_s: float = 0.0

    def plus(self, other: "GuessLevels") -> "GuessLevels":
        """Returns the levels of two processes together."""
        return GuessLevels(
            num_made=self.num_made + other.num_made,
            num_committed=self.num_committed + other.num_committed,
            num_squashed=self.num_squashed + other.num_squashed,
            useful_s=self.useful_s + other.useful_s,
            wasted_s=self.wasted_s + other.wasted_s,
        )


class ProgramLevels(msgspec.Struct, frozen=True, kw_only=True):
    """A program.

    Attributes:
        num_queued: Calls that are certain and wait.
        num_running: Calls in batches that have been sent, guesses included.
        num_warm: Replicas that take batches.
        num_parked: Replicas whose processes wait without weights.
        num_starting: Replicas on their way: their process starts, or they load.
        num_wanted: Replicas that should take batches.
        num_parked_wanted: Replicas that should be parked.
        forecast_per_s: Calls per second that are expected soon; None without a forecast, since the number of replicas is fixed.
        reason: Why so many replicas are wanted.
        fit: How long a batch of n calls takes, as measured: (b, a) of b + a*n seconds; None before the first batch.
        num_calls: Calls that have succeeded or failed so far.
        reasons: Batches that have run so far, by why they were formed.
        guesses: What guessing has brought and cost so far.
    """

    num_queued: int = 0
    num_running: int = 0
    num_warm: int = 0
    num_parked: int = 0
    num_starting: int = 0
    num_wanted: int = 0
    num_parked_wanted: int = 0
    forecast_per_s: float | None = None
    reason: str = ""
    fit: tuple[float, float] | None = None
    num_calls: int = 0
    reasons: dict[str, int] = {}
    guesses: GuessLevels = GuessLevels()

    def totals(self) -> "ProgramLevels":
        """Returns the counts so far, without current levels."""
        return ProgramLevels(num_calls=self.num_calls, reasons=self.reasons, guesses=self.guesses)

    def plus(self, other: "ProgramLevels") -> "ProgramLevels":
        """Returns the levels of two processes together. The fit comes from the process that runs more calls now."""
        busier = self if self.num_running >= other.num_running else other
        return ProgramLevels(
            num_queued=self.num_queued + other.num_queued,
            num_running=self.num_running + other.num_running,
            num_warm=self.num_warm + other.num_warm,
            num_parked=self.num_parked + other.num_parked,
            num_starting=self.num_starting + other.num_starting,
            num_wanted=self.num_wanted + other.num_wanted,
            num_parked_wanted=self.num_parked_wanted + other.num_parked_wanted,
            forecast_per_s=combine(self.forecast_per_s, other.forecast_per_s, add),
            reason=self.reason or other.reason,
            fit=busier.fit or self.fit or other.fit,
            num_calls=self.num_calls + other.num_calls,
            reasons=_add_counts(self.reasons, other.reasons),
            guesses=self.guesses.plus(other.guesses),
        )


class WorkflowLevels(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow's requests.

    Attributes:
        in_flight: How many have not been answered.
        num_ended: How many have succeeded or failed so far.
        num_failed: How many have failed so far.
        latency: How many have succeeded so far, by duration (`dyorc.engine.estimators.LATENCY_BOUNDS_NS`); empty if
            none has.
    """

    in_flight: int = 0
    num_ended: int = 0
    num_failed: int = 0
    latency: list[int] = []

    def totals(self) -> "WorkflowLevels":
        """Returns the counts so far, without current levels."""
        return WorkflowLevels(num_ended=self.num_ended, num_failed=self.num_failed, latency=self.latency)

    def plus(self, other: "WorkflowLevels") -> "WorkflowLevels":
        """Returns the levels of two processes together."""
        return WorkflowLevels(
            in_flight=self.in_flight + other.in_flight,
            num_ended=self.num_ended + other.num_ended,
            num_failed=self.num_failed + other.num_failed,
            latency=sums(self.latency, other.latency),
        )


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """All programs and workflows by name, and the link to the replicas."""

    programs: dict[str, ProgramLevels] = {}
    workflows: dict[str, WorkflowLevels] = {}
    link: dict[str, int] = {}

    def totals(self) -> "Levels":
        """Returns the counts so far, without current levels."""
        return Levels(
            programs={name: levels.totals() for name, levels in self.programs.items()},
            workflows={name: levels.totals() for name, levels in self.workflows.items()},
        )

    def plus(self, other: "Levels") -> "Levels":
        """Returns the levels of two processes together."""
        return Levels(
            programs=_combine_levels(self.programs, other.programs),
            workflows=_combine_levels(self.workflows, other.workflows),
            link=_add_counts(self.link, other.link),
        )


def sum_of(levels: Iterable[Levels]) -> Levels:
    """Returns the levels of several processes together."""
    return reduce(Levels.plus, levels, Levels())


def sums(counts: list[int], other: list[int]) -> list[int]:
    """Returns the sums of counts of the same buckets; an empty list means zeros."""
    return [a + b for a, b in zip(counts, other, strict=True)] if counts and other else counts or other


def _add_counts(counts: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: counts.get(name, 0) + other.get(name, 0) for name in counts | other}


def _combine_levels(levels: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    merged = dict(levels)
    for name, values in other.items():
        merged[name] = merged[name].plus(values) if name in merged else values
    return merged


def combine(value: float | None, other: float | None, join: Callable[[float, float], float]) -> float | None:
    """Returns two values joined, or the one that is not None."""
    return value if other is None else other if value is None else join(value, other)
