"""Tenants that wait share the slots of batches by their weights; one that is alone notices nothing."""

from collections import Counter

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.engine.scheduling.lanes import Lanes
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, increment

NUMBERS = {"a": 1.0, "b": 2.0, "c": 3.0}
"""What each tenant sends, so that batches tell whose calls are in them."""


def flooded(*waiting: tuple[str, int, float]) -> World:
    """Makes a world in which the calls of tenants (name, calls, weight) have arrived one tenant after the other, and the
    replica is busy.
    """
    world = World([add_one])
    world.join(add_one)
    world.submit_all(increment, [[0, 0]] * 8)
    for tenant, number, weight in waiting:
        send(world, tenant, number, weight)
    return world


def send(world: World, tenant: str, number: int, weight: float = 1.0) -> None:
    value = [NUMBERS[tenant]] * 2
    world.tell(*(world.arrival(increment, value, tenant=tenant, weight=weight) for _ in range(number)))


def served(world: World, num_batches: int, skip: int = 2) -> list[Counter[str]]:
    """Returns whose calls are in the next batches that are sent."""
    names = {value: name for name, value in NUMBERS.items()}
    while len(world.history) < num_batches + skip:
        world.finish()
    return [
        Counter(names[call[0]] for call in batch.column() if call[0] in names)
        for batch in world.history[skip : skip + num_batches]
    ]


def test_tenants_share_batches_equally_whoever_came_first() -> None:
    assert served(flooded(("a", 20, 1.0), ("b", 20, 1.0)), 3) == [{"a": 2, "b": 2}] * 3


def test_slots_are_shared_by_weight() -> None:
    assert sum(served(flooded(("a", 20, 3.0), ("b", 20, 1.0)), 4), Counter[str]()) == {"a": 12, "b": 4}


def test_a_later_tenant_goes_before_the_backlog_of_another() -> None:
    world = flooded(("a", 40, 1.0))
    world.finish()
    send(world, "b", 2)
    assert served(world, 1, skip=3) == [{"a": 2, "b": 2}]


def test_no_slot_is_left_empty() -> None:
    assert served(flooded(("a", 7, 1.0), ("b", 1, 100.0)), 2) == [{"a": 3, "b": 1}, {"a": 4}]


def test_an_idle_tenant_earns_no_credit() -> None:
    """Tenant `c` has had nothing while others were served, and gets no more than its share from now on."""
    world = flooded(("a", 40, 1.0), ("b", 40, 1.0))
    served(world, 5)
    send(world, "c", 40)
    total = sum(served(world, 6, skip=7), Counter[str]())
    assert max(total.values()) - min(total.values()) <= 1, total


def test_going_away_for_a_moment_clears_no_debt() -> None:
    """Tenant `b` never has more than one call waiting, but sends the next as soon as that runs: its weight is 1/8, and it gets
    that share.
    """
    world = flooded(("a", 60, 1.0), ("b", 1, 1 / 8))
    total = Counter[str]()
    for at in range(12):
        [batch] = served(world, 1, skip=2 + at)
        total += batch
        if "b" in batch:
            send(world, "b", 1, 1 / 8)
    assert 5 <= total["b"] <= 6, total  # of 48


def test_within_a_tenant_the_order_does_not_change() -> None:
    world = flooded()
    for tenant, priority in (("a", 0), ("b", 0), ("a", 5), ("b", 1)):
        value = [NUMBERS[tenant], priority]
        world.tell(world.arrival(increment, value, tenant=tenant, priority=priority))
    served(world, 1)
    orders = {name: [call[1] for call in world.history[2].column() if call[0] == value] for name, value in NUMBERS.items()}
    assert orders == {"a": [5, 0], "b": [1, 0], "c": []}


def test_a_tenant_alone_is_not_counted() -> None:
    world = flooded(("a", 9, 1.0))
    assert isinstance(world.engine.scheduler.pools["add_one"].queue._lanes, Lanes)
    world.finish_all()
    assert world.sizes(add_one) == [4, 4, 4, 4, 1]


def test_shares_are_forgotten_when_nothing_waits() -> None:
    world = flooded(("a", 9, 1.0), ("b", 3, 1e-9))
    world.finish_all()
    queue = world.engine.scheduler.pools["add_one"].queue
    assert queue.num_calls_by_tenant() == {}
    send(world, "b", 1)
    assert isinstance(queue._lanes, Lanes)


Row = Float[np.ndarray, "width"]


@dyorc.program(max_batch_size=4)
def scale(x: Float[np.ndarray, "batch width"]) -> Float[np.ndarray, "batch width"]:
    return x * 2


@dyorc.workflow
async def scaled(x: Row) -> Row:
    return scale(x)


def test_a_tenant_pays_for_its_small_batches() -> None:
    """Tenant `a` sends a different shape each time, so that none of its calls shares a batch; `b` fills its batches. T(n) is
    constant: each gets every second batch, and not `a` four for each of `b`.
    """
    world = World([scale])
    world.join(scale)
    for size in (1, 4, 2, 3) * 3:
        world.submit_all(scaled, [[0.0]] * size)
        while world.in_flight:
            world.finish(execute_s=0.1)
    world.submit_all(scaled, [[0.0]] * 8)
    world.tell(*(world.arrival(scaled, [1.0] * (at + 2), tenant="a") for at in range(12)))
    world.tell(*(world.arrival(scaled, [2.0], tenant="b") for _ in range(40)))
    world.history.clear()
    while len(world.history) < 12:
        world.finish(execute_s=0.1)
    whose = Counter(batch.column()[0][0] for batch in world.history[:12])
    assert abs(whose[1.0] - whose[2.0]) <= 1, whose


@dyorc.workflow
async def many(x: Vector) -> Vector:
    parts = [add_one(x) for _ in range(12)]
    await dyorc.gather(*parts)
    return parts[0]


def test_weights_are_those_of_tenants_not_of_requests() -> None:
    """One request with many calls gets no more than many requests with one."""
    world = flooded(("a", 20, 1.0))
    world.tell(world.arrival(many, [2, 2], tenant="b"), world.arrival(many, [2, 2], tenant="b"))
    assert served(world, 3) == [{"a": 2, "b": 2}] * 3
