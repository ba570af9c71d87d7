"""KEDA's rule: Kubernetes' horizontal autoscaler between one replica and many, and KEDA itself between none and one.

The autoscaler looks every 15 s: each replica should have `target` calls, give or take 10 %. It at most doubles the replicas (or
adds four) in 15 s, and goes down only to the highest number that it has recommended in the last five minutes. KEDA polls every
30 s whether there is anything to do for a program without replicas, and takes the last replica 300 s after it last saw something.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from dyorc.scaling.model import DesiredReplicas, ProgramLoad
from dyorc.simulation.scaling.policies.per_program import decide_alone

INTERVAL_S = 15.0
_POLL_S = 30.0
_COOLDOWN_S = 300.0
_STABILIZATION_S = 300.0
_TOLERANCE = 0.1
_MAX_ADDED = 4


@dataclass(slots=True)
class _Program:
    target: int
    active_s: float = 0.0
    next_poll_s: float = 0.0
    recommended: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])


class Keda:
    """Decides for each program by itself.

    Args:
        target: Calls for each replica.
    """

    def __init__(self, target: float = 2.0) -> None:
        self._target = target
        self._programs: dict[str, _Program] = {}

    def decide(self, loads: Sequence[ProgramLoad], now_ns: int) -> Sequence[DesiredReplicas]:
        """Returns the desired replicas of each program whose target changes."""
        return decide_alone(loads, self._programs, _Program, lambda known, load: self._decided(known, load, now_ns / 1e9))

    def _decided(self, known: _Program, load: ProgramLoad, now_s: float) -> tuple[int, str]:
        num_calls = load.num_queued + load.num_running
        target = self._activated(known, num_calls, now_s)
        if known.target and target:
            target = self._scaled(known, load, num_calls, now_s)
        return target, f"{num_calls} calls"

    def _activated(self, known: _Program, num_calls: int, now_s: float) -> int:
        """Returns the target between none and one; one that is higher stays."""
        if now_s < known.next_poll_s:
            return known.target
        known.next_poll_s = now_s + _POLL_S
        if num_calls:
            known.active_s = now_s
            return max(1, known.target)
        return 0 if now_s - known.active_s >= _COOLDOWN_S else known.target

    def _scaled(self, known: _Program, load: ProgramLoad, num_calls: int, now_s: float) -> int:
        """Returns what the horizontal autoscaler makes of a target of at least one."""
        ratio = num_calls / (self._target * max(1, load.counts.warm))
        wanted = known.target if abs(ratio - 1) <= _TOLERANCE else max(1, math.ceil(num_calls / self._target))
        known.recommended.append((now_s, wanted))
        while known.recommended[0][0] <= now_s - _STABILIZATION_S:
            known.recommended.popleft()
        if wanted > known.target:
            return min(wanted, max(2 * known.target, known.target + _MAX_ADDED))
        return min(known.target, max(number for _, number in known.recommended))
