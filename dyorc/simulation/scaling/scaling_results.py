"""How a policy's replay is judged.

The measure is the same trace with every replica warm all the time. It sets the limit of each workflow (five times its median
there, if none is given), and tells which misses are caused by cold starts: a request that misses its limit, and would have met it
with every replica warm, has waited for a replica that was not.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dyorc.simulation.scaling.replay import Replay, Scene

SLO_FACTOR = 5.0


@dataclass(frozen=True)
class Standard:
    """The trace with every replica warm.

    Attributes:
        slo_ns: The limit, by workflow.
        met: The measured requests that meet it.
    """

    slo_ns: Mapping[str, int]
    met: frozenset[int]

    @classmethod
    def of(cls, scene: Scene, warm: Replay, slo_s: float | None = None) -> "Standard":
        """Makes it from the replay with every replica warm."""
        by_workflow: defaultdict[str, list[int]] = defaultdict(list)
        for request_id, latency_ns in warm.watch.latencies_ns.items():
            by_workflow[warm.watch.workflows[request_id]].append(latency_ns)
        slo_ns = {
            name: round(slo_s * 1e9) if slo_s is not None else round(SLO_FACTOR * float(np.median(latencies_ns)))
            for name, latencies_ns in by_workflow.items()
        }
        misses = missed_requests(scene, warm, slo_ns)
        return cls(slo_ns, frozenset(request_id for request_id in measured_requests(scene, warm) if request_id not in misses))


def measured_requests(scene: Scene, outcome: Replay) -> list[int]:
    """Returns the requests that arrived in the measured time."""
    return [request_id for request_id, at_ns in outcome.watch.arrived_ns.items() if at_ns >= scene.from_ns]


def missed_requests(scene: Scene, outcome: Replay, slo_ns: Mapping[str, int]) -> set[int]:
    """Returns the measured requests that took longer than their workflow's limit."""
    watch = outcome.watch
    return {
        request_id
        for request_id in measured_requests(scene, outcome)
        if watch.latencies_ns[request_id] > slo_ns[watch.workflows[request_id]]
    }


@dataclass(frozen=True, kw_only=True)
class ScalingResult:
    """One policy on one trace; times of replicas are sums over all programs, starts and loads included.

    Attributes:
        cold_misses: Requests that missed their limit and would have met it with every replica warm.
        misses: All that missed their limit.
        turns: How often a program's number of warm replicas changed its direction.
    """

    policy: str
    requests: int
    p50_ms: float
    p99_ms: float
    cold_misses: int
    misses: int
    warm_s: float
    parked_s: float
    turns: int

    def cost_s(self, parked_weight: float) -> float:
        """Returns its replica-seconds; parked ones count by a weight, because they hold only memory."""
        return self.warm_s + parked_weight * self.parked_s

    def as_row(self) -> dict[str, Any]:
        """Returns it for JSON."""
        return asdict(self)


def judge(name: str, scene: Scene, outcome: Replay, standard: Standard) -> ScalingResult:
    """Returns how a policy did."""
    requests = measured_requests(scene, outcome)
    latencies_ms = np.asarray([outcome.watch.latencies_ns[request_id] for request_id in requests]) / 1e6
    misses = missed_requests(scene, outcome, standard.slo_ns)
    p50_ms, p99_ms = np.percentile(latencies_ms, (50, 99))
    return ScalingResult(
        policy=name,
        requests=len(requests),
        p50_ms=round(float(p50_ms), 1),
        p99_ms=round(float(p99_ms), 1),
        cold_misses=len(misses & standard.met),
        misses=len(misses),
        warm_s=round(outcome.timeline.seconds(warm=True), 1),
        parked_s=round(outcome.timeline.seconds(warm=False), 1),
        turns=outcome.num_turns,
    )
