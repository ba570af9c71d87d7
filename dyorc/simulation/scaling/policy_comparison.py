"""Policies side by side on one trace."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dyorc.config import ScalingConfig
from dyorc.errors import InvalidInputError
from dyorc.scaling.model import Bounds
from dyorc.scaling.policy import PredictivePolicy
from dyorc.scaling.traffic import Traffic
from dyorc.simulation.scaling.policies import keda, knative, ray_serve
from dyorc.simulation.scaling.policies.oracle_policy import replay_oracle
from dyorc.simulation.scaling.policies.per_program import Fixed
from dyorc.simulation.scaling.replay import BIN_NS, Replay, Scene, replay
from dyorc.simulation.scaling.scaling_loop import Limits, SimulatedScaler
from dyorc.simulation.scaling.scaling_results import ScalingResult, Standard, judge

ORACLE = "oracle"
PREDICTIVE = "predictive"
POLICIES = ("fixed", "reactive", "reactive0", "keda", "knative", PREDICTIVE, ORACLE)
"""What can be replayed, by name."""
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Course:
    """Replicas over time, in all programs: one number for each bin of ten seconds."""

    warm: list[int]
    parked: list[int]

    @classmethod
    def of(cls, outcome: Replay, num_bins: int) -> "Course":
        """Reads them off a replay."""
        totals = [outcome.timeline.totals_at(at * BIN_NS + BIN_NS // 2) for at in range(num_bins)]
        return cls([warm for warm, _ in totals], [parked for _, parked in totals])


@dataclass(frozen=True, kw_only=True)
class PolicyComparison:
    """What policies made of one trace.

    Attributes:
        slo_s: The limit of each workflow.
        least_s: Replica-seconds that no policy can do without: every measured call in a full batch. None without the oracle.
        demand: How many replicas are busy on average when every one is warm, in each bin of ten seconds.
    """

    results: dict[str, ScalingResult]
    courses: dict[str, Course]
    slo_s: dict[str, float]
    least_s: float | None
    demand: list[float]

    def as_object(self) -> dict[str, Any]:
        """Returns it for JSON, without what only a picture shows."""
        return {
            "slo_s": self.slo_s,
            "least_replica_s": None if self.least_s is None else round(self.least_s, 1),
            "policies": [result.as_row() for result in self.results.values()],
        }


def compare(
    scene: Scene, policies: Sequence[str] = POLICIES, *, slo_s: float | None = None, num_fixed: int = 2
) -> PolicyComparison:
    """Replays the trace under each policy.

    Args:
        slo_s: The limit of every workflow; by default five times its median with every replica warm.
        num_fixed: Replicas of each program under the policy `fixed`.

    Raises:
        InvalidInputError: If there is no such policy.
    """
    for name in policies:
        if name not in POLICIES:
            raise InvalidInputError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}")
    warm = replay(*_fixed(scene, scene.limits.bounds.max_replicas))
    standard = Standard.of(scene, warm, slo_s)
    outcomes: dict[str, Replay] = {}
    least_s = None
    for name in policies:
        if name == ORACLE:
            oracle = replay_oracle(scene, warm, standard)
            outcomes[name], least_s = oracle.outcome, oracle.least_s
        elif name == "fixed":
            outcomes[name] = replay(*_fixed(scene, num_fixed))
        else:
            outcomes[name] = replay(scene, scaler(name))
    num_bins = scene.span_ns // BIN_NS + 1
    return PolicyComparison(
        results={name: judge(name, scene, outcome, standard) for name, outcome in outcomes.items()},
        courses={name: Course.of(outcome, num_bins) for name, outcome in outcomes.items()},
        slo_s={name: round(limit_ns / _NS_PER_S, 3) for name, limit_ns in standard.slo_ns.items()},
        least_s=least_s,
        demand=[warm.watch.busy_ns[at] / BIN_NS for at in range(num_bins)],
    )


def scaler(name: str) -> SimulatedScaler:
    """Makes a policy that needs to know nothing in advance."""
    match name:
        case "reactive":
            return SimulatedScaler(policy=ray_serve.RayServe(), interval_s=ray_serve.INTERVAL_S)
        case "reactive0":
            options = ray_serve.RayServeOptions(upscale_delay_s=0.0, downscale_delay_s=0.0)
            return SimulatedScaler(policy=ray_serve.RayServe(options), interval_s=ray_serve.INTERVAL_S)
        case "keda":
            return SimulatedScaler(policy=keda.Keda(), interval_s=keda.INTERVAL_S)
        case "knative":
            return SimulatedScaler(policy=knative.Knative(), interval_s=knative.SAMPLE_S)
        case "predictive":
            config, traffic = ScalingConfig(), Traffic()
            policy = PredictivePolicy(config, traffic)
            return SimulatedScaler(policy=policy, interval_s=config.interval_s, observer=traffic, urgency=traffic)
        case _:
            raise InvalidInputError(f"{name!r} is no policy that scales")


def _fixed(scene: Scene, num_replicas: int) -> tuple[Scene, SimulatedScaler]:
    """Returns the scene with a number of replicas that never changes."""
    bounds = Bounds(min_warm=num_replicas, max_replicas=num_replicas)
    limits = Limits(times=scene.limits.times, bounds=bounds, num_first=num_replicas)
    return replace(scene, limits=limits), SimulatedScaler(policy=Fixed(num_replicas), interval_s=60.0)
