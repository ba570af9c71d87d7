"""What a workflow may do, and how it fails."""

import asyncio
from collections.abc import Generator

import numpy as np
import pytest

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.model.program_call import CallState
from dyorc.errors import (
    ForeignAwaitError,
    NotDeployedError,
    ProgramError,
    WorkflowError,
    WorkflowLimitError,
)
from tests.unit.engine.driver import World
from tests.unit.engine.programs import (
    Vector,
    add,
    add_one,
    as_pair,
    cascade,
    check,
    double,
    extremes,
    increment,
    is_large,
    split,
)

PROGRAMS = (add_one, double, check, add, extremes, split, as_pair)


@pytest.fixture
def world() -> World:
    world = World(PROGRAMS)
    for program in PROGRAMS:
        world.join(program)
    return world


def run(world: World, workflow: dyorc.Workflow, *values: object, **statics: object) -> object:
    request_id = world.submit(workflow, *values, **statics)
    world.finish_all()
    return world.result(request_id)


@pytest.mark.parametrize(("x", "expected"), [([0, 1], [0, 2]), ([9, 9], [10, 10])])
def test_when_decides_what_runs(world: World, x: list[float], expected: list[float]) -> None:
    assert np.array_equal(run(world, cascade, x), expected)


def test_a_decision_does_not_start_what_it_does_not_choose(world: World) -> None:
    run(world, cascade, [9, 9])
    assert world.sizes(double) == []


@dyorc.workflow
async def route(x: Vector) -> Vector:
    match await dyorc.choose(x, lambda value: "up" if value[0] > 0 else "down"):
        case "up":
            return add_one(x)
        case _:
            return double(x)


def test_choose_picks_one_of_several(world: World) -> None:
    assert np.array_equal(run(world, route, [1, 5]), [2, 6])
    assert np.array_equal(run(world, route, [-1, 5]), [-2, 10])


@dyorc.workflow
async def count_up(x: Vector) -> Vector:
    while not await dyorc.when(x, is_large):
        x = add_one(x)
    return x


def test_a_loop_runs_as_often_as_the_data_says(world: World) -> None:
    assert np.array_equal(run(world, count_up, [0, 0]), [6, 6])
    assert world.sizes(add_one) == [1] * 6


@dyorc.workflow
async def largest(x: Vector) -> Vector:
    candidates = [add_one(x), double(x), add(x, x)]
    values = await dyorc.gather(*candidates)
    return values[int(np.argmax([value.sum() for value in values]))]


def test_gather_returns_values_in_the_order_of_its_arguments(world: World) -> None:
    assert np.array_equal(run(world, largest, [0, 0]), [1, 1])


@dyorc.workflow
async def gather_failures(x: Vector) -> Vector:
    try:
        await dyorc.gather(double(x), check(x), add(x, np.zeros(3, np.float32)))
    except ProgramError as error:
        return x if error.program == "check" else add_one(x)
    return double(x)


def test_gather_raises_the_first_failure_in_the_order_of_its_arguments(world: World) -> None:
    assert np.array_equal(run(world, gather_failures, [-1, 0]), [-1, 0])


@dyorc.workflow
async def gather_the_same_twice(x: Vector) -> Vector:
    y = add_one(x)
    a, b = await dyorc.gather(y, y)
    return a + b


def test_gather_takes_a_ref_twice(world: World) -> None:
    assert np.array_equal(run(world, gather_the_same_twice, [0, 1]), [2, 4])


@dyorc.workflow
async def use_fields(x: Vector) -> Vector:
    found = extremes(x)
    return as_pair(found["high"], found.low)


@dyorc.workflow
async def use_views(x: Vector) -> Vector:
    return as_pair(x[1], add_one(x[::-1])[-1])


@dyorc.workflow
async def use_tuple(x: Vector) -> Vector:
    first, second = split(x)
    return as_pair(second, first)


@pytest.mark.parametrize(("workflow", "expected"), [(use_fields, [7, 3]), (use_views, [7, 4]), (use_tuple, [7, 3])])
def test_parts_of_a_value_are_passed_on_without_waiting(world: World, workflow: dyorc.Workflow, expected: list[float]) -> None:
    assert np.array_equal(run(world, workflow, [3, 7]), expected)


@dyorc.workflow
async def view_out_of_range(x: Vector) -> Vector:
    return add(x, x[5:7])


def test_a_view_that_does_not_fit_fails_the_call_with_both_shapes(world: World) -> None:
    with pytest.raises(
        ProgramError, match=r"called program 'add' with inputs that do not fit.*'y' has size 0 in dimension 0, expected 2"
    ):
        run(world, view_out_of_range, [0, 0])


@dyorc.workflow
async def await_view_out_of_range(x: Vector) -> Vector:
    await x[5]
    return x


def test_the_error_of_an_unreadable_value_names_the_line_that_awaits_it(world: World) -> None:
    line = await_view_out_of_range.function.__code__.co_firstlineno + 2
    with pytest.raises(WorkflowError, match=rf"IndexError.*test_workflows\.py, line {line}\)"):
        run(world, await_view_out_of_range, [0, 0])


@dyorc.workflow
async def use_truth(x: Vector) -> Vector:
    return add_one(x) if add_one(x) else x


def test_using_a_ref_as_a_bool_is_an_error_that_says_what_to_write(world: World) -> None:
    with pytest.raises(WorkflowError, match=r"use_truth.*TypeError.*no truth value yet.*dyorc\.when.*line \d+"):
        run(world, use_truth, [0, 0])


@dyorc.workflow
async def twice_in_tasks(x: Vector) -> Vector:
    first, second = count_up(x), count_up(add_one(x))
    return add(first, second)


def test_a_workflow_calls_workflows_as_tasks_that_advance_side_by_side(world: World) -> None:
    assert np.array_equal(run(world, twice_in_tasks, [0, 0]), [12, 12])
    assert max(world.sizes(add_one)) == 2


@dyorc.workflow
async def fallback(x: Vector) -> Vector:
    try:
        return await check(x)
    except ProgramError:
        return double(x)


@dyorc.workflow
async def fallback_of_decision(x: Vector) -> Vector:
    try:
        if await dyorc.when(check(x), is_large):
            return x
    except ProgramError:
        return double(x)
    return add_one(x)


@dyorc.workflow
async def fallback_of_task(x: Vector) -> Vector:
    try:
        return await view_out_of_range(x)
    except ProgramError:
        return double(x)


@pytest.mark.parametrize("workflow", [fallback, fallback_of_decision, fallback_of_task])
def test_a_workflow_may_catch_a_failure_and_call_on(world: World, workflow: dyorc.Workflow) -> None:
    assert np.array_equal(run(world, workflow, [-1, 2]), [-2, 4])


@dyorc.workflow
async def catch_predicate(x: Vector) -> Vector:
    try:
        await dyorc.when(x, lambda value: value[9] > 0)
    except WorkflowError as error:
        return add_one(x) if "IndexError" in str(error) else x
    return x


def test_a_workflow_may_catch_what_its_predicate_raised(world: World) -> None:
    assert np.array_equal(run(world, catch_predicate, [0, 0]), [1, 1])


@dyorc.workflow
async def predicate_without_bool(x: Vector) -> Vector:
    return x if await dyorc.when(x, lambda value: value) else add_one(x)


def test_the_error_names_a_predicate_that_does_not_return_a_bool(world: World) -> None:
    place = r"\(test_workflows.py, line \d+\)"
    text = rf"workflow 'predicate_without_bool': the predicate of a decision returned ndarray .* expected a bool {place}"
    with pytest.raises(WorkflowError, match=text):
        run(world, predicate_without_bool, [0, 0])


@dyorc.workflow
async def predicate_from_a_library(x: Vector) -> Vector:
    return x if await dyorc.when(x, np.linalg.inv) else add_one(x)


def test_an_error_in_a_library_names_the_workflows_line(world: World) -> None:
    line = predicate_from_a_library.function.__code__.co_firstlineno + 2
    with pytest.raises(WorkflowError, match=rf"LinAlgError.*test_workflows\.py, line {line}\)"):
        run(world, predicate_from_a_library, [0, 0])


@dyorc.workflow
async def chain_after_failure(x: Vector) -> Vector:
    return double(add(add_one(x), check(x)))


def test_a_failure_fails_dependent_calls_without_running_them(world: World) -> None:
    with pytest.raises(ProgramError, match="program 'check' failed: ValueError: a number is negative"):
        run(world, chain_after_failure, [-1, 0])
    assert world.sizes(add) == []
    assert world.sizes(double) == []


@dyorc.workflow
async def raise_key_error(x: Vector) -> Vector:
    await add_one(x)
    raise KeyError("lost")


def test_an_exception_of_the_workflow_itself_names_its_line(world: World) -> None:
    line = raise_key_error.function.__code__.co_firstlineno + 3
    with pytest.raises(WorkflowError, match=rf"'raise_key_error' raised KeyError: 'lost' \(test_workflows\.py, line {line}\)"):
        run(world, raise_key_error, [0, 0])


@dyorc.workflow
async def sleep_zero(x: Vector) -> Vector:
    await asyncio.sleep(0)
    return x


class Foreign:
    def __await__(self) -> Generator[str, None, None]:
        yield "something"


async def helper() -> None:
    await Foreign()


@dyorc.workflow
async def foreign_in_helper(x: Vector) -> Vector:
    await helper()
    return x


@pytest.mark.parametrize(
    ("workflow", "what", "line"),
    [
        (sleep_zero, "nothing", sleep_zero.function.__code__.co_firstlineno + 2),
        (foreign_in_helper, "a str", helper.__code__.co_firstlineno + 1),
    ],
)
def test_awaiting_something_foreign_names_the_line(world: World, workflow: dyorc.Workflow, what: str, line: int) -> None:
    with pytest.raises(ForeignAwaitError, match=rf"awaits {what}.*line {line}\)"):
        run(world, workflow, [0, 0])


@dyorc.workflow
async def endless(x: Vector) -> Vector:
    while True:
        try:
            x = add_one(x)
        except WorkflowError:
            return x


def test_a_workflow_that_makes_too_many_calls_fails_even_if_it_catches_that(world: World) -> None:
    world = World(PROGRAMS, EngineConfig(max_calls_per_request=50))
    world.join(add_one)
    with pytest.raises(
        WorkflowLimitError,
        match=r"more than 50 calls \(engine\.max_calls_per_request\), the last of 'add_one' \(test_workflows\.py, line \d+\)",
    ):
        run(world, endless, [0, 0])
    world.check_nothing_is_left()


@dyorc.workflow
async def recursive(x: Vector) -> Vector:
    return recursive(x)


def test_endless_recursion_of_workflows_ends_at_the_limit() -> None:
    world = World((), EngineConfig(max_calls_per_request=50))
    with pytest.raises(WorkflowLimitError):
        run(world, recursive, [0, 0])


def test_a_program_that_is_not_deployed_is_named_with_those_that_are() -> None:
    world = World([double])
    with pytest.raises(NotDeployedError, match=r"'add_one' is not deployed; deployed are \['double'\]"):
        run(world, increment, [0, 0])


@dyorc.workflow
async def whole_of_outputs(x: Vector) -> Vector:
    return add_one(extremes(x))


def test_passing_all_outputs_where_one_is_needed_says_how_to_pick(world: World) -> None:
    with pytest.raises(WorkflowError, match=r"needs one tensor, got the whole of \['low', 'high'\]; pick one, like ref\['low'\]"):
        run(world, whole_of_outputs, [0, 0])


@dyorc.workflow
async def returns_wrong_shape(x: Vector) -> Vector:
    return x[:1]


def test_a_result_that_is_not_what_the_workflow_declares_is_an_error(world: World) -> None:
    with pytest.raises(WorkflowError, match=r"'returns_wrong_shape' returned: 'output' has size 1 in dimension 0, expected 2"):
        run(world, returns_wrong_shape, [0, 0])


@dyorc.workflow
async def scaled(x: Vector, *, times: int = 2) -> Vector:
    for _ in range(times):
        x = double(x)
    return x


@dyorc.workflow
async def scaled_in_task(x: Vector) -> Vector:
    return scaled(x, times=3)


def test_parameters_may_be_keyword_only(world: World) -> None:
    assert np.array_equal(run(world, scaled, [1, 1], times=1), [2, 2])
    assert np.array_equal(run(world, scaled_in_task, [1, 1]), [8, 8])


@dyorc.workflow
async def race(x: Vector) -> Vector:
    slow = double(double(x))
    quick = await add_one(x)
    if quick[0] > 0:
        return quick
    return slow


def test_calls_that_nobody_needs_are_withdrawn_when_the_task_ends(world: World) -> None:
    request_id = world.submit(race, [1, 1])
    inner = world.batches(double)[0]
    (running,) = world.engine.scheduler.batches[inner.action.batch_id].calls
    world.finish(world.batches(add_one)[0])
    assert np.array_equal(world.result(request_id), [2, 2])
    assert running.state is CallState.WITHDRAWN
    world.finish(inner)
    assert world.sizes(double) == [1], "the second call was to wait for the first; it must not start"
    world.check_nothing_is_left()


def test_calls_that_the_result_needs_go_on(world: World) -> None:
    assert np.array_equal(run(world, race, [-1, 1]), [-4, 4])


def test_a_literal_travels_with_its_call(world: World) -> None:
    @dyorc.workflow
    async def plus_literal(x: Vector) -> Vector:
        return add(x, [10, 20])

    assert np.array_equal(run(world, plus_literal, [1, 2]), [11, 22])
