"""Batches by cost under any arrivals, against a plain greedy bin by hand: the first call that waits, then calls of its shape in
their order, until the next would be one too many or cost too much.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig
from tests.unit.engine.driver import World

MAX_SIZE, MAX_COST = 4, 9.0


@dyorc.program(max_batch_size=MAX_SIZE, max_batch_cost=MAX_COST, cost=lambda x: 0.7 * x.shape[0])
def fill(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x


@dyorc.workflow
async def filled(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return fill(x)


def next_bin(waiting: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Takes the next batch out of the waiting calls (number, length)."""
    length = waiting[0][1]
    batch: list[tuple[int, int]] = []
    for call in list(waiting):
        if call[1] != length:
            continue
        if len(batch) == MAX_SIZE or (batch and 0.7 * length * (len(batch) + 1) > MAX_COST):
            break
        batch.append(call)
        waiting.remove(call)
    return batch


@settings(max_examples=80)
@given(st.lists(st.one_of(st.integers(0, 15), st.none()), max_size=60))
def test_batches_are_those_of_a_greedy_bin(steps: list[int | None]) -> None:
    """A step is a request with a row of this length, or (None) the end of the running batch."""
    world = World([fill], EngineConfig(hold=False, max_in_flight_batches=1))
    world.join(fill)
    waiting: list[tuple[int, int]] = []
    expected: list[list[tuple[int, int]]] = []
    is_busy = False
    requests: list[int] = []
    for step in (*steps, *[None] * len(steps)):
        if step is not None:
            requests.append(world.submit(filled, [float(len(requests))] * step))
            waiting.append((len(requests) - 1, step))
        elif world.in_flight:
            world.finish(execute_s=0.01 + 0.001 * world.oldest().size)
            is_busy = False
        if waiting and not is_busy:
            expected.append(next_bin(waiting))
            is_busy = True
    sent = [[(int(row[0]) if row else None, len(row)) for row in batch.column()] for batch in world.history]
    assert sent == [[(number if length else None, length) for number, length in batch] for batch in expected]
    assert not world.in_flight
    assert len(world.answers) == len(requests), "nobody starves"


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 15)), min_size=1, max_size=50),
    st.integers(1, 3),
    st.booleans(),
)
def test_limits_hold_with_tenants_holds_and_several_replicas(calls: list[tuple[str, int]], num_replicas: int, hold: bool) -> None:
    world = World([fill], EngineConfig(hold=hold))
    for _ in range(num_replicas):
        world.join(fill)
    left = list(calls)
    while left or world.in_flight:
        burst, left = left[:5], left[5:]
        world.tell(*(world.arrival(filled, [0.0] * length, tenant=tenant) for tenant, length in burst))
        for batch in list(world.in_flight.values())[: 1 + num_replicas // 2]:
            world.advance(0.01)
            cost = 0.7 * sum(len(row) for row in batch.column())
            world.finish(batch, execute_s=0.004 + 0.001 * cost)
        world.advance(0.05)
    for batch in world.history:
        lengths = [len(row) for row in batch.column()]
        assert len(set(lengths)) == 1
        assert batch.size == 1 or (batch.size <= MAX_SIZE and 0.7 * sum(lengths) <= MAX_COST)
    assert len(world.answers) == len(calls)
