"""Whose calls go first, by each queue discipline. One replica takes one call at a time, a second each."""

from typing import Any

import pytest

import dyorc
from dyorc.config import EngineConfig
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, Vectors


@dyorc.program(max_batch_size=1)
def step(x: Vectors) -> Vectors:
    return x + 1


@dyorc.workflow
async def once(x: Vector) -> Vector:
    return step(x)


@dyorc.workflow
async def four_times(x: Vector) -> Vector:
    value = x
    for _ in range(4):
        value = await step(value)  # so the next call is not known before
    return value


@dyorc.workflow
async def three_at_once(x: Vector) -> tuple[Vector, Vector, Vector]:
    return step(x), step(x), step(x)


def world_with(discipline: Any, **limits: Any) -> World:
    config = EngineConfig(queue_discipline=discipline, hold=False, early_drop=False, max_in_flight_batches=1, **limits)
    world = World([step], config)
    world.join(step)
    return world


def work_off(world: World) -> list[int]:
    """Finishes all batches, a second each. Returns the requests in the order of their answers."""
    known = set(world.answers)
    order: list[int] = []
    while world.in_flight:
        world.advance(1)
        world.finish(execute_s=1)
        order += [request_id for request_id in world.answers if request_id not in known]
        known.update(order)
    return order


def taught(discipline: Any, **limits: Any) -> World:
    """Makes a world that knows how much work each workflow is."""
    world = world_with(discipline, **limits)
    for workflow in (once, four_times, three_at_once) * 2:
        world.submit(workflow, [0, 0])
        work_off(world)
    return world


ARRIVALS = (once, four_times, three_at_once, once)
"""The first is with the replica; the others wait, a hundredth of a second apart."""


@pytest.mark.parametrize(
    ("discipline", "order"),
    [
        ("oldest_request", [0, 1, 2, 3]),
        ("oldest_call", [0, 2, 3, 1]),
        ("least_attained", [0, 2, 3, 1]),
        ("least_slack", [0, 2, 1, 3]),
        ("shortest_remaining", [0, 3, 2, 1]),
    ],
)
def test_each_discipline_has_its_order(discipline: str, order: list[int]) -> None:
    world = taught(discipline)
    requests: list[int] = []
    for workflow in ARRIVALS:
        requests.append(world.submit(workflow, [0, 0]))
        world.advance(0.01)
    assert [requests.index(request_id) for request_id in work_off(world)] == order
    world.check_nothing_is_left()


@pytest.mark.parametrize("discipline", ["oldest_call", "least_attained", "least_slack", "shortest_remaining"])
def test_priorities_and_near_deadlines_go_first_all_the_same(discipline: str) -> None:
    world = taught(discipline)
    world.submit(once, [0, 0])
    plain = [world.submit(each, [0, 0]) for each in (once, four_times)]
    urgent = [world.submit(four_times, [0, 0], deadline_s=after_s) for after_s in (9, 8)]
    first = world.submit(four_times, [0, 0], priority=1)
    order = work_off(world)
    assert order[1:4] == [first, urgent[1], urgent[0]]
    assert set(order[4:]) == set(plain)


def num_overtaking(max_overtaking_s: float) -> int:
    """Returns how many short requests overtake a long one, if another comes each second."""
    world = taught("shortest_remaining", max_overtaking_s=max_overtaking_s)
    world.submit(once, [0, 0])
    waiting = world.submit(four_times, [0, 0])
    num_others = 0
    while waiting not in world.answers and num_others < 100:
        num_others += 1
        world.submit(once, [0, 0])
        world.advance(1)
        world.finish(execute_s=1)
    return num_others


def test_a_long_request_waits_for_no_more_than_its_lag() -> None:
    assert 4 <= num_overtaking(30) <= 12  # its four calls, each at most as late as the work that is left
    assert num_overtaking(0.3) < num_overtaking(30)  # a lag is at most a third of this


def test_what_is_known_of_a_workflow_leaves_with_it() -> None:
    world = taught("shortest_remaining")
    placer: Any = world.engine.scheduler._placer  # type: ignore[attr-defined]
    assert {mark[0] for mark in placer._left_ns} == {"once", "four_times", "three_at_once"}
    placer.forget("once")
    assert {mark[0] for mark in placer._left_ns} == {"four_times", "three_at_once"}


def test_an_unknown_discipline_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"queue_discipline\n  Input should be 'oldest_request', .*input_value='youngest'"):
        EngineConfig.model_validate({"queue_discipline": "youngest"})
