"""Whatever comes in, bounds and the budget hold."""

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dyorc.config import BudgetConfig, ScalingConfig
from dyorc.scaling.model import Bounds, Cost, DesiredReplicas, LeadTimes, ProgramLoad, ReplicaCounts, Speed
from dyorc.scaling.policy import PredictivePolicy
from dyorc.scaling.traffic import Traffic
from tests.effort import examples

NS = 1_000_000_000
_NAMES = ("a", "b", "c")
_FLOATS = st.one_of(st.floats(0, 100), st.sampled_from([0.0, -1.0, 1e-12, 1e12, math.inf, math.nan]))
_COUNTS = st.one_of(st.integers(0, 20), st.sampled_from([-3, 10**9]))


@st.composite
def _bounds(draw: st.DrawFn) -> Bounds:
    least = draw(st.integers(0, 3))
    most = draw(st.integers(max(least, 1), 8))
    delays = st.sampled_from([0.0, 1.0, 30.0])
    return Bounds(
        min_warm=least,
        max_replicas=most,
        initial_warm=draw(st.none() | st.integers(least, most)),
        upscale_delay_s=draw(delays),
        downscale_delay_s=draw(delays),
        cold_delay_s=draw(delays),
        to_zero_delay_s=draw(st.none() | delays),
        target_calls=draw(st.none() | st.sampled_from([0.5, 2.0, 100.0])),
        upscaling_factor=draw(st.sampled_from([0.3, 1.0, 5.0])),
        downscaling_factor=draw(st.sampled_from([0.3, 1.0, 5.0])),
    )


@st.composite
def _step(draw: st.DrawFn) -> tuple[str, Any]:
    kind = draw(st.sampled_from(["arrive", "arrive", "call", "end", "decide", "decide", "override", "jump"]))
    match kind:
        case "arrive":
            return kind, (draw(st.integers(0, 30)), draw(st.sampled_from("vw")), draw(st.integers(1, 50)))
        case "call":
            return kind, (draw(st.integers(0, 30)), draw(st.sampled_from(_NAMES)))
        case "end":
            return kind, draw(st.integers(0, 30))
        case "override":
            numbers = st.none() | st.integers(-2, 20)
            return kind, (draw(st.sampled_from(_NAMES)), draw(numbers), draw(numbers))
        case "jump":
            return kind, draw(st.sampled_from([-100 * NS, 0, NS // 3, 10 * NS, 4000 * NS, 10**6 * NS]))
        case _:
            return kind, {name: draw(_garbage()) for name in _NAMES}


@st.composite
def _garbage(draw: st.DrawFn) -> dict[str, Any]:
    speed = draw(st.none() | st.builds(Speed, _FLOATS, _FLOATS, st.sampled_from([0, 1, 32])))
    lead = LeadTimes(draw(_FLOATS), draw(_FLOATS))
    return {"speed": speed, "lead": lead, "num_queued": draw(_COUNTS), "num_running": draw(_COUNTS)}


class _Fleet:
    """Has the desired replicas, or a part of them, as replicas come and go."""

    def __init__(self, bounds: dict[str, Bounds], costs: dict[str, Cost], policy: PredictivePolicy) -> None:
        self.bounds, self.costs, self.policy = bounds, costs, policy
        self.all_desired: dict[str, DesiredReplicas] = {}
        self.counts = dict.fromkeys(_NAMES, ReplicaCounts())

    def decide(self, garbage: dict[str, dict[str, Any]], now_ns: int) -> None:
        loads = [
            ProgramLoad(program=name, bounds=self.bounds[name], cost=self.costs[name], counts=self.counts[name], **garbage[name])
            for name in _NAMES
        ]
        for desired in self.policy.decide(loads, now_ns):
            self.all_desired[desired.program] = desired
        for name in _NAMES:
            self._check(name)

    def _check(self, name: str) -> None:
        desired, bounds = self.all_desired[name], self.bounds[name]
        assert bounds.min_warm <= desired.num_warm <= bounds.max_replicas
        assert 0 <= desired.num_parked <= bounds.max_replicas - desired.num_warm
        assert desired.reason

    def carry_out(self) -> None:
        """Gives every program its desired replicas."""
        for name, desired in self.all_desired.items():
            self.counts[name] = ReplicaCounts(warm=desired.num_warm, parked=desired.num_parked)

    def used(self, name: str) -> tuple[float, float, float]:
        """Returns what a program takes while it changes to its desired replicas."""
        cost, counts, desired = self.costs[name], self.counts[name], self.all_desired[name]
        warm = max(counts.warm, desired.num_warm)
        parked = max(counts.num_processes, desired.num_warm + desired.num_parked) - warm
        return warm * cost.num_cpus, warm * cost.num_gpus, warm * cost.warm_bytes + max(parked, 0) * cost.parked_bytes


_COSTS = st.builds(
    Cost,
    num_cpus=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    num_gpus=st.sampled_from([0.0, 0.3, 1.0]),
    warm_bytes=st.sampled_from([0, 10, 1000]),
    parked_bytes=st.sampled_from([0, 5, 10]),
)


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_bounds_and_budget_hold_whatever_comes(data: st.DataObject) -> None:
    bounds = {name: data.draw(_bounds()) for name in _NAMES}
    costs = {name: data.draw(_COSTS) for name in _NAMES}
    least = [
        sum(bounds[name].min_warm * getattr(costs[name], field) for name in _NAMES)
        for field in ("num_cpus", "num_gpus", "warm_bytes")
    ]
    extra = data.draw(st.none() | st.sampled_from([0.0, 1.0, 3.0]))
    budget = BudgetConfig()
    if extra is not None:
        limits = [max(part + extra, 0.1) for part in least]
        budget = BudgetConfig(max_cpus=limits[0], max_gpus=limits[1], max_bytes=math.ceil(limits[2] + 20 * extra))
    traffic = Traffic()
    fleet = _Fleet(bounds, costs, PredictivePolicy(ScalingConfig(budget=budget), traffic))
    now_ns = 0
    for kind, about in data.draw(st.lists(_step(), max_size=30)):
        now_ns = max(now_ns + NS // 10, 0)
        match kind:
            case "arrive":
                first, workflow, number = about
                for request in range(first, first + number):
                    traffic.arrived(request, workflow, now_ns)
            case "call":
                traffic.called(*about, now_ns)
            case "end":
                traffic.ended(about, now_ns)
            case "override":
                fleet.policy.override(*about)
            case "jump":
                now_ns += about
            case _:
                fleet.decide(about, now_ns)
                if extra is not None:
                    used = [sum(parts) for parts in zip(*map(fleet.used, _NAMES), strict=True)]
                    limits = [budget.max_cpus, budget.max_gpus, budget.max_bytes]
                    assert all(part <= limit + 1e-6 for part, limit in zip(used, limits, strict=True) if limit is not None)
                fleet.carry_out()
