"""What one process of a server is doing now, in numbers: what the live page shows, and what its history is made of."""

from collections.abc import Iterable
from functools import reduce
from typing import Any

import msgspec


class ProgramLevels(msgspec.Struct, kw_only=True):
    """A program.

    Attributes:
        num_queued: Calls that are certain and wait.
        num_running: Calls in batches that have been sent, guesses included.
        num_warm: Replicas that take batches.
        num_parked: Replicas whose processes wait without weights.
        num_starting: Replicas on their way: their process starts, or they load.
        num_wanted: Replicas that should take batches.
        num_parked_wanted: Replicas that should be parked.
        forecast_per_s: Calls per second that are expected soon; None if nobody forecasts, since the number of replicas is fixed.
        reason: Why so many replicas are wanted.
        fit: How long a batch of n calls takes, as measured: (b, a) of b + a*n seconds; None before the first batch.
        num_calls: Calls that have succeeded or failed so far.
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

    def plus(self, other: "ProgramLevels") -> "ProgramLevels":
        """Returns those of two processes together. The fit is that of the process that runs more calls now."""
        busier = self if self.num_running >= other.num_running else other
        return ProgramLevels(
            num_queued=self.num_queued + other.num_queued,
            num_running=self.num_running + other.num_running,
            num_warm=self.num_warm + other.num_warm,
            num_parked=self.num_parked + other.num_parked,
            num_starting=self.num_starting + other.num_starting,
            num_wanted=self.num_wanted + other.num_wanted,
            num_parked_wanted=self.num_parked_wanted + other.num_parked_wanted,
            forecast_per_s=_sum(self.forecast_per_s, other.forecast_per_s),
            reason=self.reason or other.reason,
            fit=busier.fit or self.fit or other.fit,
            num_calls=self.num_calls + other.num_calls,
        )


class WorkflowLevels(msgspec.Struct, kw_only=True):
    """A workflow's requests: those in flight, and how many have ended so far."""

    in_flight: int = 0
    num_ended: int = 0
    num_failed: int = 0

    def plus(self, other: "WorkflowLevels") -> "WorkflowLevels":
        """Returns those of two processes together."""
        return WorkflowLevels(
            in_flight=self.in_flight + other.in_flight,
            num_ended=self.num_ended + other.num_ended,
            num_failed=self.num_failed + other.num_failed,
        )


class Levels(msgspec.Struct, kw_only=True):
    """All programs and workflows by name, and the link to the replicas."""

    programs: dict[str, ProgramLevels] = {}
    workflows: dict[str, WorkflowLevels] = {}
    link: dict[str, int] = {}

    def plus(self, other: "Levels") -> "Levels":
        """Returns those of two processes together."""
        return Levels(
            programs=_together(self.programs, other.programs),
            workflows=_together(self.workflows, other.workflows),
            link={name: self.link.get(name, 0) + other.link.get(name, 0) for name in self.link | other.link},
        )


def sum_of(levels: Iterable[Levels]) -> Levels:
    """Returns those of several processes together."""
    return reduce(Levels.plus, levels, Levels())


def _together(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    found = dict(one)
    for name, values in other.items():
        found[name] = found[name].plus(values) if name in found else values
    return found


def _sum(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else one + other
