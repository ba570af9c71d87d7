"""What a version of a model did with its requests, and with the copies of others' requests: counts that add up over processes."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Self

import msgspec

from dyorc.engine.estimators import LATENCY_BOUNDS_NS
from dyorc.telemetry.series import quantile_ms

SAME, DIFFERENT, FAILED, DROPPED = "same", "different", "failed", "dropped"
"""What became of a copy: its answer was the same, or not; it failed where the request itself did not; it did not run, or not to
its end, for want of room."""


class VersionCounts(msgspec.Struct):
    """The counts of one version. Plain, for one thread.

    Attributes:
        num_ok: Requests that were answered.
        failures: Requests that failed, but for errors of their clients, by the code of the error.
        refusals: Requests that ended with an error of their client, by its code. What the version refuses is its own doing, too.
        latency: How long the answered ones took, by `LATENCY_BOUNDS_NS`; empty: none was.
        copies: What became of copies of the default's requests.
        copy_latency: How long answered copies took.
        difference: The last difference between the answers to a request and its copy; empty: there was none.
    """

    num_ok: int = 0
    failures: dict[str, int] = {}
    latency: list[int] = []
    copies: dict[str, int] = {}
    copy_latency: list[int] = []
    difference: str = ""
    refusals: dict[str, int] = {}

    # Counting

    def count_ok(self, took_ns: int) -> None:
        """Counts an answered request."""
        self.num_ok += 1
        _count(self.latency, took_ns)

    def count_failure(self, code: str) -> None:
        """Counts a failed request."""
        self.failures[code] = self.failures.get(code, 0) + 1

    def count_refusal(self, code: str) -> None:
        """Counts a request that ended with an error of its client."""
        self.refusals[code] = self.refusals.get(code, 0) + 1

    def count_copy(self, outcome: str, took_ns: int | None = None) -> None:
        """Counts a copy, and if it was answered, how long that took."""
        self.copies[outcome] = self.copies.get(outcome, 0) + 1
        if took_ns is not None:
            _count(self.copy_latency, took_ns)

    # Reading

    @property
    def num_failed(self) -> int:
        """Requests that failed."""
        return sum(self.failures.values())

    @property
    def num_requests(self) -> int:
        """Requests that have ended, but for refused ones."""
        return self.num_ok + self.num_failed

    @property
    def num_refused(self) -> int:
        """Requests that were refused."""
        return sum(self.refusals.values())

    @property
    def num_ended(self) -> int:
        """All requests that have ended."""
        return self.num_requests + self.num_refused

    @property
    def num_compared(self) -> int:
        """Copies that ran to their end: one that failed is compared, too, with a request that did not."""
        return sum(self.copies.get(outcome, 0) for outcome in (SAME, DIFFERENT, FAILED))

    @property
    def num_unlike(self) -> int:
        """Copies whose answer was not that of their request."""
        return self.copies.get(DIFFERENT, 0) + self.copies.get(FAILED, 0)

    def latency_ms(self, part: float) -> float | None:
        """Returns a quantile of the times of answered requests; None without any."""
        return quantile_ms(LATENCY_BOUNDS_NS, self.latency, part)

    def report(self) -> dict[str, Any]:
        """Returns all of it for people, as plain values."""
        shadow: dict[str, Any] = {}
        if self.copies:
            times = [quantile_ms(LATENCY_BOUNDS_NS, self.copy_latency, part) for part in (0.5, 0.99)]
            shadow = {**self.copies, "p50_ms": times[0], "p99_ms": times[1], "last_difference": self.difference}
        return {
            "num_ok": self.num_ok, "num_failed": self.num_failed, "failures": dict(self.failures),
            "num_refused": self.num_refused, "refusals": dict(self.refusals),
            "p50_ms": self.latency_ms(0.5), "p99_ms": self.latency_ms(0.99), "shadow": shadow,
        }  # fmt: skip

    # Several

    def add(self, other: "VersionCounts") -> None:
        """Adds the counts of the same version in another process."""
        self.num_ok += other.num_ok
        self.latency = _combined(self.latency, other.latency, 1)
        self.copy_latency = _combined(self.copy_latency, other.copy_latency, 1)
        for own, others in ((self.failures, other.failures), (self.refusals, other.refusals), (self.copies, other.copies)):
            for name, number in others.items():
                own[name] = own.get(name, 0) + number
        self.difference = other.difference or self.difference

    def since(self, before: Self) -> "VersionCounts":
        """Returns what was counted after `before`."""
        return VersionCounts(
            num_ok=max(0, self.num_ok - before.num_ok),
            failures=_less(self.failures, before.failures),
            latency=_combined(self.latency, before.latency, -1),
            copies=_less(self.copies, before.copies),
            copy_latency=_combined(self.copy_latency, before.copy_latency, -1),
            difference=self.difference,
            refusals=_less(self.refusals, before.refusals),
        )


def _count(counts: list[int], took_ns: int) -> None:
    if not counts:
        counts += [0] * (len(LATENCY_BOUNDS_NS) + 1)
    counts[bisect_left(LATENCY_BOUNDS_NS, took_ns)] += 1


def _combined(counts: list[int], others: list[int], sign: int) -> list[int]:
    if not others:
        return list(counts)
    if not counts:
        return list(others) if sign > 0 else []
    return [max(0, count + sign * other) for count, other in zip(counts, others, strict=True)]


def _less(counts: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: number for name, count in counts.items() if (number := count - before.get(name, 0)) > 0}
