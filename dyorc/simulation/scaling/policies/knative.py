"""Knative's rule: calls averaged over a minute, over what a replica should have; and over six seconds while it panics.

It panics when the short average asks for twice the replicas that are ready, and then only goes up, until the minute after the
last such moment is over. A program without replicas gets one as soon as a call waits; the last replica goes 30 s after a minute
without calls.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from dyorc.scaling.model import DesiredReplicas, ProgramLoad
from dyorc.simulation.scaling.policies.per_program import decide_alone

INTERVAL_S = 2.0
SAMPLE_S = 1.0
_STABLE_S = 60.0
_PANIC_S = 6.0
_PANIC_RATIO = 2.0
_UTILIZATION = 0.7
_GRACE_S = 30.0
_MAX_DOWN = 2.0


@dataclass(slots=True)
class _Program:
    target: int
    samples: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])
    panics_until_s: float = 0.0
    idle_since_s: float | None = None
    next_s: float = 0.0


class Knative:
    """Decides for each program by itself; to be asked every `SAMPLE_S`. A replica's capacity is its largest batch."""

    def __init__(self) -> None:
        self._programs: dict[str, _Program] = {}

    def decide(self, loads: Sequence[ProgramLoad], now_ns: int) -> Sequence[DesiredReplicas]:
        """Returns the desired replicas of each program whose target changes."""
        return decide_alone(loads, self._programs, _Program, lambda known, load: self._decided(known, load, now_ns / 1e9))

    def _decided(self, known: _Program, load: ProgramLoad, now_s: float) -> tuple[int, str]:
        known.samples.append((now_s, load.num_queued + load.num_running))
        while known.samples[0][0] <= now_s - _STABLE_S:
            known.samples.popleft()
        target = known.target
        if not target and load.num_queued:
            target = 1
        elif now_s >= known.next_s:
            known.next_s = now_s + INTERVAL_S
            target = self._averaged(known, load, now_s)
        return target, "concurrency"

    def _averaged(self, known: _Program, load: ProgramLoad, now_s: float) -> int:
        capacity = _UTILIZATION * (load.speed.max_batch_size if load.speed is not None else 1)
        num_ready = max(1, load.counts.warm)
        stable = math.ceil(self._average(known, _STABLE_S, now_s) / capacity)
        panic = math.ceil(self._average(known, _PANIC_S, now_s) / capacity)
        if panic / num_ready >= _PANIC_RATIO:
            known.panics_until_s = now_s + _STABLE_S
        if now_s < known.panics_until_s:
            return max(known.target, panic, stable)
        if stable:
            known.idle_since_s = None
            return max(stable, math.floor(num_ready / _MAX_DOWN))
        if known.idle_since_s is None:
            known.idle_since_s = now_s
        return 0 if now_s - known.idle_since_s >= _GRACE_S else min(known.target, 1)

    def _average(self, known: _Program, window_s: float, now_s: float) -> float:
        numbers = [number for at_s, number in known.samples if at_s > now_s - window_s]
        return sum(numbers) / len(numbers)
