"""Programs that declare what a call costs: batches end at `max_batch_cost`, and T is learned over cost."""

from collections import Counter

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.call_cost import ShapedInput
from dyorc.config import EngineConfig
from dyorc.engine.actions import FormReason
from dyorc.errors import ProgramError
from tests.unit.engine.driver import World

Row = Float[np.ndarray, "n"]
BASE_S, COST_S = 0.01, 0.002


@dyorc.program(max_batch_size=8, max_batch_cost=10, cost=lambda x: x.shape[0])
def fill(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x + 1


@dyorc.workflow
async def filled(x: Row) -> Row:
    return fill(x)


def world_with(num_replicas: int = 1, **limits: bool) -> World:
    world = World([fill], EngineConfig.model_validate(limits))
    for _ in range(num_replicas):
        world.join(fill)
    return world


def send(world: World, *lengths: int, tenant: str = "") -> None:
    world.tell(*(world.arrival(filled, [0.0] * length, tenant=tenant) for length in lengths))


def finish(world: World) -> None:
    batch = world.oldest()
    world.finish(batch, BASE_S + COST_S * sum(len(row) for row in batch.column()))


def learn(world: World) -> None:
    for length in (1, 4, 10, 2, 5, 3, 10, 7, 1):
        send(world, length)
        while world.in_flight:
            finish(world)
    world.history.clear()


def test_a_batch_ends_before_its_cost_exceeds_the_limit() -> None:
    world = world_with(hold=False)
    send(world, 3, 3, 3, 3, 3)
    assert world.sizes(fill) == [3], "three cost 9 of 10"
    assert world.oldest().action.reason is FormReason.COSTS_ENOUGH
    finish(world)
    assert world.sizes(fill) == [3, 2]


def test_a_call_that_costs_more_than_the_limit_runs_alone() -> None:
    world = world_with(hold=False)
    send(world, 11, 11, 2, 2)
    while world.in_flight:
        finish(world)
    assert [batch.column() for batch in world.history] == [[[0.0] * 11], [[0.0] * 11], [[0.0] * 2] * 2]


def test_cheap_calls_are_limited_by_their_number() -> None:
    world = world_with(hold=False)
    send(world, *[1] * 10)
    assert world.sizes(fill) == [8]
    assert world.oldest().action.reason is FormReason.FULL


def test_the_time_of_a_batch_is_learned_over_its_cost() -> None:
    world = world_with()
    learn(world)
    pool = world.engine.scheduler.pools[fill.name]  # pyright: ignore[reportAttributeAccessIssue]
    assert pool.latency.line == pytest.approx((BASE_S, COST_S), rel=1e-6)
    assert pool.latency.predict(9) == pytest.approx(BASE_S + 9 * COST_S)
    load = world.engine.scheduler.load(fill.name)
    mean = pool.mean_cost.value
    assert load.line == pytest.approx((BASE_S, COST_S * mean)), "for the scaler: calls of the mean cost"
    assert load.max_size == int(10 / mean)


def test_the_end_of_a_batch_is_expected_by_its_cost() -> None:
    world = world_with()
    learn(world)
    send(world, 5, 5)
    [batch] = world.engine.scheduler.batches.values()  # pyright: ignore[reportAttributeAccessIssue]
    link_ns = batch.replica.pool.link_ns.value
    assert batch.expected_ns - world.now_ns == pytest.approx(link_ns + (BASE_S + 10 * COST_S) * 1e9, abs=2)


def test_idle_replicas_share_the_waiting_calls_by_cost() -> None:
    """All cost 18, so half of it is more than the eight 1s. By their number, the first replica would take five of them."""
    world = world_with(2, hold=False)
    learn(world)
    send(world, 1, 1, 1, 1, 1, 1, 1, 1, 10)
    assert world.sizes(fill) == [8, 1]


def test_a_call_without_a_valid_cost_fails_alone() -> None:
    @dyorc.program(max_batch_cost=10, cost=lambda x: 1 / x.shape[0] if x.shape[0] < 4 else -1)
    def odd(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        return x

    @dyorc.workflow
    async def flow(x: Row) -> Row:
        return odd(x)

    world = World([odd])
    world.join(odd)
    empty, large, good = (world.submit(flow, [0.0] * length) for length in (0, 4, 2))
    world.finish_all()
    with pytest.raises(ProgramError, match="ZeroDivisionError: the cost of a call could not be computed"):
        world.result(empty)
    with pytest.raises(ProgramError, match="the cost of a call is -1"):
        world.result(large)
    assert world.result(good).tolist() == [0.0, 0.0]


def test_tenants_share_a_replicas_time_not_its_slots() -> None:
    """One tenant sends calls of cost 10, the other of cost 1. Each gets half of the time, so the second gets more calls."""
    world = world_with(hold=False)
    learn(world)
    for _ in range(40):
        send(world, 10, tenant="large")
    for _ in range(320):
        send(world, 1, tenant="small")
    used = Counter[str]()
    while len(world.history) < 60:
        finish(world)
    for batch in world.history[5:]:
        length = len(batch.column()[0])
        used["large" if length == 10 else "small"] += BASE_S + COST_S * length * batch.size  # pyright: ignore[reportArgumentType]
    assert used["large"] == pytest.approx(used["small"], rel=0.1)


def test_calls_that_cost_nothing_leave_the_others_their_turn() -> None:
    @dyorc.program(max_batch_size=2, max_batch_cost=10, cost=lambda: 0)
    def free(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        return x

    @dyorc.workflow
    async def flow(x: Row) -> Row:
        return free(x)

    world = World([free], EngineConfig(hold=False))
    world.join(free)
    for tenant in ("a", "b"):
        world.tell(*(world.arrival(flow, [float(tenant == "b")], tenant=tenant) for _ in range(20)))
    while len(world.history) < 12:
        world.finish()
    calls = Counter(row[0] for batch in world.history[2:] for row in batch.column())
    assert calls == {0.0: 10, 1.0: 10}


def test_run_computes_costs_as_a_server_does() -> None:
    assert dyorc.run(filled, [0.0] * 11).tolist() == [1.0] * 11


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt, BaseException])
def test_a_cost_that_raises_what_would_end_the_server_fails_its_call_alone(ending: type[BaseException]) -> None:
    def cost(x: ShapedInput) -> float:
        if x.shape[0] == 3:
            raise ending("at three")
        return 1.0

    @dyorc.program(max_batch_size=8, max_batch_cost=10, cost=cost)
    def picky(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        return x + 1

    @dyorc.workflow
    async def picked(x: Row) -> Row:
        return picky(x)

    world = World([picky], EngineConfig())
    world.join(picky)
    bad, good = world.submit(picked, [0.0] * 3), world.submit(picked, [0.0] * 2)
    world.finish_all()
    error = world.answers[bad]
    assert isinstance(error, ProgramError)
    assert ending.__name__ in str(error)
    assert "at three" in str(error)
    assert np.array_equal(world.result(good), [1.0, 1.0])
