"""Virtual time is exact, and a world that goes wrong raises an error."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import numpy as np
import pytest

import dyorc
from dyorc.config import EngineConfig
from dyorc.core.request import Terms
from dyorc.engine.actions import FetchValue
from dyorc.engine.engine import Engine
from dyorc.engine.events import Event, RequestArrived, ValueFetched
from dyorc.errors import InternalError, InvalidInputError
from dyorc.simulation.plain_evaluation import tensor_of
from dyorc.simulation.policies import policy
from dyorc.simulation.simulate import saturation_rps, simulate
from dyorc.simulation.value_draws import draw
from dyorc.simulation.workload import Deployment, Number, Numbers, Workload
from dyorc.simulation.world import Machines, World
from tests.unit.simulation.tiny import NS_PER_MS, Diary, flow, net, run_world, tiny


def test_times_are_those_computed_by_hand() -> None:
    """T(n) = 10 + n ms, 0.1 ms each way.

    1 arrives at 0 and is back at 0.1 + 11 + 0.1 = 11.2. 2 and 3 came meanwhile and go together: 11.2 + 0.1 + 12 + 0.1 = 23.4.
    4 comes at 12. The engine has seen one batch, of 11 ms, so it sends 4 after 11.2 + 11 = 22.2, to arrive as the running batch
    ends; that ends at 23.3, 4 then runs until 34.3 and is back at 34.4.
    """
    diary = run_world(tiny(), "greedy", [0, 5, 6, 12])

    assert diary.sizes == [1, 2, 1]
    assert diary.latencies_ms == {1: 11.2, 2: 18.4, 3: 17.4, 4: 22.4}


def test_times_under_timers_are_those_computed_by_hand() -> None:
    """The same under Ray Serve's batching with its wait of 10 ms.

    1 and 2, 3 wait until 10 and take 13 ms: 10 + 0.1 + 13 + 0.1 = 23.2. The batch of 4 is closed at 22 though the replica is
    busy until 23.1; it runs until 34.1 and is back at 34.2.
    """
    diary = run_world(tiny(), "timer", [0, 5, 6, 12])

    assert diary.sizes == [3, 1]
    assert diary.latencies_ms == {1: 23.2, 2: 18.2, 3: 17.2, 4: 22.2}


def test_timers_close_a_full_batch_at_once() -> None:
    diary = run_world(tiny(), "timer", [0] * 33)

    assert diary.sizes == [32, 1]
    assert diary.latencies_ms[1] == 0.1 + 42 + 0.1


def test_timers_route_to_the_less_busy_of_two() -> None:
    assert run_world(tiny(), "timer", [0] * 8, replicas=2).sizes == [4, 4]


def test_requests_that_arrive_together_share_a_batch() -> None:
    assert run_world(tiny(), "greedy", [3, 3, 3]).sizes == [3]


def test_replicas_work_side_by_side() -> None:
    diary = run_world(tiny(), "greedy", [0, 1], replicas=2)

    assert diary.latencies_ms == {1: 11.2, 2: 11.2}


class FetchingEngine:
    """Instead of an engine: asks once for a value, and keeps what comes."""

    def __init__(self) -> None:
        self.fetched: list[tuple[int, ValueFetched]] = []

    def handle(self, events: list[Event], now_ns: int) -> list[FetchValue]:
        self.fetched += [(now_ns, event) for event in events if isinstance(event, ValueFetched)]
        return [FetchValue(7, (tensor_of(0.25),)) for event in events if isinstance(event, RequestArrived)]


def test_a_fetched_value_takes_a_round_trip() -> None:
    engine = FetchingEngine()
    workload = tiny()
    arrival = RequestArrived(1, workload.workflow, (tensor_of(0.5),))

    with pytest.raises(InternalError, match="went to sleep with 1 requests"):
        World(cast(Engine, engine), workload.deployments, Machines({"net": 1}, link_ns=100), Diary()).run(iter([(1000, arrival)]))

    [(now_ns, event)] = engine.fetched
    assert (now_ns, event.fetch_id, event.arrays) == (1200, 7, (0.25,))


def test_a_request_that_fails_ends_the_run() -> None:
    """Without a replica the request's deadline passes."""
    engine = Engine(EngineConfig(), [net])
    workload = tiny()
    arrival = RequestArrived(1, workload.workflow, (tensor_of(0.5),), terms=Terms(deadline_ns=1000))

    with pytest.raises(InternalError, match="request 1 failed"):
        World(engine, workload.deployments, Machines({}), Diary()).run(iter([(0, arrival)]))


@dyorc.workflow
async def stream(x: Number) -> AsyncIterator[Number]:
    """Yields parts until one is small."""
    for _ in range(20):
        x = net(x)
        yield x
        if await dyorc.when(x, lambda value: value < 0.2):
            return


@pytest.mark.parametrize("policy", ["timer", "greedy", "speculate", "oracle"])
def test_a_stream_is_answered_by_all_its_parts(policy: str) -> None:
    """The ledger compares the parts with those of the plain run."""
    workload = Workload("stream", stream, (Deployment(program=net, base_s=0.010, item_s=0.001),))
    result = simulate(workload, policy, load=0.4, num_requests=100)
    assert result.p50_ms > 11


@dyorc.program(max_batch_size=32)
def other(x: Numbers) -> Numbers:
    """Draws numbers, like `net`, on a replica of its own."""
    return draw("other", x)


@dyorc.workflow
async def both(x: Number) -> Number:
    """Makes two calls that do not depend on each other."""
    first, second = await dyorc.gather(net(x), other(x))
    return np.asarray((first + second) / 2)


def run_on_cores(num_cores: int | None, arrivals_ms: Sequence[int] = (0, 1)) -> Diary:
    """Runs batches of 11 ms for one call and 12 ms for two, without a link."""
    diary = Diary()
    engine = policy("greedy")([net, other], 0)
    deployments = [Deployment(program=program, base_s=0.010, item_s=0.001) for program in (net, other)]
    world = World(engine, deployments, Machines({"net": 1, "other": 1}, link_ns=0, num_cores=num_cores), diary)
    world.run(
        (at_ms * NS_PER_MS, RequestArrived(request_id, both, (tensor_of(request_id / 1000),)))
        for request_id, at_ms in enumerate(arrivals_ms, 1)
    )
    return diary


@pytest.mark.parametrize(("num_cores", "latency_ms"), [(None, 11), (3, 11), (2, 11), (1, 22)])
def test_replicas_share_the_cores(num_cores: int | None, latency_ms: float) -> None:
    assert run_on_cores(num_cores, [0]).latencies_ms == {1: latency_ms}


def test_a_core_takes_batches_in_the_order_in_which_they_were_sent() -> None:
    """On one core: 1 runs from 0 to 22. 2 comes at 1 and its two calls are sent as their replicas are free, at 11 and at 22."""
    diary = run_on_cores(1, [0, 1])

    assert diary.sizes == [1, 1, 1, 1]
    assert diary.latencies_ms == {1: 22, 2: 43}


def test_a_batch_that_waits_for_its_replica_keeps_no_core_from_others() -> None:
    """Two cores: one has been free since 0, the other since 5. What is ready at 7 takes the latter, so that the first stays
    free.
    """
    world = World(Engine(EngineConfig(), [net]), tiny().deployments, Machines({"net": 1}, num_cores=2), Diary())

    assert [world._occupy(ready_ns, 5) for ready_ns in (0, 7, 1)] == [5, 12, 6]


def test_a_world_without_cores_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="0 cores"):
        run_on_cores(0)


def test_measured_times_take_the_place_of_the_line() -> None:
    """1 runs from 0.1 to 5.1. 2, 3 and 4 came meanwhile and take 8 ms, half-way between those of 2 and 4: until 13.3 + 0.1."""
    measured = Deployment(program=net, measured=[(1, 0.005), (2, 0.006), (4, 0.010), (32, 0.010)])
    diary = run_world(Workload("measured", flow, (measured,)), "greedy", [0, 1, 2, 3])

    assert diary.sizes == [1, 3]
    assert diary.latencies_ms == {1: 5.2, 2: 12.4, 3: 11.4, 4: 10.4}
    assert saturation_rps(Workload("measured", flow, (measured,)), {"net": 1}) == pytest.approx(32 / 0.010)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"measured": [(2, 0.1), (32, 0.2)]}, "expected ascending ones from 1 to 32"),
        ({"measured": [(1, 0.1), (16, 0.2)]}, "expected ascending ones from 1 to 32"),
        ({"measured": [(1, 0.1), (32, 0.2), (16, 0.2)]}, "expected ascending ones from 1 to 32"),
        ({"measured": [(1, 0.0), (32, 0.2)]}, "expected times above 0"),
        ({"measured": [(1, 0.1), (32, float("nan"))]}, "expected times above 0"),
        ({"measured": [(1, 0.1), (32, 0.2)], "base_s": 0.1}, "expected one of them"),
    ],
)
def test_errors_name_bad_measurements(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        Deployment(program=net, **options)
