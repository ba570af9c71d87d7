"""Ray Serve's own rule (2.60): as many replicas as it takes for each to have `target_ongoing_requests`, averaged and delayed.

What it counts, ongoing requests, are a program's calls that wait or run. They are sampled, and the samples of the look-back are
averaged at the last report; reports come every ten seconds. A decision has to last for a delay before it counts.
A program without replicas is different: its first request is reported at once and skips the delays.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from dyorc.scaling.model import DesiredReplicas, ProgramLoad
from dyorc.simulation.scaling.policies.per_program import decide_alone

INTERVAL_S = 0.1
"""The controller's loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayServeOptions:
    """Its options and their defaults."""

    target_ongoing_requests: float = 2.0
    upscale_delay_s: float = 30.0
    downscale_delay_s: float = 600.0
    look_back_period_s: float = 30.0
    push_interval_s: float = 10.0
    sample_interval_s: float = 6.0


@dataclass(slots=True)
class _Program:
    """What is known of one program.

    Attributes:
        target: Replicas that are wanted now.
        reported: The average that was last reported.
        direction: Where the decisions go that are being delayed, up (1) or down (-1), since `since_s`.
    """

    target: int
    samples: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])
    reported: float = 0.0
    next_sample_s: float = 0.0
    next_push_s: float = 0.0
    direction: int = 0
    since_s: float = 0.0


class RayServe:
    """Decides for each program by itself."""

    def __init__(self, options: RayServeOptions = RayServeOptions()) -> None:
        self._options = options
        self._programs: dict[str, _Program] = {}

    def decide(self, loads: Sequence[ProgramLoad], now_ns: int) -> Sequence[DesiredReplicas]:
        """Returns the desired replicas of each program whose target changes."""
        return decide_alone(loads, self._programs, _Program, lambda known, load: self._decided(known, load, now_ns / 1e9))

    def _decided(self, known: _Program, load: ProgramLoad, now_s: float) -> tuple[int, str]:
        self._observe(known, load, now_s)
        return self._target(known, load, now_s), f"{known.reported:.1f} ongoing requests"

    def _observe(self, known: _Program, load: ProgramLoad, now_s: float) -> None:
        options = self._options
        if now_s >= known.next_sample_s:
            known.next_sample_s = now_s + options.sample_interval_s
            known.samples.append((now_s, load.num_queued + load.num_running))
        if now_s >= known.next_push_s:
            known.next_push_s = now_s + options.push_interval_s
            while known.samples and known.samples[0][0] <= now_s - options.look_back_period_s:
                known.samples.popleft()
            known.reported = sum(number for _, number in known.samples) / max(1, len(known.samples))

    def _target(self, known: _Program, load: ProgramLoad, now_s: float) -> int:
        """Returns the target, after its delay."""
        if not load.counts.warm:
            # The fast path; without requests, it leaves the target as it is.
            return max(1, known.target) if load.num_queued else known.target
        desired = math.ceil(known.reported / self._options.target_ongoing_requests)
        direction = (desired > known.target) - (desired < known.target)
        if direction != known.direction:
            known.direction, known.since_s = direction, now_s
        delay_s = self._options.upscale_delay_s if direction > 0 else self._options.downscale_delay_s
        if not direction or now_s - known.since_s < delay_s - 1e-6:
            return known.target
        known.direction = 0
        return desired if direction > 0 or known.target == 1 else max(1, desired)
