"""What guesses may cost: wasted work, and cores that certain calls could have used."""

import pytest

import dyorc
from dyorc.engine.scheduling.processors import Processor, Slowdown
from dyorc.engine.scheduling.speculation_policy import slows_s
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, check, double, scale
from tests.unit.engine.speculative_world import BAD, BOTH, GOOD, YES, counts, guarded, guarded_twice, is_good, world_with


def waste(world: World, number: int) -> int:
    """Submits requests whose guesses are wrong, one after another. Returns how many guesses ran."""
    before = counts(world)[0]
    for _ in range(number):
        world.submit(guarded, BAD)
        work(world)
        world.advance(10)
    return counts(world)[0] - before


def work(world: World) -> None:
    """Runs batches that each take as long as the engine expects."""
    while world.in_flight:
        duration_s = 0.1 + 0.01 * world.oldest().size
        world.advance(duration_s)
        world.finish(execute_s=duration_s)


@dyorc.workflow
async def either_doubled(x: Vector, y: Vector) -> Vector:
    """Calls `double` with `x`, and with `y` if the result of `check` is good."""
    first = double(x)
    if await dyorc.when(check(x), is_good):
        return double(y)
    return first


def test_nothing_is_guessed_without_a_budget_for_waste() -> None:
    world = world_with(max_wasted_ratio=0.0, margin=0.0)
    assert waste(world, 20) == 0
    world.check_nothing_is_left()


def test_waste_stops_at_the_limit_until_useful_work_has_earned_more() -> None:
    # Each wrong guess costs 0.11 s. Each useful call earns 0.11 s / 99: almost nothing.
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


def test_one_workflows_waste_does_not_use_up_the_budget_of_others() -> None:
    world = world_with(margin=0.0, max_wasted_ratio=0.5, burst_s=0.3)
    budgets = [world.engine.speculator.budget(workflow) for workflow in (guarded, guarded_twice)]
    waste(world, 10)
    assert budgets[0].wasted_s > 0
    assert budgets[1].wasted_s == 0


def test_guesses_that_never_pay_pause_and_are_tried_again_later() -> None:
    world = world_with(margin=0.0, max_wasted_ratio=0.9, burst_s=1e6, compare=False)
    assert waste(world, 64) == 64
    assert waste(world, 32) == 0, "paused"
    assert waste(world, 64) == 16, "tried again, for a shorter time, and paused for longer"
    world.check_nothing_is_left()


@dyorc.workflow
async def coins(x: Vector) -> Vector:
    """Tosses a coin in each of its turns, and does the same either way."""
    seed = 1
    for _ in range(1000):
        seed = seed * 1103515245 + 12345 & 0x7FFFFFFF
        is_head = bool(seed >> 16 & 1)
        x = check(x)
        if await dyorc.when(x, lambda value, is_head=is_head: is_head or value[0] < 0):
            x = add_one(x)
    return x


def test_a_long_loop_that_guesses_no_better_than_a_coin_begins_again_rarely() -> None:
    world = World([check, add_one])
    world.join(check)
    world.join(add_one)
    request_id = world.submit(coins, GOOD)
    record = world.engine.tasks.requests[request_id].context.record
    while world.in_flight:
        world.finish()
    assert world.result(request_id) is not None
    assert 10 < record.num_replays < 100, "of 1,000 decisions"


def test_outcomes_that_are_followed_count_as_guesses_even_if_no_call_runs_ahead() -> None:
    world = world_with(num_cores=1)
    world.submit(guarded, GOOD)
    (request,) = world.engine.tasks.requests.values()
    assert counts(world)[0] == 0
    assert request.context.round.has_guessed, "the comparison of times with and without guesses can begin"


@dyorc.workflow
async def scaled(x: Vector) -> Vector:
    """Calls `scale`, without a decision."""
    return scale(x, factor=2.0)


@dyorc.workflow
async def single(x: Vector) -> Vector:
    """Calls `double`, without a decision."""
    return double(x)


def test_a_guess_waits_for_a_free_core() -> None:
    world = world_with(num_cores=1)
    world.submit(guarded, GOOD)
    assert [len(world.batches(program)) for program in (check, double)] == [1, 0], (
        "it would slow down the guard that it depends on"
    )
    two = world_with(num_cores=2)
    two.submit(guarded, GOOD)
    assert [len(two.batches(program)) for program in (check, double)] == [1, 1]


def test_a_guess_that_found_no_core_runs_when_another_program_frees_one() -> None:
    world = world_with(num_cores=2)
    world.submit(scaled, GOOD)
    world.submit(guarded, GOOD)
    assert [len(world.batches(program)) for program in (scale, check, double)] == [1, 1, 0]
    world.finish(world.batches(scale)[0], execute_s=0.11)
    assert len(world.batches(double)) == 1
    world.finish_all()
    world.check_nothing_is_left()


def test_cores_of_a_lost_replica_are_free_again() -> None:
    world = world_with(num_cores=2)
    world.submit(scaled, GOOD)
    world.submit(guarded, GOOD)
    world.leave(world.batches(scale)[0].action.replica_id)
    assert len(world.batches(double)) == 1


def test_certain_calls_run_whether_a_core_is_free_or_not() -> None:
    world = world_with(num_cores=1)
    world.submit(scaled, GOOD)
    world.submit(guarded, GOOD)
    assert [len(world.batches(program)) for program in (scale, check)] == [1, 1]


def test_a_guess_runs_on_the_node_that_has_a_free_core() -> None:
    world = world_with(num_cores=1)
    world.join(double, node="elsewhere", num_cores=1)
    world.submit(guarded, GOOD)
    (batch,) = world.batches(double)
    assert world.engine.scheduler.replicas[batch.action.replica_id].node == "elsewhere"


def test_the_busier_the_cores_the_more_a_guess_must_save() -> None:
    delays_s: list[float] = []
    for rate in (1, 4, 12):
        cores = Processor(2)
        cores.enter("check#0", 0)
        for at in range(rate):
            cores.use(1, 0.1, int(at * 1e9 / rate))
        delays_s.append(cores.delay_s(0.1, 10**9))
    assert delays_s == sorted(delays_s)
    assert 0 < delays_s[0] < delays_s[2] / 12, "it grows faster than the load, since late work makes other work late"
    assert Processor(2).delay_s(0.1, 10**9) == 0, "no arrivals are known yet"


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


def test_a_guess_that_slows_down_its_own_decision_must_be_likelier() -> None:
    for predictor, number in ((YES, 1), (BOTH, 0)):
        world = world_with(predictor, num_cores=2)
        slow_down(world, 0.6)
        world.submit(guarded, GOOD)
        assert [len(world.batches(program)) for program in (check, double)] == [1, number], predictor.distribution
    even = world_with(BOTH, num_cores=2)
    even.submit(guarded, GOOD)
    assert [len(even.batches(program)) for program in (check, double)] == [1, 1], "nothing is known of a slowdown"


def test_a_guess_slows_down_what_waits_to_run_next() -> None:
    world = world_with(num_cores=2, max_wasted_ratio=0.0)
    slow_down(world, 0.5)
    scheduler = world.engine.scheduler
    (processor,) = scheduler.processors.values()
    world.submit(guarded, GOOD)
    alone_s = slows_s(processor, scheduler.replicas, 1.0, world.now_ns)
    assert alone_s == pytest.approx(0.5 * 0.11, rel=0.2), "the batch ends after 0.11 s"
    world.submit_all(guarded, [GOOD] * 4)
    num_waiting = scheduler.pools[check.name].queue.size
    assert num_waiting > 0
    more_s = slows_s(processor, scheduler.replicas, 1.0, world.now_ns) - alone_s
    assert more_s >= 0.5 * (1.0 - 0.11) * num_waiting, "and then theirs begins"


def test_guesses_do_not_make_each_other_worth_more() -> None:
    world = world_with(BOTH)
    for program in (double, add_one):
        for size in (1, 2) * 500:
            world.engine.scheduler.pools[program.name].latency.observe(size, 0.9 * size)
    world.submit_all(guarded, [GOOD, GOOD])
    sizes = [*world.sizes(double), *world.sizes(add_one)]
    assert set(sizes) == {1}, "two would take 0.9 s longer than the one that is needed, and the decision comes in 0.12 s"


def test_on_shared_cores_a_guess_beside_certain_calls_pays_for_all_programs() -> None:
    """It makes a core busy for longer, on which calls of any program could have run."""
    for num_others, sizes in ((0, [2]), (2000, [1])):
        world = world_with(BOTH, num_cores=2)
        (processor,) = world.engine.scheduler.processors.values()
        for at in range(num_others):
            processor.use(1, 1e-4, at * world.now_ns // num_others)
        world.submit(either_doubled, GOOD, BAD)
        assert world.sizes(double) == sizes


def slow_down(world: World, slowdown: float) -> None:
    """Lets the cores of a world have seen that a batch takes this much longer beside another one."""
    (processor,) = world.engine.scheduler.processors.values()
    for num_others in (0, 1):
        processor.slowdown.observe(num_others, 1.0, 1.0 + slowdown * num_others)


def run_side_by_side(world: World, execute_s: float) -> None:
    """Lets all batches that run end together, until none does."""
    while running := list(world.in_flight.values()):
        world.advance(execute_s)
        for batch in running:
            world.finish(batch, execute_s=execute_s)


def test_cores_learn_how_much_batches_slow_each_other_down() -> None:
    world = world_with(max_wasted_ratio=0.0, num_cores=2)
    (processor,) = world.engine.scheduler.processors.values()
    for _ in range(10):
        world.submit(scaled, GOOD)
        run_side_by_side(world, 0.11)
        world.submit(scaled, GOOD)
        world.submit(single, GOOD)
        run_side_by_side(world, 0.165)
    assert 0.2 < processor.slowdown.value <= 0.8, "two at once take half as long again; the averages T(n) lie between"
    for _ in range(400):
        world.submit(scaled, GOOD)
        run_side_by_side(world, 0.11)
    assert processor.slowdown.value == 0, "long ago is forgotten, so that guesses are tried again"
    world.check_nothing_is_left()


def test_one_slow_batch_beside_another_says_little() -> None:
    slowdown = Slowdown()
    slowdown.observe(0, 0.01, 0.01)
    slowdown.observe(1, 0.01, 0.05)
    assert slowdown.value == 0
    for _ in range(200):
        slowdown.observe(0, 0.01, 0.01)
        slowdown.observe(1, 0.01, 0.014)
    assert slowdown.value == pytest.approx(0.4, rel=0.1)
    for _ in range(100):
        slowdown.observe(0, 0.1, 0.1)
        slowdown.observe(1, 0.1, 0.3)
    assert slowdown.value == 1, "one after the other would take no longer"
