"""Requests with many tasks, side by side: the oldest ends first, and those with little to do wait for none of them."""

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.events import TimerFired
from tests.unit.engine.driver import World

_WIDTH = 200
_MAX_STEPS = 16


@dyorc.program(max_batch_size=64)
def add_one(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    return x + 1


@dyorc.workflow
async def once(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    return add_one(x)


@dyorc.workflow
async def wide(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    return np.float32(sum(await dyorc.gather(*dyorc.map(once, [x] * _WIDTH))))


def _progress(world: World, request_ids: list[int]) -> list[int]:
    """Returns how many calls of programs each request has made."""
    requests = world.engine.tasks.requests
    counts: list[int] = []
    for request_id in request_ids:
        root = requests[request_id].root
        assert root is not None
        counts.append(sum(len(list(task.journal.entries)) for task in root.journal.entries))  # pyright: ignore[reportAttributeAccessIssue]
    return counts


def test_the_oldest_of_many_wide_requests_goes_first() -> None:
    world = World([add_one], EngineConfig(max_steps_per_turn=_MAX_STEPS))
    events = [world.arrival(wide, float(at)) for at in range(8)]
    ids = [event.request_id for event in events]
    world.engine.handle(events, world.now_ns + 1)
    turn = 0
    while _progress(world, ids)[0] < _WIDTH:
        turn += 1
        world.engine.handle([TimerFired()], world.now_ns + 1 + turn)
    progress = _progress(world, ids)
    assert progress[-1] < _WIDTH // 2, "all went on equally"
    assert min(progress) >= turn, "none stands still"
    assert progress == sorted(progress, reverse=True)


def test_a_small_request_waits_for_no_wide_one() -> None:
    world = World([add_one], EngineConfig(max_steps_per_turn=_MAX_STEPS))
    events = [world.arrival(wide, float(at)) for at in range(20)]
    small = world.arrival(once, 1.0)
    world.engine.handle([*events, small], world.now_ns + 1)
    root = world.engine.tasks.requests[small.request_id].root
    assert root is not None
    assert len(list(root.journal.entries)) == 1, "its call is made in the turn in which it arrives"


def test_all_wide_requests_are_answered() -> None:
    world = World([add_one], EngineConfig(max_steps_per_turn=_MAX_STEPS))
    world.join(add_one)
    ids = world.submit_all(wide, [0.0, 1.0, 2.0])
    while world.in_flight:
        world.finish()
    assert [float(world.result(request_id)) for request_id in ids] == [_WIDTH, 2 * _WIDTH, 3 * _WIDTH]
    world.check_nothing_is_left()
