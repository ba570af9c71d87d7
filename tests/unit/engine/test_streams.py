"""Workflows that yield: what is sent when, what is held back, and who waits for whom."""

import asyncio
import itertools
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.events import PartTaken
from dyorc.errors import (
    DeadlineError,
    EffectLostError,
    NondeterministicWorkflowError,
    ProgramError,
    ReplicaLostError,
    RequestCancelledError,
    WorkflowError,
    WorkflowLimitError,
)
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, check, double, extremes, increment_twice, is_large, send

PROGRAMS = [add_one, double, check, extremes, send]
NEVER = SpeculationConfig(enabled=False)
ALWAYS = SpeculationConfig(margin=0, max_wasted_ratio=0.95, min_probability=0.0, max_depth=8, burst_s=1e6)

log: list[str] = []


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    log.clear()


def world_with(speculation: SpeculationConfig = NEVER, max_untaken_parts: int = 16, **options: Any) -> World:
    """Replicas of all programs. Parts wait until the test takes them."""
    limits = {name: options.pop(name) for name in list(options) if name.startswith("max_")}
    config = EngineConfig(speculation=speculation, max_untaken_parts=max_untaken_parts, **limits)
    world = World(PROGRAMS, config, **{"is_taking": False, **options})
    for program in PROGRAMS:
        world.join(program)
        pool = world.engine.scheduler.pools[program.name]
        pool.latency.observe(1, 0.1)
        pool.sojourn_ns.add(0.1e9)
        pool.demand.add(0, 0)
    return world


def take_all(world: World, request_id: int) -> list[list[float]]:
    """Takes what can be taken; gives all parts so far."""
    while world.next_part(request_id) is not None:
        world.take_part(request_id)
    return [part.tolist() for part in world.part_values(request_id)]


def finish_all(world: World, request_id: int) -> list[list[float]]:
    """Runs and takes until there is nothing left to do."""
    while world.in_flight or world.next_part(request_id) is not None:
        take_all(world, request_id)
        if world.in_flight:
            world.finish()
    return take_all(world, request_id)


@dyorc.workflow
async def twice(x: Vector) -> AsyncIterator[Vector]:
    y = add_one(x)
    yield y
    log.append("went on")
    yield double(y)


@dyorc.workflow
async def five(x: Vector) -> AsyncGenerator[Vector, None]:
    for number in range(5):
        log.append(f"part {number}")
        x = add_one(x)
        yield x


@dyorc.workflow
async def guarded(x: Vector) -> AsyncIterator[Vector]:
    yield x
    if await dyorc.when(check(x), is_large, likely=True):
        yield add_one(x)
    else:
        yield double(x)


# When parts are sent


def test_a_part_is_sent_as_soon_as_its_tensors_are_there_and_the_workflow_does_not_wait_for_them() -> None:
    world = world_with(max_determinism_checks=0)
    request = world.submit(twice, [1, 2], explain=True)
    assert log == ["went on"]
    assert world.num_parts[request] == 0
    world.finish()
    assert world.num_parts[request] == 1
    world.finish()
    assert take_all(world, request) == [[2, 3], [4, 6]]
    assert world.answers[request] == []
    assert [step["index"] for step in world.stories[request] if step["event"] == "part"] == [0, 1]
    world.check_nothing_is_left()


def test_parts_keep_their_order_whichever_is_ready_first() -> None:
    @dyorc.workflow
    async def slow_first(x: Vector) -> AsyncIterator[Vector]:
        yield add_one(x)
        yield double(x)
        yield x

    world = world_with()
    request = world.submit(slow_first, [1, 2])
    world.finish(world.batches(double)[0])
    assert world.num_parts[request] == 0
    world.finish()
    assert world.num_parts[request] == 3
    assert take_all(world, request) == [[2, 3], [2, 4], [1, 2]]
    world.check_nothing_is_left()


def test_the_end_comes_when_all_parts_have_been_taken() -> None:
    world = world_with()
    request = world.submit(twice, [1, 2])
    world.finish_all()
    world.take_part(request)
    assert request not in world.answers
    world.take_part(request)
    assert world.answers[request] == []


def test_inputs_constants_fields_and_workflows_are_parts_too() -> None:
    @dyorc.workflow
    async def mixed(x: Vector) -> AsyncIterator[Vector]:
        yield x
        yield np.array([5, 6], np.float32)
        yield x[::-1]
        yield increment_twice(x)
        ends = extremes(x)
        if await dyorc.when(ends["low"], lambda low: bool(low > 0)):
            yield [0, float(await ends["high"])]

    world = world_with()
    request = world.submit(mixed, [1, 2])
    assert finish_all(world, request) == [[1, 2], [5, 6], [2, 1], [3, 4], [0, 2]]
    world.check_nothing_is_left()


def test_parts_are_grouped_as_declared() -> None:
    @dyorc.workflow
    async def ends(x: Vector) -> AsyncIterator[tuple[Vector, Float[np.ndarray, ""]]]:
        yield x, extremes(x)["low"]

    world = world_with(is_taking=True)
    request = world.submit(ends, [1, 2])
    world.finish_all()
    ((whole, low),) = world.part_values(request)
    assert (whole.tolist(), low) == ([1, 2], 1)


def test_a_stream_without_parts_ends() -> None:
    @dyorc.workflow
    async def nothing(x: Vector) -> AsyncIterator[Vector]:
        if await dyorc.when(x, is_large):
            yield x

    world = world_with()
    request = world.submit(nothing, [1, 2])
    assert world.answers[request] == []
    world.check_nothing_is_left()


# Guesses


@pytest.mark.parametrize(("x", "last"), [([10.0, 20.0], [11.0, 21.0]), ([1.0, 2.0], [2.0, 4.0])], ids=["right", "wrong"])
def test_a_part_on_a_guess_is_held_back_until_it_is_certain(x: list[float], last: list[float]) -> None:
    world = world_with(ALWAYS)
    request = world.submit(guarded, x)
    world.finish(world.batches(add_one)[0])  # the guess
    assert world.num_parts[request] == 1
    assert take_all(world, request) == [x]
    assert finish_all(world, request) == [x, last]
    assert world.answers[request] == []
    assert world.engine.speculator.num_speculations
    world.check_nothing_is_left()


@dyorc.workflow
async def goes_on(x: Vector) -> AsyncIterator[Vector]:
    if await dyorc.when(check(x), is_large, likely=True):
        yield x
        await add_one(x)
        await double(x)
    yield x


def test_a_guessed_part_is_sent_as_soon_as_it_is_certain_whatever_its_workflow_waits_for() -> None:
    world = world_with(ALWAYS)
    request = world.submit(goes_on, [10, 20])
    world.finish(world.batches(add_one)[0])
    assert not world.num_parts[request]
    world.finish(world.batches(check)[0])
    assert world.in_flight
    assert world.num_parts[request] == 1


def test_a_call_behind_a_guessed_part_is_a_guess() -> None:
    world = world_with(ALWAYS)
    world.submit(goes_on, [10, 20])
    (batch,) = world.batches(add_one)
    (call,) = world.engine.scheduler.batches[batch.action.batch_id].calls
    assert call.is_guess
    assert call.segment.probability() < 1


# Replays


_runs = itertools.count()


@pytest.fixture(autouse=True)
def _restart() -> None:
    global _runs
    _runs = itertools.count()


def is_again() -> bool:
    """False in the first run of a test, True in the next: what a workflow must not look at."""
    return next(_runs) % 2 == 1


@dyorc.workflow
async def other_part(x: Vector) -> AsyncIterator[Vector]:
    yield x
    yield double(x) if not is_again() else double(x)[::-1]


@dyorc.workflow
async def more_parts(x: Vector) -> AsyncIterator[Vector]:
    yield x
    if is_again():
        yield x


@dyorc.workflow
async def fewer_parts(x: Vector) -> AsyncIterator[Vector]:
    yield x
    if not is_again():
        yield x


@dyorc.workflow
async def part_before_a_call(x: Vector) -> AsyncIterator[Vector]:
    if is_again():
        yield x
        add_one(x)
    else:
        y = add_one(x)
        await y
        yield x


@dyorc.workflow
async def call_before_a_part(x: Vector) -> AsyncIterator[Vector]:
    if is_again():
        await add_one(x)
    yield x


@pytest.mark.parametrize(
    ("workflow", "words"),
    [
        (other_part, "came to part 1 of its answer with these arguments, where it had come to another part 1"),
        (more_parts, "came to part 1 of its answer with these arguments, where it had come to its end"),
        (fewer_parts, "came to its result with these arguments, where it had come to another part 1"),
        (part_before_a_call, "came to part 0 of its answer with these arguments, where it had come to a call of 'add_one'"),
        (call_before_a_part, "came to a call of 'add_one' with these arguments, where it had come to another part 0"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_check_of_determinism_compares_parts(workflow: dyorc.Workflow, words: str) -> None:
    world = world_with(is_taking=True)
    request = world.submit(workflow, [1, 2])
    world.finish_all()
    with pytest.raises(NondeterministicWorkflowError, match=words):
        world.result(request)
    assert world.part_values(request), "what was certain had been sent"
    world.check_nothing_is_left()


def test_without_the_check_a_stream_is_not_run_again() -> None:
    world = world_with(is_taking=True, max_determinism_checks=0)
    request = world.submit(other_part, [1, 2])
    world.finish_all()
    assert world.answers[request] == []


# Errors


def test_a_part_whose_tensors_fail_ends_the_request_after_the_parts_before_it() -> None:
    @dyorc.workflow
    async def bad_second(x: Vector) -> AsyncIterator[Vector]:
        try:
            yield add_one(x)
            yield check(x)
            yield x
            await double(x)
            log.append("never")
        finally:
            log.append("closed")

    world = world_with()
    request = world.submit(bad_second, [-1, 2])
    world.finish(world.batches(check)[0])
    assert not log
    world.finish(world.batches(add_one)[0])
    assert log == ["closed"]
    assert request not in world.answers
    assert take_all(world, request) == [[0, 3]]
    with pytest.raises(ProgramError, match="negative"):
        world.result(request)
    world.finish_all()
    world.check_nothing_is_left()


def test_what_the_generator_raises_ends_the_request_after_the_parts_before_it() -> None:
    @dyorc.workflow
    async def raises(x: Vector) -> AsyncIterator[Vector]:
        yield add_one(x)
        yield double(x)
        raise KeyError("lost")

    world = world_with()
    request = world.submit(raises, [1, 2])
    assert request not in world.answers
    assert finish_all(world, request) == [[2, 3], [2, 4]]
    with pytest.raises(WorkflowError, match=r"'raises' raised KeyError: 'lost' \(test_streams.py, line \d+\)"):
        world.result(request)
    world.check_nothing_is_left()


def test_a_failure_can_be_caught_between_parts() -> None:
    @dyorc.workflow
    async def careful(x: Vector) -> AsyncIterator[Vector]:
        try:
            await check(x)
        except ProgramError:
            yield x
        yield add_one(x)

    world = world_with()
    request = world.submit(careful, [-1, 2])
    assert finish_all(world, request) == [[-1, 2], [0, 3]]
    assert world.answers[request] == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda x: x[:1], r"yielded as part 1: 'output' has 1 for dimension|yielded as part 1"),
        (lambda x: "text", "yielded something that is no result"),
        (lambda x: None, "yielded something that is no result"),
    ],
    ids=["shape", "text", "nothing"],
)
def test_a_part_that_does_not_fit_is_the_workflows_error(value: Any, words: str) -> None:
    @dyorc.workflow
    async def misfit(x: Vector) -> AsyncIterator[Vector]:
        yield x
        yield value(x)

    world = world_with()
    request = world.submit(misfit, [1, 2])
    assert take_all(world, request) == [[1, 2]]
    with pytest.raises(WorkflowError, match=words):
        world.result(request)


def test_effects_run_to_their_end_when_a_part_fails() -> None:
    @dyorc.workflow
    async def sends(x: Vector) -> AsyncIterator[Vector]:
        send(x)
        yield check(x)

    world = world_with()
    request = world.submit(sends, [-1, 2])
    world.finish(world.batches(check)[0])
    with pytest.raises(ProgramError):
        world.result(request)
    world.finish()
    assert world.sizes(send) == [1]
    world.check_nothing_is_left()


def test_what_rests_on_open_decisions_is_taken_back_when_a_part_fails() -> None:
    @dyorc.workflow
    async def guesses(x: Vector) -> AsyncIterator[Vector]:
        yield check(x)
        if await dyorc.when(double(x), is_large, likely=True):
            yield add_one(send(add_one(x)))

    world = world_with(ALWAYS)
    request = world.submit(guesses, [-1, 2])
    world.finish(world.batches(add_one)[0])
    world.finish(world.batches(check)[0])
    with pytest.raises(ProgramError):
        world.result(request)
    world.finish_all()
    assert not world.sizes(send)
    world.check_nothing_is_left()


# Back-pressure


def test_a_path_stops_at_the_part_that_is_one_too_many_until_one_is_taken() -> None:
    world = world_with(max_untaken_parts=2)
    request = world.submit(five, [0, 0])
    world.finish_all()
    assert log == ["part 0", "part 1", "part 2"]  # the third is being made and not sent
    assert world.num_parts[request] == 2
    world.take_part(request)
    assert log[3:] == ["part 3"]
    assert world.num_parts[request] == 3
    world.finish_all()
    assert world.num_parts[request] == 3


def test_nothing_spins_while_a_path_waits() -> None:
    world = world_with(max_untaken_parts=1)
    request = world.submit(five, [0, 0])
    world.finish_all()
    num_handled = len(log)
    for _ in range(3):
        world.tell(PartTaken(request, 7))  # of no part that was sent
        world.advance(1)
    assert len(log) == num_handled
    assert finish_all(world, request) == [[number, number] for number in range(1, 6)]
    world.check_nothing_is_left()


def test_an_endless_generator_without_calls_stops_when_nobody_takes() -> None:
    @dyorc.workflow
    async def endless(x: Vector) -> AsyncIterator[Vector]:
        while True:
            yield x

    world = world_with(max_untaken_parts=3)
    request = world.submit(endless, [1, 2])
    assert world.num_parts[request] == 3
    world.take_part(request)
    assert world.num_parts[request] == 4
    world.cancel(request)
    world.check_nothing_is_left()


def test_a_stream_has_at_most_as_many_parts_as_a_request_may_make_calls() -> None:
    @dyorc.workflow
    async def endless(x: Vector) -> AsyncIterator[Vector]:
        while True:
            yield x

    world = world_with(max_calls_per_request=10)
    request = world.submit(endless, [1, 2])
    assert len(take_all(world, request)) == 10
    with pytest.raises(WorkflowLimitError, match="more than 10 parts"):
        world.result(request)


def test_a_guess_waits_for_room_and_a_replay_needs_none_for_what_was_sent() -> None:
    world = world_with(ALWAYS, max_untaken_parts=1)
    request = world.submit(guarded, [1, 2])
    assert all(path.awaits_room and path.assumed for path in root_of(world, request).paths)
    world.finish(world.batches(check)[0])  # it was wrong: the workflow is run again, past the part that was sent
    assert world.num_parts[request] == 1
    assert finish_all(world, request) == [[1, 2], [2, 4]]
    assert world.answers[request] == []
    world.check_nothing_is_left()


def root_of(world: World, request_id: int) -> Any:
    return world.engine.tasks.requests[request_id].root


# Ends in mid-stream


@pytest.mark.parametrize("end", ["cancel", "deadline"])
@pytest.mark.parametrize("place", ["at a yield", "at a value", "at a decision", "in a helper"])
def test_a_request_that_ends_in_mid_stream_closes_its_generator(end: str, place: str) -> None:
    async def helper(x: Any) -> AsyncIterator[Any]:
        try:
            yield x
            yield x
        finally:
            log.append("helper closed")

    @dyorc.workflow
    async def interrupted(x: Vector) -> AsyncIterator[Vector]:
        try:
            yield x
            match place:
                case "at a value":
                    await add_one(x)
                case "at a decision":
                    await dyorc.when(add_one(x), is_large)
                case "in a helper":
                    async for part in helper(x):
                        yield part
                case _:
                    yield add_one(x)
        finally:
            log.append("closed")
            await double(x)
            log.append("never")

    world = world_with(max_untaken_parts=1)
    request = world.submit(interrupted, [1, 2], deadline_s=5.0)
    if end == "cancel":
        world.cancel(request)
    else:
        world.advance(6)
    assert log == (["helper closed"] if place == "in a helper" else []) + ["closed"] or log == ["closed", "helper closed"]
    with pytest.raises(RequestCancelledError if end == "cancel" else DeadlineError):
        world.result(request)
    assert request not in world.waiting_parts
    world.finish_all()
    world.check_nothing_is_left()


def test_a_part_that_was_taken_after_the_end_is_of_no_interest() -> None:
    world = world_with()
    request = world.submit(five, [0, 0])
    world.cancel(request)
    world.tell(PartTaken(request, 0), PartTaken(99, 0))
    world.finish_all()
    world.check_nothing_is_left()


def test_no_event_loop_gets_hold_of_a_generator() -> None:
    """asyncio's loop would close generators in its own way, later, and fail."""

    async def run() -> int:
        world = world_with(max_untaken_parts=1)
        request = world.submit(five, [0, 0])
        loop = asyncio.get_running_loop()
        num_known = len(loop._asyncgens)  # pyright: ignore
        hooks = sys.get_asyncgen_hooks()
        assert hooks.finalizer is not None
        world.cancel(request)
        world.finish_all()
        world.check_nothing_is_left()
        return num_known

    assert asyncio.run(run()) == 0


# Stored tensors


def test_tensors_of_a_part_are_kept_until_it_is_taken_and_then_released() -> None:
    world = world_with(max_untaken_parts=2, is_storing=True)
    request = world.submit(five, [0, 0])
    world.finish_all()
    before = len(world.stored)
    world.take_part(request)
    assert len(world.stored) == before - 1
    world.finish_all()
    for _ in range(3):
        world.take_part(request)
        world.finish_all()
        assert len(world.stored) <= 4  # the input, two that wait, one that is being made
    assert take_all(world, request) == [[number, number] for number in range(1, 6)]
    world.check_nothing_is_left()


@pytest.mark.parametrize("taken", [0, 1])
def test_a_part_that_was_lost_before_it_was_taken_is_made_again(taken: int) -> None:
    world = world_with(is_placing=True)
    request = world.submit(five, [0, 0], explain=True)
    world.finish_all()
    for _ in range(taken):
        world.take_part(request)
    world.leave("add_one#0")
    assert not world.take_part(request)
    world.join(add_one)
    assert finish_all(world, request) == [[number, number] for number in range(1, 6)]
    assert world.answers[request] == []
    assert "recomputed" in [step["event"] for step in world.stories[request]]
    world.check_nothing_is_left()


def test_a_part_that_is_lost_too_often_ends_the_request() -> None:
    world = world_with(is_placing=True, max_attempts=2)
    request = world.submit(five, [0, 0])
    world.finish_all()
    world.take_part(request)
    for _ in range(2):
        for block in [block for block in world.stored if block[0]]:
            world.vanish(block)
        while request not in world.answers and world.next_part(request) is not None:
            world.take_part(request)
        world.finish_all()
    with pytest.raises(ReplicaLostError):
        world.result(request)
    assert world.part_values(request)
    world.check_nothing_is_left()


def test_a_part_that_cannot_be_made_again_ends_the_request() -> None:
    @dyorc.workflow
    async def sends(x: Vector) -> AsyncIterator[Vector]:
        yield add_one(x)
        yield send(x)

    world = world_with(is_placing=True)
    request = world.submit(sends, [1, 2])
    world.finish_all()
    world.take_part(request)
    world.leave("send#4")
    assert not world.take_part(request)
    with pytest.raises(EffectLostError):
        world.result(request)
    assert len(world.part_values(request)) == 1
    world.check_nothing_is_left()


def test_a_part_that_is_there_and_cannot_be_read_is_not_sent_for_ever() -> None:
    world = world_with(is_storing=True, max_attempts=3)
    request = world.submit(five, [0, 0])
    world.finish()
    for _ in range(3):
        (tensor,) = world.waiting_parts[request].pop(0)
        world.tell(PartTaken(request, 0, [(tensor.holder, tensor.block)]))
    with pytest.raises(ReplicaLostError, match="part 0 of the answer was lost 3 times"):
        world.result(request)


# Streams within workflows


def test_a_streaming_workflow_cannot_be_called_from_within_a_workflow() -> None:
    @dyorc.workflow
    async def caller(x: Vector) -> Vector:
        try:
            return five(x)
        except WorkflowError:
            return x

    @dyorc.workflow
    async def streaming_caller(x: Vector) -> AsyncIterator[Vector]:
        yield x
        yield five(x)

    world = world_with(is_taking=True)
    for workflow in (caller, streaming_caller):
        request = world.submit(workflow, [1, 2])
        with pytest.raises(WorkflowError, match=r"'five' answers in parts; only a request can run it.*line \d+"):
            world.result(request)
    world.check_nothing_is_left()
