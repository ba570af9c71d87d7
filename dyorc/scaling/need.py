"""How many replicas a program needs for the calls that are expected."""

import math
from dataclasses import dataclass

from dyorc.config import ScalingConfig
from dyorc.scaling.model import ProgramLoad, Speed
from dyorc.scaling.traffic import Traffic

_MAX_LEAD_S = 600.0
_MAX_NEED = 1e6


@dataclass(frozen=True, slots=True)
class Need:
    """How many replicas suffice, and why it is so many.

    Attributes:
        replicas: At least this many; a fraction is a replica that is not always busy.
        keep: How many of the existing ones should stay.
    """

    replicas: float
    keep: float
    reason: str


_ANY = 1e-6
"""One replica, however little it has to do."""
_NONE = Need(0.0, 0.0, "")


@dataclass(frozen=True, slots=True)
class Pace:
    """What one replica can do.

    Attributes:
        rate: Calls per second.
        batch_s: How long its batches then take.
    """

    rate: float
    batch_s: float


def useful_pace(speed: Speed | None, target_calls: float | None, config: ScalingConfig) -> Pace | None:
    """Returns what one replica does in batches that do not take too long.

    None: not measured yet, or measured as something that cannot be.
    """
    if speed is None or not _is_possible(speed):
        return None
    size = speed.max_batch_size
    longest_s = config.max_batch_ratio * speed.batch_s(1)
    if speed.per_call_s * size > longest_s - speed.base_s:
        size = int((longest_s - speed.base_s) / speed.per_call_s + 1e-9)
    if target_calls is not None:
        size = min(size, int(target_calls / 2))  # while one batch runs, the calls of the next wait
    size = max(size, 1)
    return Pace(config.max_utilization * size / speed.batch_s(size), speed.batch_s(size))


def _is_possible(speed: Speed) -> bool:
    return speed.max_batch_size >= 1 and speed.base_s >= 0 and speed.per_call_s >= 0 and 0 < speed.batch_s(1) < math.inf


class ReplicaNeeds:
    """Compares what is ahead of a program with what its replicas can do."""

    def __init__(self, config: ScalingConfig, traffic: Traffic) -> None:
        self._config = config
        self._traffic = traffic

    def warm(self, load: ProgramLoad, now_ns: int) -> Need:
        """Returns how many replicas should be warm as soon as one can be."""
        counts = load.counts
        at_hand = counts.warm + counts.warming + counts.parked
        soon = self._for_lead(load, _bounded(load.lead.from_parked_s), self._config.quantile, 1.0, now_ns)
        if math.ceil(soon.replicas) <= at_hand:
            return soon
        later = self._for_lead(load, _bounded(load.lead.from_cold_s), self._config.quantile, 1.0, now_ns)
        return max(soon, later, key=lambda need: need.replicas)

    def processes(self, load: ProgramLoad, now_ns: int) -> Need:
        """Returns how many processes there should be at least, so that replicas are parked when they have to be warmed."""
        config = self._config
        return self._for_lead(load, _bounded(load.lead.from_cold_s), config.parked_quantile, config.parked_ratio, now_ns)

    def _for_lead(self, load: ProgramLoad, lead_s: float, quantile: float, price: float, now_ns: int) -> Need:
        first = self._first(load, lead_s, price, now_ns)
        pace = useful_pace(load.speed, load.bounds.target_calls, self._config)
        needs = [first, self._by_target(load)]
        if pace is not None and first.replicas:
            needs += [self._steady(load, lead_s, quantile, pace, now_ns), self._drain(load, lead_s, pace, now_ns)]
        need = max(needs, key=lambda need: need.replicas)
        keep = max(need.keep for need in needs)
        return Need(min(need.replicas, _MAX_NEED), min(keep, _MAX_NEED), need.reason)

    def _need(self, replicas: float, reason: str) -> Need:
        return Need(replicas, replicas * (1 + self._config.down_margin), reason)

    def _first(self, load: ProgramLoad, lead_s: float, price: float, now_ns: int) -> Need:
        """Whether there should be a replica at all: its calls would wait for it, or it would wait for calls."""
        in_hand = load.num_queued + load.num_running
        if in_hand > 0:
            return Need(_ANY, _ANY, f"{in_hand} calls are there: they need a replica")
        horizon_s = lead_s + self._config.interval_s
        likely = self._traffic.ahead(load.program, 0.0, horizon_s, now_ns).p_any
        chance = f"a call within {horizon_s:.1f} s is {_percent(likely)} likely"
        worth = likely * self._config.wait_cost / price
        keep = _ANY if worth * self._config.keep_margin >= 1 else 0.0
        if worth >= 1:
            return Need(_ANY, keep, f"forecast: {chance}, worth a replica")
        return Need(0.0, keep, f"forecast: {chance}, not worth a replica")

    def _by_target(self, load: ProgramLoad) -> Need:
        target = load.bounds.target_calls
        in_hand = max(load.num_queued + load.num_running, 0)
        if target is None or not target > 0:
            return _NONE
        return self._need(in_hand / target, f"{in_hand} calls wait or run, with {target:g} for each replica")

    def _steady(self, load: ProgramLoad, lead_s: float, quantile: float, pace: Pace, now_ns: int) -> Need:
        # A call may wait about as long as a batch takes. Over two batches, slow programs had too few replicas for their peaks.
        window_s = max(self._config.window_s, pace.batch_s)
        ahead = self._traffic.ahead(load.program, lead_s, lead_s + window_s, now_ns)
        calls = ahead.quantile(quantile)
        expected = f"forecast: {ahead.mean / window_s:.1f} calls/s in {lead_s:.1f} s"
        surely = f"at most {calls / window_s:.1f} with {quantile:.0%} probability"
        return self._need(calls / window_s / pace.rate, f"{expected}, {surely}; a replica does {pace.rate:.1f}")

    def _drain(self, load: ProgramLoad, lead_s: float, pace: Pace, now_ns: int) -> Need:
        """What waits, and will until new replicas are ready, is to be done soon after that."""
        if load.num_queued <= 0:
            return _NONE
        drain_s = max(self._config.drain_s, 2 * pace.batch_s)
        before = self._traffic.ahead(load.program, 0.0, lead_s, now_ns).mean
        after = self._traffic.ahead(load.program, lead_s, lead_s + drain_s, now_ns).mean
        left = max(load.num_queued + before - load.counts.warm * pace.rate * lead_s, 0.0)
        reason = f"{load.num_queued} calls wait, and {before + after:.0f} more come within {lead_s + drain_s:.1f} s"
        return self._need((left + after) / (pace.rate * drain_s), reason)


def _bounded(lead_s: float) -> float:
    return min(max(lead_s, 0.0), _MAX_LEAD_S) if lead_s == lead_s else _MAX_LEAD_S


def _percent(probability: float) -> str:
    return f"{probability:.1%}" if probability < 0.1 else f"{probability:.0%}"
