"""Under overload with deadlines, dropping late requests keeps the replicas busy with the others."""

from collections.abc import Sequence

import pytest

from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.core.request import Terms
from dyorc.engine.engine import Engine
from dyorc.engine.events import RequestArrived
from dyorc.simulation.plain_evaluation import tensor_of
from dyorc.simulation.simulate import saturation_rps
from dyorc.simulation.world import Machines, World
from tests.unit.simulation.tiny import NS_PER_MS, Diary, flow, net, tiny

NUM_REQUESTS = 3000


def answered(load: float, early_drop: bool, weights: Sequence[float] = (1.0,), deadline_ms: int = 100) -> list[int]:
    """Returns how many requests are answered in time, by tenant, of `NUM_REQUESTS` that come at a constant rate, the tenants
    in turn.
    """
    workload = tiny()
    config = EngineConfig(max_requests=2**31, early_drop=early_drop, speculation=SpeculationConfig(enabled=False))
    diary, missed = Diary(), list[int]()
    engine = Engine(config, [net])
    world = World(
        engine, workload.deployments, Machines({"net": 1}), diary, missed=lambda request_id, now_ns: missed.append(request_id)
    )
    gap_ns = 1e9 / (load * saturation_rps(workload, {"net": 1}))

    def arrivals() -> list[tuple[int, RequestArrived]]:
        events: list[tuple[int, RequestArrived]] = []
        for request_id in range(1, NUM_REQUESTS + 1):
            at_ns, tenant = round(request_id * gap_ns), request_id % len(weights)
            deadline_ns = at_ns + deadline_ms * NS_PER_MS
            value = (tensor_of(request_id / 10_000),)
            terms = Terms(deadline_ns=deadline_ns, tenant=str(tenant), weight=weights[tenant])
            events.append((at_ns, RequestArrived(request_id, flow, value, terms=terms)))
        return events

    world.run(iter(arrivals()))
    assert len(diary.answers) + len(missed) == NUM_REQUESTS
    assert all(latency_ms <= deadline_ms for latency_ms in diary.latencies_ms.values())
    return [sum(request_id % len(weights) == tenant for request_id in diary.answers) for tenant in range(len(weights))]


@pytest.mark.parametrize("load", [1.5, 3.0])
def test_goodput_does_not_collapse(load: float) -> None:
    [with_drop], [without] = answered(load, True), answered(load, False)
    assert with_drop > 0.85 * NUM_REQUESTS / load
    assert without < 0.6 * with_drop


def test_below_saturation_nothing_is_dropped() -> None:
    assert answered(0.7, True) == [NUM_REQUESTS]


def test_under_overload_goodput_is_shared_by_weight() -> None:
    """Holds as long as deadlines leave enough calls to choose from when a batch is formed."""
    one, three = answered(3.0, True, (1.0, 3.0), deadline_ms=400)
    assert three == pytest.approx(3 * one, rel=0.15)
