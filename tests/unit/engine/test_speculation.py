"""Which guesses run, when, and what becomes of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dyorc
from dyorc.authoring.decisions import Decision
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.actions import FormReason
from dyorc.engine.guessing.prediction import Distribution, Predictor
from dyorc.engine.model.calls import CallState
from dyorc.engine.model.cells import Outcome
from dyorc.engine.model.journal import Context
from dyorc.engine.scheduling.foresight import Foresight
from dyorc.engine.scheduling.processors import Processor
from dyorc.errors import DyOrcError, ProgramError, WorkflowLimitError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add, add_one, check, double, put, scale, send

PROGRAMS = (add_one, double, check, scale, add, send, put)


class Says:
    """Foretells every decision alike."""

    def __init__(self, distribution: Distribution) -> None:
        self.distribution = distribution

    def predict(self, decision: Decision, context: Context) -> Distribution:
        return self.distribution

    def observe(self, decision: Decision, context: Context, outcome: Outcome) -> None:
        pass


YES = Says({True: 0.9, False: 0.05})
NO = Says({False: 0.9, True: 0.05})
BOTH = Says({True: 0.5, False: 0.5})


def world_with(
    predictor: Predictor | None = YES,
    programs: Sequence[dyorc.Program] = PROGRAMS,
    *,
    is_storing: bool = False,
    is_fetching: bool = True,
    hold: bool = False,
    limits: dict[str, Any] | None = None,
    num_cores: int = 0,
    **speculation: float,
) -> World:
    """A replica of each program, and T(n) = 0.1 s + 0.01 s * n is known of each. They share `num_cores`, unless that is 0."""
    config = EngineConfig(hold=hold, speculation=SpeculationConfig.model_validate(speculation), **(limits or {}))
    world = World(PROGRAMS, config, is_storing, is_fetching, predictor)
    for program in programs:
        world.join(program, num_cores=num_cores)
        warm(world, program)
    return world


def warm(world: World, program: dyorc.Program) -> None:
    pool = world.engine.scheduler.pools[program.name]
    for size in (1, 2):
        pool.latency.observe(size, 0.1 + 0.01 * size)
    pool.sojourn_ns.add(0.11e9)
    pool.demand.add(0, 0)  # its rate is known: 0


def is_good(x: np.ndarray) -> bool:
    return bool(x[0] > 0)


@dyorc.workflow
async def guarded(x: Vector) -> Vector:
    """`double` for what `check` finds good, else `add_one`."""
    if await dyorc.when(check(x), is_good):
        return double(x)
    return add_one(x)


GOOD, BAD = [1, 2], [0, 2]


def counts(world: World) -> tuple[int, int, int]:
    speculator = world.engine.speculator
    return speculator.num_speculations, speculator.num_commits, speculator.num_squashes


# Right and wrong


def test_a_guard_and_what_it_guards_start_together_once_their_times_and_outcomes_are_known() -> None:
    world = World([check, double, add_one])
    for program in world.programs:
        world.join(program)
    for _ in range(20):
        world.submit(guarded, GOOD)
        while world.in_flight:
            world.advance(0.1)
            world.finish(execute_s=0.1)
    request_id = world.submit(guarded, GOOD)
    assert [len(world.batches(program)) for program in world.programs] == [1, 1, 0]
    assert world.batches(double)[0].action.reason is FormReason.GUESSED
    world.finish(world.batches(double)[0])
    assert request_id not in world.answers, "the guard has not spoken yet"
    world.finish(world.batches(check)[0])
    assert np.array_equal(world.result(request_id), [2, 4])
    assert world.sizes(double) == [1] * 21, "what was guessed right is not run again"
    world.check_nothing_is_left()


def test_nothing_is_guessed_of_programs_whose_time_is_not_known() -> None:
    world = World(PROGRAMS, predictor=YES)
    for program in PROGRAMS:
        world.join(program)
    world.submit(guarded, GOOD)
    assert world.sizes(double) == []
    assert len(world.engine.scheduler.pools["double"].guesses) == 1


def test_a_wrong_guess_that_runs_is_ignored_and_its_tensors_are_released() -> None:
    world = world_with(is_storing=True)
    request_id = world.submit(guarded, BAD)
    late = world.batches(double)[0]
    world.finish(world.batches(check)[0])
    world.finish(world.batches(add_one)[0])
    assert np.array_equal(world.result(request_id), [1, 3])
    assert len(world.stored) == 1, "its input, which it may still read"
    world.finish(late)
    assert counts(world) == (1, 0, 1)
    world.check_nothing_is_left()


def test_a_wrong_guess_that_has_ended_is_ignored_and_its_tensors_are_released() -> None:
    world = world_with(is_storing=True)
    request_id = world.submit(guarded, BAD)
    world.finish(world.batches(double)[0])
    guessed = max(world.stored)
    world.finish(world.batches(check)[0])
    assert guessed in world.released, "at once, not when the request ends"
    world.finish(world.batches(add_one)[0])
    assert np.array_equal(world.result(request_id), [1, 3])
    world.check_nothing_is_left()


def test_a_wrong_guess_that_waits_leaves_its_queue() -> None:
    world = world_with(programs=[check, add_one])
    world.submit(guarded, BAD)
    guesses = world.engine.scheduler.pools["double"].guesses
    assert len(guesses) == 1
    world.finish(world.batches(check)[0])
    assert len(guesses) == 0
    world.finish_all()
    world.join(double)
    assert world.sizes(double) == []
    world.check_nothing_is_left()


def test_a_right_guess_that_waits_moves_to_the_queue_of_certain_calls() -> None:
    world = world_with(programs=[check, add_one])
    request_id = world.submit(guarded, GOOD)
    world.finish_all()
    pool = world.engine.scheduler.pools["double"]
    assert (len(pool.queue), len(pool.guesses)) == (1, 0)
    world.join(double)
    world.finish_all()
    assert np.array_equal(world.result(request_id), [2, 4])
    assert counts(world) == (0, 0, 0), "it did not run ahead"
    world.check_nothing_is_left()


def test_both_sides_are_made_ready_if_both_are_likely() -> None:
    for x, expected in ((GOOD, [2, 4]), (BAD, [1, 3])):
        world = world_with(BOTH)
        request_id = world.submit(guarded, x)
        assert (world.sizes(double), world.sizes(add_one)) == ([1], [1])
        world.finish_all()
        assert np.array_equal(world.result(request_id), expected)
        assert counts(world) == (2, 1, 1)
        world.check_nothing_is_left()


@dyorc.workflow
async def with_shared_start(x: Vector) -> Vector:
    y = scale(x, 3.0)
    if await dyorc.when(check(x), is_good):
        return add(y, double(x))
    return add(y, add_one(x))


def test_what_comes_before_a_decision_is_called_once_for_all_guesses() -> None:
    world = world_with(BOTH)
    request_id = world.submit(with_shared_start, BAD)
    world.finish_all()
    assert np.array_equal(world.result(request_id), [1, 9])
    assert (world.sizes(scale), world.sizes(check), world.sizes(add_one), world.sizes(double)) == ([1], [1], [1], [1])
    world.check_nothing_is_left()


# Guesses on guesses


@dyorc.workflow
async def guarded_twice(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good) and await dyorc.when(scale(x, 2.0), is_good):
        return double(x)
    return add_one(x)


@dyorc.workflow
async def guarded_in_task(x: Vector) -> Vector:
    if await dyorc.when(scale(x, 2.0), is_good):
        return guarded(x)
    return add_one(x)


@pytest.mark.parametrize("workflow", [guarded_twice, guarded_in_task])
@pytest.mark.parametrize(
    "order", [(check, scale, double), (scale, check, double), (double, scale, check), (scale, double, check)]
)
def test_nested_guesses_commit_in_any_order(workflow: dyorc.Workflow, order: Sequence[dyorc.Program]) -> None:
    world = world_with()
    request_id = world.submit(workflow, GOOD)
    assert len(world.batches(double)) == 1, "a guess on a guess runs"
    for program in order:
        assert request_id not in world.answers
        world.finish(world.batches(program)[0])
    assert np.array_equal(world.result(request_id), [2, 4])
    assert counts(world) == (2, 2, 0)
    world.check_nothing_is_left()


@pytest.mark.parametrize("first", [check, scale])
def test_when_the_outer_of_two_guesses_was_wrong_the_inner_goes_with_it(first: dyorc.Program) -> None:
    world = world_with()
    request_id = world.submit(guarded_twice, BAD)
    world.finish(world.batches(first)[0])
    world.finish_all()
    assert np.array_equal(world.result(request_id), [1, 3])
    assert counts(world)[1] == 0
    world.check_nothing_is_left()


@dyorc.workflow
async def many_guards(x: Vector) -> Vector:
    for factor in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        if not await dyorc.when(scale(x, factor), is_good):
            return add_one(x)
    return double(x)


@pytest.mark.parametrize("max_depth", [1, 2, 4])
def test_no_more_open_decisions_are_passed_than_configured(max_depth: int) -> None:
    world = world_with(programs=[add_one, double], max_depth=max_depth)
    world.submit(many_guards, GOOD)
    pool = world.engine.scheduler.pools["scale"]
    assert (len(pool.queue), len(pool.guesses)) == (1, max_depth)


def test_what_is_less_likely_than_configured_is_not_made_ready() -> None:
    def num_guesses(min_probability: float) -> tuple[int, int]:
        world = world_with(Says({True: 0.5, False: 0.3}), [], min_probability=min_probability, max_depth=6)
        world.submit(guarded_twice, GOOD)
        pools = world.engine.scheduler.pools
        return len(pools["scale"].guesses), len(pools["double"].guesses) + len(pools["add_one"].guesses)

    assert num_guesses(0.6) == (0, 0)
    assert num_guesses(0.4) == (1, 0)
    assert num_guesses(0.3) == (1, 1), "the second program of the branch that is not taken, 0.3"
    assert num_guesses(0.26) == (1, 1)
    assert num_guesses(0.25) == (1, 2)
    assert num_guesses(0.1) == (1, 3)


# Effects


@dyorc.workflow
async def sends_if_good(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good):
        return send(double(x))
    return put(x)


SURE_YES = Says({True: 1.0})


@pytest.mark.parametrize("predictor", [YES, BOTH, SURE_YES])
def test_what_has_an_effect_waits_until_it_is_certain(predictor: Predictor) -> None:
    world = world_with(predictor)
    request_id = world.submit(sends_if_good, GOOD)
    world.finish(world.batches(double)[0])
    assert (world.sizes(send), world.sizes(put)) == ([], [])
    world.finish(world.batches(check)[0])
    assert (world.sizes(send), world.sizes(put)) == ([1], [])
    world.finish_all()
    assert np.array_equal(world.result(request_id), [2, 4])
    world.check_nothing_is_left()


@pytest.mark.parametrize("predictor", [YES, BOTH, SURE_YES])
def test_an_effect_that_was_guessed_wrong_never_happens(predictor: Predictor) -> None:
    world = world_with(predictor)
    request_id = world.submit(sends_if_good, BAD)
    world.finish_all()
    assert np.array_equal(world.result(request_id), BAD)
    assert (world.sizes(send), world.sizes(put)) == ([], [1])
    world.check_nothing_is_left()


# What is certain goes first


@dyorc.workflow
async def doubled(x: Vector) -> Vector:
    return double(x)


def test_a_certain_call_goes_before_a_guess_that_came_sooner() -> None:
    world = world_with(programs=[check])
    warm(world, double)
    world.submit(guarded, GOOD)
    world.submit_all(doubled, [[9, 9]] * 4)
    world.join(double)
    assert world.oldest().program == "check"
    assert [batch.column() for batch in world.batches(double)] == [[[9, 9]] * 4], "a full batch takes no guess along"


def test_guesses_fill_the_free_slots_of_a_batch_that_runs_anyway() -> None:
    world = world_with(programs=[check])
    warm(world, double)
    world.submit_all(guarded, [GOOD] * 3)
    world.submit_all(doubled, [[9, 9]] * 2)
    world.join(double)
    assert world.batches(double)[0].column() == [[9, 9]] * 2 + [GOOD] * 2
    world.finish_all()
    assert len(world.answers) == 5
    world.check_nothing_is_left()


def test_a_call_that_is_foretold_for_sure_is_queued_as_if_it_were_certain() -> None:
    world = world_with(SURE_YES)
    request_id = world.submit(guarded, GOOD)
    assert world.batches(double)[0].action.reason is FormReason.QUEUE_EMPTIED
    world.finish_all()
    assert np.array_equal(world.result(request_id), [2, 4])
    assert counts(world) == (0, 0, 0), "that is no bet"
    world.check_nothing_is_left()


# What may be wasted


def waste(world: World, number: int) -> int:
    """Requests with wrong guesses, one after another; says how many of them were run."""
    before = counts(world)[0]
    for _ in range(number):
        world.submit(guarded, BAD)
        work(world)
        world.advance(10)
    return counts(world)[0] - before


def work(world: World) -> None:
    """Batches take as long as is known of them."""
    while world.in_flight:
        duration_s = 0.1 + 0.01 * world.oldest().size
        world.advance(duration_s)
        world.finish(execute_s=duration_s)


def test_if_nothing_may_be_wasted_nothing_is_bet() -> None:
    world = world_with(max_wasted_ratio=0.0, margin=0.0)
    assert waste(world, 20) == 0
    world.check_nothing_is_left()


def test_waste_stops_at_the_limit_until_useful_work_has_earned_more() -> None:
    # Each wrong guess costs 0.11 s. Useful work earns 0.11 s * 1/99 for each call: almost nothing.
    world = world_with(margin=0.0, max_wasted_ratio=0.01, burst_s=0.55)
    assert 4 <= waste(world, 40) <= 7
    assert waste(world, 5) <= 1
    total = world.engine.speculator.total
    assert total.wasted_s <= 0.55 + 0.01 / 0.99 * total.useful_s + 0.11
    for _ in range(100):
        world.submit(guarded, GOOD)
        work(world)
        world.advance(10)
    assert waste(world, 2) >= 1, "0.22 s each have earned 0.22 s"
    world.check_nothing_is_left()


def test_the_waste_of_one_workflow_does_not_use_up_what_others_may_waste() -> None:
    world = world_with(margin=0.0, max_wasted_ratio=0.5, burst_s=0.3)
    budgets = [world.engine.speculator.budget(workflow) for workflow in (guarded, guarded_twice)]
    waste(world, 10)
    assert budgets[0].wasted_s > 0
    assert budgets[1].wasted_s == 0


def test_an_outcome_that_never_pays_is_left_for_a_while_and_then_tried_again() -> None:
    world = world_with(margin=0.0, max_wasted_ratio=0.9, burst_s=1e6)
    assert waste(world, 64) == 64
    assert waste(world, 32) == 0, "paused"
    assert waste(world, 64) == 64, "tried again"
    assert waste(world, 60) == 0, "and paused for longer"
    world.check_nothing_is_left()


# Cores


@dyorc.workflow
async def scaled(x: Vector) -> Vector:
    """Needs `scale` alone, for sure."""
    return scale(x, factor=2.0)


def test_a_guess_waits_for_a_free_core() -> None:
    world = world_with(num_cores=1)
    world.submit(guarded, GOOD)
    assert [len(world.batches(program)) for program in (check, double)] == [1, 0], "it would slow down what it waits for"
    two = world_with(num_cores=2)
    two.submit(guarded, GOOD)
    assert [len(two.batches(program)) for program in (check, double)] == [1, 1]


def test_a_guess_that_found_no_core_is_run_when_one_is_free_though_its_own_program_has_not_stirred() -> None:
    world = world_with(num_cores=2)
    world.submit(scaled, GOOD)
    world.submit(guarded, GOOD)
    assert [len(world.batches(program)) for program in (scale, check, double)] == [1, 1, 0]
    world.finish(world.batches(scale)[0], execute_s=0.11)
    assert len(world.batches(double)) == 1
    world.finish_all()
    world.check_nothing_is_left()


def test_cores_of_a_replica_that_is_lost_are_free() -> None:
    world = world_with(num_cores=2)
    world.submit(scaled, GOOD)
    world.submit(guarded, GOOD)
    world.leave(world.batches(scale)[0].action.replica_id)
    assert len(world.batches(double)) == 1


def test_certain_calls_are_run_whether_a_core_is_free_or_not() -> None:
    world = world_with(num_cores=1)
    world.submit(scaled, GOOD)
    world.submit(guarded, GOOD)
    assert [len(world.batches(program)) for program in (scale, check)] == [1, 1]


def test_a_node_whose_cores_are_busy_leaves_a_guess_to_another() -> None:
    world = world_with(num_cores=1)
    world.join(double, node="elsewhere", num_cores=1)
    world.submit(guarded, GOOD)
    (batch,) = world.batches(double)
    assert world.engine.scheduler.replicas[batch.action.replica_id].node == "elsewhere"


def test_the_busier_the_cores_the_more_a_guess_has_to_promise() -> None:
    delays_s: list[float] = []
    for rate in (1, 4, 12):
        cores = Processor(2)
        cores.num_busy = 1
        for at in range(rate):
            cores.use(1, 0.1, int(at * 1e9 / rate))
        delays_s.append(cores.delay_s(0.1, 10**9))
    assert delays_s == sorted(delays_s)
    assert 0 < delays_s[0] < delays_s[2] / 12, "more than in proportion: what is late makes others late"
    assert Processor(2).delay_s(0.1, 10**9) == 0, "nothing is known of who might come"


def test_a_program_that_takes_no_time_is_not_worth_a_batch_of_guesses() -> None:
    world = world_with(BOTH)
    for program in (check, double, add_one):
        pool = world.engine.scheduler.pools[program.name]
        for _ in range(500):
            pool.latency.observe(1, 50e-6)
            pool.sojourn_ns.add(0.5e6)
            pool.link_ns.add(0.5e6)
    world.submit(guarded, GOOD)
    assert [len(world.batches(program)) for program in (check, double, add_one)] == [1, 0, 0]


# What goes wrong


def test_a_guess_that_fails_does_not_fail_its_request() -> None:
    world = world_with()
    request_id = world.submit(guarded, BAD)
    world.fail(world.batches(double)[0])
    world.finish_all()
    assert np.array_equal(world.result(request_id), [1, 3])
    world.check_nothing_is_left()


def test_a_guess_that_failed_runs_again_once_it_is_certain() -> None:
    world = world_with()
    request_id = world.submit(guarded, GOOD)
    world.fail(world.batches(double)[0])
    assert len(world.batches(double)) == 0, "not tried again as a guess"
    world.finish_all()
    assert np.array_equal(world.result(request_id), [2, 4])
    assert world.sizes(double) == [1, 1]
    world.check_nothing_is_left()


def test_a_guess_whose_replica_was_lost_runs_again_once_it_is_certain() -> None:
    world = world_with(limits={"max_attempts": 2})
    request_id = world.submit(guarded, GOOD)
    world.leave(world.batches(double)[0].action.replica_id)
    world.join(double)
    assert world.sizes(double) == [1]
    world.finish_all()
    assert np.array_equal(world.result(request_id), [2, 4])
    world.check_nothing_is_left()


@dyorc.workflow
async def checks_if_good(x: Vector) -> Vector:
    if await dyorc.when(scale(x, 1.0), is_good):
        return check([-1, 0])
    return add_one(x)


@dyorc.workflow
async def checked(x: Vector) -> Vector:
    return check(x)


def test_a_guess_that_fails_its_batch_costs_the_certain_calls_one_more_try() -> None:
    world = world_with(programs=[scale, add_one])
    warm(world, check)
    wrong = world.submit(checks_if_good, BAD)
    fine = world.submit_all(checked, [[1, 1], [2, 2], [3, 3]])
    world.join(check)
    assert world.batches(check)[0].column() == [[1, 1], [2, 2], [3, 3], [-1, 0]]
    while world.batches(check):
        world.finish(world.batches(check)[0])
    assert world.sizes(check) == [4, 1, 2]
    assert [world.result(request_id)[0] for request_id in fine] == [1, 2, 3]
    world.finish_all()
    assert np.array_equal(world.result(wrong), [1, 3])
    world.check_nothing_is_left()


def test_a_guess_that_failed_and_turns_out_to_be_needed_fails_for_itself() -> None:
    world = world_with()
    request_id = world.submit(checks_if_good, GOOD)
    world.finish_all()
    with pytest.raises(ProgramError, match="a number is negative"):
        world.result(request_id)
    world.check_nothing_is_left()


@dyorc.workflow
async def endless_if_good(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good):
        while True:
            x = add_one(x)
    return double(x)


@pytest.mark.parametrize("predictor", [YES, BOTH, SURE_YES])
def test_a_wrong_guess_that_makes_too_many_calls_does_no_harm(predictor: Predictor) -> None:
    world = world_with(predictor, limits={"max_calls_per_request": 20})
    request_id = world.submit(endless_if_good, BAD)
    world.finish_all()
    assert np.array_equal(world.result(request_id), [0, 4])
    world.check_nothing_is_left()


def test_a_right_guess_that_makes_too_many_calls_fails_its_request() -> None:
    world = world_with(limits={"max_calls_per_request": 20})
    request_id = world.submit(endless_if_good, GOOD)
    world.finish_all()
    with pytest.raises(WorkflowLimitError):
        world.result(request_id)
    world.check_nothing_is_left()


@dyorc.workflow
async def seven(x: Vector) -> Vector:
    for _ in range(7):
        x = add_one(x)
    return x


@dyorc.workflow
async def seven_either_way(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good):
        return seven(x)
    return seven(x[::-1])


@pytest.mark.parametrize("x", [GOOD, BAD])
def test_calls_of_a_task_that_is_a_guess_do_not_count_before_they_are_certain(x: list[float]) -> None:
    """Each way takes 9 calls; both together are more than the limit."""
    world = world_with(BOTH, limits={"max_calls_per_request": 12})
    request_id = world.submit(seven_either_way, x)
    world.finish_all()
    assert np.array_equal(world.result(request_id), np.add(x if x is GOOD else x[::-1], 7))
    world.check_nothing_is_left()


@dyorc.workflow
async def three_if_good(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good):
        return scale(scale(scale(x, 1.0), 1.0), 1.0)
    return x


@dyorc.workflow
async def survives_the_limit(x: Vector) -> Vector:
    y = three_if_good(x)
    x = await add_one(x)
    for _ in range(3):
        x = add_one(x)
    try:
        await y
    except WorkflowLimitError:
        return await x
    return await x


def test_a_request_that_guesses_carry_over_its_limit_may_go_on() -> None:
    world = world_with(YES, limits={"max_calls_per_request": 7})
    request_id = world.submit(survives_the_limit, GOOD)
    world.finish(world.batches(add_one)[0])
    world.finish(world.batches(check)[0])
    world.finish_all()
    assert np.array_equal(world.result(request_id), [5, 6])
    world.check_nothing_is_left()


undeployed = double.with_options(name="undeployed")


@dyorc.workflow
async def undeployed_if_good(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good):
        return undeployed(x)
    return add_one(x)


def test_a_wrong_guess_may_call_what_is_not_deployed() -> None:
    world = world_with()
    request_id = world.submit(undeployed_if_good, BAD)
    world.finish_all()
    assert np.array_equal(world.result(request_id), [1, 3])
    world.check_nothing_is_left()


@dyorc.workflow
async def descend(x: Vector, depth: int) -> Vector:
    return descend(x, depth - 1) if depth else add_one(x)


@dyorc.workflow
async def descends_if_good(x: Vector) -> Vector:
    if await dyorc.when(check(x), is_good):
        return descend(x, 1200)
    return add_one(x)


@pytest.mark.parametrize("x", [GOOD, BAD])
def test_guesses_may_be_tasks_in_tasks_deeper_than_python_recurses(x: list[float]) -> None:
    world = world_with(programs=[])
    request_id = world.submit(descends_if_good, x)
    world.join(check)
    world.join(add_one)
    world.finish_all()
    assert np.array_equal(world.result(request_id), np.add(x, 1))
    world.check_nothing_is_left()


# Endings


@pytest.mark.parametrize("num_finished", range(4))
def test_cancelling_in_the_midst_of_guesses_releases_everything(num_finished: int) -> None:
    world = world_with(BOTH, is_storing=True)
    request_id = world.submit(with_shared_start, GOOD)
    for _ in range(num_finished):
        world.finish(world.batches(scale)[0] if world.batches(scale) else world.oldest())
    if request_id in world.answers:
        return
    world.cancel(request_id)
    assert not world.stored or world.in_flight
    world.finish_all()
    assert isinstance(world.answers[request_id], DyOrcError)
    num_run, num_won, num_lost = counts(world)
    assert num_run == num_won + num_lost
    world.check_nothing_is_left()


@pytest.mark.parametrize("x", [GOOD, BAD])
def test_a_decision_whose_value_has_to_be_fetched_is_guessed_until_it_is_there(x: list[float]) -> None:
    world = world_with(BOTH, is_storing=True, is_fetching=False)
    request_id = world.submit(with_shared_start, x)
    world.finish_all()
    assert request_id not in world.answers
    assert (world.sizes(double), world.sizes(add_one)) == ([1], [1])
    world.fetch()
    world.finish_all()
    assert np.array_equal(world.result(request_id), [5, 10] if x is GOOD else [1, 9])
    world.check_nothing_is_left()


# What it costs


@dyorc.workflow
async def guarded_by_a_lattice(x: Vector) -> Vector:
    y = check(x)
    for _ in range(14):
        y = add(y, y)
    return double(x) if await dyorc.when(y, is_good) else add_one(x)


def test_when_a_value_is_expected_is_told_without_walking_every_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    num_looks = 0
    original = Foresight.expected_ns

    def counting(*args: Any) -> int:
        nonlocal num_looks
        num_looks += 1
        return original(*args)

    monkeypatch.setattr(Foresight, "expected_ns", counting)
    world = world_with(programs=[check, double, add_one])
    world.submit(guarded_by_a_lattice, GOOD)
    assert num_looks < 1000


def test_calls_that_are_foreseen_are_forgotten_when_they_have_come() -> None:
    world = world_with(hold=True)
    for _ in range(3):
        world.join(double)  # several are idle, so that none is ever held
    for _ in range(50):
        world.submit(guarded, GOOD)
        world.finish_all()
        world.submit(increment_and_double, GOOD)
        world.finish_all()
    assert all(len(pool.foreseen) < 10 for pool in world.engine.scheduler.pools.values())


@dyorc.workflow
async def increment_and_double(x: Vector) -> Vector:
    return double(add_one(x))


@dyorc.workflow
async def scaled_if_good(x: Vector, factor: float) -> Vector:
    if await dyorc.when(check(x), is_good):
        return scale(x, factor)
    return x


def test_guesses_that_were_withdrawn_are_forgotten_though_each_has_a_batch_key_of_its_own() -> None:
    world = world_with(programs=[check])
    for number in range(600):
        world.submit(scaled_if_good, BAD, factor=float(number))
        world.finish_all()
    guesses = world.engine.scheduler.pools["scale"].guesses
    assert len(guesses) == 0
    assert len(guesses._lanes) < 100  # pyright: ignore[reportPrivateUsage]
    assert all(call.state is CallState.GUESSED for call in guesses)
