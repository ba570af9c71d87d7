"""Blocks of tensors are released when nobody needs them any more, and not before; and they are staged once, where they will be
needed.
"""

import numpy as np
import pytest

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.actions import DispatchBatch, ReleaseTensors, StageTensors
from dyorc.engine.events import AnswerTaken, BatchDone, BatchFailed, ReplicaJoined, ReplicaLeft
from dyorc.engine.leases import Leases
from dyorc.errors import CapacityError, DeadlineError
from tests.unit.engine.driver import Dispatched, World
from tests.unit.engine.programs import Vector, Vectors, add, add_one, cascade, double, increment, increment_twice, send

NO_GUESSES = EngineConfig(speculation=SpeculationConfig(enabled=False))


def world_with(*programs: dyorc.Program, is_taking: bool = True, is_fetching: bool = True, is_storing: bool = False) -> World:
    world = World(programs, NO_GUESSES, is_placing=True, is_taking=is_taking, is_fetching=is_fetching, is_storing=is_storing)
    for program in programs:
        world.join(program)
    return world


def blocks_of_holder(world: World, holder: str) -> list[tuple[str, int]]:
    return [block for block in world.stored if block[0] == holder]


# Counting


def test_a_block_is_released_once_its_last_lease_has_ended() -> None:
    leases = Leases()
    leases.holder_joined("a")
    leases.acquire_new([("a", 1), ("a", 1)])
    leases.release([("a", 1)])
    assert leases.flush() is None
    leases.release([("a", 1)])
    assert leases.flush() == ReleaseTensors([("a", 1)])
    assert leases.flush() is None
    leases.release([("a", 1)])
    assert leases.flush() is None
    assert not leases.counts


def test_a_row_that_is_dropped_before_its_neighbour_is_taken_does_not_release_their_block() -> None:
    leases = Leases()
    leases.holder_joined("a")
    leases.discard([("a", 1)])
    leases.acquire_new([("a", 1)])
    assert leases.flush() is None
    leases.release([("a", 1)])
    assert leases.flush() == ReleaseTensors([("a", 1)])


def test_a_holder_that_left_has_nothing_to_release() -> None:
    leases = Leases()
    leases.holder_joined("a")
    leases.acquire_new([("a", 1), ("", 2)])
    leases.discard([("a", 3)])
    assert leases.holder_left("a")
    assert leases.flush() is None
    leases.acquire_new([("a", 4)])
    leases.acquire([("a", 1)])
    assert leases.counts == {("", 2): 1}
    leases.holder_joined("a")
    assert leases.counts == {("", 2): 1}, "it comes back with nothing"
    assert not leases.holder_left("a")


def test_a_lost_block_cannot_be_read_and_is_released_all_the_same() -> None:
    leases = Leases()
    leases.holder_joined("a")
    leases.acquire_new([("a", 1), ("", 1)])
    assert leases.lose([("a", 1), ("", 1), ("b", 9)])
    assert not leases.lose([("a", 1)]), "that is no news"
    assert not leases.are_there([("a", 1)])
    assert leases.are_there([("", 1)]), "what the orchestrator holds is never lost"
    leases.release([("a", 1)])
    assert leases.flush() == ReleaseTensors([("a", 1)])
    assert not leases.lost


# Who needs a block


def test_outputs_of_a_batch_share_a_block_that_is_released_when_the_last_request_has_ended() -> None:
    world = world_with(add_one, is_taking=False)
    world.submit_all(increment, [[1, 1], [2, 2], [3, 3]])
    world.finish_all()  # the first ran alone or all together, depending on when a replica was free
    shared = max(world.stored, key=lambda block: len(world.stored[block]))
    assert len(world.stored[shared]) == 3
    world.tell(AnswerTaken(1))
    world.tell(AnswerTaken(3))
    assert shared in world.stored
    del world.untaken[1], world.untaken[3]
    world.take()
    assert shared in world.released
    assert np.array_equal(world.result(2), [3, 3])


def test_a_batch_that_runs_may_read_its_inputs_though_its_request_was_cancelled() -> None:
    world = world_with(add_one)
    world.submit(increment_twice, [0, 0])
    world.finish()
    (held,) = world.stored
    world.cancel(1)
    assert held in world.stored
    world.finish()
    assert held in world.released
    world.check_nothing_is_left()


def test_a_value_that_is_being_fetched_is_held_though_its_request_was_cancelled() -> None:
    world = world_with(add_one, double, is_fetching=False)
    world.submit(cascade, [0, 0])
    world.finish()
    (held,) = world.stored
    world.cancel(1)
    assert held in world.stored
    world.fetch()
    assert held in world.released
    world.check_nothing_is_left()


def test_a_result_that_nobody_wants_is_released_with_its_neighbours_kept() -> None:
    world = world_with(add_one, is_taking=False)
    world.submit_all(increment, [[0, 0], [1, 1]])
    world.cancel(1)
    world.finish_all()
    assert not world.released
    world.take()
    world.check_nothing_is_left()


def test_a_late_result_is_released_if_its_holder_is_there() -> None:
    world = world_with(add_one)
    world.submit(increment, [0, 0])
    late = world.outcome(world.oldest())
    (held,) = world.stored
    assert isinstance(late, BatchDone)
    world.tell(BatchDone(late.replica_id, 999, late.outputs, 0.01))
    assert held in world.released


def test_a_late_result_of_a_replica_that_is_gone_is_not_released() -> None:
    world = world_with(add_one)
    world.submit(increment, [0, 0])
    late = world.outcome(world.oldest())
    world.leave("add_one#0")
    world.tell(late)
    assert not world.released
    world.join(add_one, "add_one#0")
    world.finish_all()
    world.check_nothing_is_left()


def test_a_replica_that_leaves_ends_the_leases_of_its_batches() -> None:
    world = world_with(add_one, double)

    @dyorc.workflow
    async def one_after_the_other(x: Vector) -> Vector:
        return double(add_one(x))

    world.submit(one_after_the_other, [0, 0])
    world.finish()
    (held,) = world.stored
    world.cancel(1)
    assert held in world.stored
    world.leave("double#1")
    assert held in world.released
    world.check_nothing_is_left()


# Answers


def test_a_stored_answer_is_kept_until_it_was_taken() -> None:
    world = world_with(add_one, is_taking=False)
    world.submit(increment, [0, 0])
    world.finish()
    assert len(world.engine.tasks.requests) == 1
    assert not world.released
    world.cancel(1)
    world.advance(1e6)
    assert not world.answers, "it was answered: neither cancel nor deadline changes that"
    world.take()
    assert np.array_equal(world.result(1), [1, 1])
    world.check_nothing_is_left()


def test_an_inline_answer_is_forgotten_at_once() -> None:
    world = World([add_one], NO_GUESSES)
    world.join(add_one)
    world.submit(increment, [0, 0])
    world.finish()
    assert not world.engine.tasks.requests
    world.tell(AnswerTaken(1))
    world.check_nothing_is_left()


def test_a_request_with_an_answer_that_was_taken_still_waits_for_its_effects() -> None:
    @dyorc.workflow
    async def sends_behind(x: Vector) -> Vector:
        send(double(x))
        return add_one(x)

    world = world_with(add_one, double, send)
    world.submit(sends_behind, [1, 1])
    world.finish(world.batches(add_one)[0])
    assert np.array_equal(world.result(1), [2, 2])
    assert world.engine.tasks.requests
    world.finish_all()
    assert world.sizes(send) == [1]
    world.check_nothing_is_left()


# Capacity


@dyorc.program(max_batch_size=8)
def widen(x: Vectors) -> Vectors:
    return x + 1


@dyorc.workflow
async def widened(x: Vector) -> Vector:
    return widen(x)


@dyorc.workflow
async def sends(x: Vector) -> Vector:
    return send(x)


def find_no_room(world: World, batch: Dispatched) -> int:
    """Answers a batch whose results found no memory; returns how large it was."""
    del world.in_flight[batch.action.batch_id]
    world.tell(BatchFailed(batch.action.replica_id, batch.action.batch_id, "MemoryError", "the arena is full", is_capacity=True))
    return batch.size


def check_no_room(world: World, request_id: int) -> None:
    with pytest.raises(CapacityError, match=r"no memory for the results of program '.*': the arena is full") as caught:
        world.result(request_id)
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s >= 0.1


def test_a_batch_whose_results_find_no_memory_is_tried_in_halves() -> None:
    world = world_with(widen)
    world.submit_all(widened, [[n, n] for n in range(8)])
    assert [find_no_room(world, world.oldest()), find_no_room(world, world.oldest())] == [8, 4]
    assert not world.answers
    world.finish_all()
    assert sorted(world.sizes(widen)) == [2, 2, 4, 4, 8]
    for n in range(8):
        assert np.array_equal(world.result(n + 1), [n + 1, n + 1])
    world.check_nothing_is_left()


def test_calls_whose_results_find_no_memory_again_and_again_fail_and_others_do_not() -> None:
    world = world_with(widen)
    world.submit_all(widened, [[n, n] for n in range(8)])
    sizes: list[int] = []
    while world.in_flight:
        batch = world.oldest()
        if any(operands[0].data is not None and operands[0].data[0] == 0 for operands in batch.action.operands):
            sizes.append(find_no_room(world, batch))
        else:
            world.finish(batch)
    assert sizes == [8, 4, 2], "each try waits for room, so there are few"
    for request_id in (1, 2):
        check_no_room(world, request_id)
    for n in range(2, 8):
        assert np.array_equal(world.result(n + 1), [n + 1, n + 1])
    world.check_nothing_is_left()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_a_batch_and_its_parts_wait_for_room_no_longer_than_one_wait(size: int) -> None:
    world = world_with(widen)
    world.submit_all(widened, [[n, n] for n in range(size)])
    waits: list[float] = []
    while world.in_flight:
        batch = world.oldest()
        waits.append(batch.action.room_share)
        find_no_room(world, batch)
    assert len(waits) == {1: 1, 2: 3, 3: 5}.get(size, 7)
    assert min(waits) >= 1 / (3 * size)
    assert sum(waits) == pytest.approx(1)
    for n in range(size):
        check_no_room(world, n + 1)
    world.check_nothing_is_left()


def test_a_part_that_raises_does_not_make_the_wait_longer() -> None:
    world = world_with(widen)
    world.submit_all(widened, [[n, n] for n in range(8)])
    waits = [world.oldest().action.room_share]
    find_no_room(world, world.oldest())
    world.fail()
    while world.in_flight:
        waits.append(world.oldest().action.room_share)
        find_no_room(world, world.oldest())
    assert len(waits) == 10
    assert sum(waits) == pytest.approx(1)


def test_a_single_call_whose_result_finds_no_memory_fails_at_once() -> None:
    world = world_with(add_one)
    world.submit(increment, [1, 1])
    assert find_no_room(world, world.oldest()) == 1
    check_no_room(world, 1)
    assert not world.in_flight
    world.check_nothing_is_left()


def test_a_program_with_an_effect_is_not_run_again_because_its_results_found_no_memory() -> None:
    world = world_with(send)
    world.submit_all(sends, [[1, 1], [2, 2]])
    assert find_no_room(world, world.oldest()) == 2
    for request_id in (1, 2):
        check_no_room(world, request_id)
    assert not world.in_flight
    world.check_nothing_is_left()


# Early release


@dyorc.workflow
async def long_loop(x: Vector) -> Vector:
    while await dyorc.when(x, lambda v: v.sum() < 1e30):
        x = add(add_one(x), x)
    return x


@pytest.mark.parametrize(("speculation", "most"), [(SpeculationConfig(enabled=False), 3), (SpeculationConfig(), 20)])
def test_a_long_loop_keeps_only_what_it_still_needs(speculation: SpeculationConfig, most: int) -> None:
    world = World([add_one, add], EngineConfig(speculation=speculation), is_placing=True)
    for program in (add_one, add):
        world.join(program)
    world.submit(long_loop, [1, 1])
    peak = 0
    while world.in_flight:
        world.finish()
        peak = max(peak, len(world.stored))
    assert len(world.history) > 150
    assert peak <= most
    world.check_nothing_is_left()


def test_a_tensor_that_the_workflow_may_still_pass_on_is_kept() -> None:
    @dyorc.workflow
    async def returns_to_it(x: Vector) -> Vector:
        first = add_one(x)
        if await dyorc.when(double(first), lambda v: v.sum() > 1e6):
            return x
        return add(first, first)

    world = world_with(add_one, double, add)
    world.submit(returns_to_it, [1, 1])
    while world.in_flight:
        world.finish()
    assert (world.sizes(add_one), world.sizes(add)) == ([1], [1])
    world.check_nothing_is_left()


def test_a_tensor_that_another_outcome_of_a_guessed_decision_needs_is_kept() -> None:
    @dyorc.workflow
    async def forgets_under_a_guess(x: Vector) -> Vector:
        made, other = add_one(x), add(x, x)
        if await dyorc.when(send(x), lambda v: v.sum() > 1e6, likely=True):
            del made
            return double(other)
        return double(made)

    world = World([add_one, add, send, double], is_placing=True)
    for program in (add_one, add, send):
        world.join(program)
    world.submit(forgets_under_a_guess, [1, 1])
    world.finish(world.batches(add_one)[0])
    assert len(world.engine.scheduler.pools["double"].guesses) == 0
    world.finish(world.batches(add)[0])
    assert len(world.engine.scheduler.pools["double"].guesses) == 1
    assert not world.released
    world.finish_all()
    world.join(double)
    world.finish_all()
    assert np.array_equal(world.result(1), [4, 4])
    assert world.sizes(add_one) == [1]
    world.check_nothing_is_left()


def test_results_of_programs_that_must_not_be_repeated_and_inputs_are_kept_to_the_end() -> None:
    @dyorc.workflow
    async def forgets(x: Vector) -> Vector:
        y = send(add_one(x))
        y = add_one(y)
        return add_one(y)

    world = world_with(add_one, send, is_storing=True)
    world.submit(forgets, [1, 1])
    for _ in range(3):
        world.finish()
    assert len(blocks_of_holder(world, "")) == 1
    assert len(blocks_of_holder(world, "send#1")) == 1
    assert len(blocks_of_holder(world, "add_one#0")) == 1
    world.finish_all()
    world.check_nothing_is_left()


def test_the_check_of_determinism_needs_no_released_tensor() -> None:
    world = world_with(add_one, add, double)
    for _ in range(4):
        world.submit(long_loop, [1e28, 1e28])
        world.finish_all()
    assert all(not isinstance(answer, Exception) for answer in world.answers.values())
    world.check_nothing_is_left()


# Staging


def staging_world(*nodes: str) -> World:
    """Makes a world with `add_one` on node "a", and replicas of `add` on these."""
    world = World([add_one, add], NO_GUESSES, is_placing=True)
    world.join(add_one, "maker", node="a")
    for at, node in enumerate(nodes):
        world.join(add, f"user-{at}", node=node)
    return world


@dyorc.workflow
async def made_and_used_twice(x: Vector) -> Vector:
    made = add_one(x)
    return add(made, made)


def make_busy(world: World, num_replicas: int) -> None:
    """Gives each of the using replicas a batch."""
    for number in range(num_replicas):
        world.submit(made_and_used_twice, [number, number])
        world.finish(world.batches(add_one)[-1])
    assert len(world.batches(add)) == num_replicas


def test_inputs_on_another_node_are_staged_once_for_the_least_loaded_replica_while_their_calls_wait() -> None:
    world = staging_world("b", "b")
    make_busy(world, 2)
    assert not world.staged, "who is sent a batch at once fetches its inputs with it"
    world.submit_all(made_and_used_twice, [[0, 0], [1, 1]])
    world.finish(world.batches(add_one)[-1])
    rows = [(tensor.holder, tensor.offset) for action in world.staged for tensor in action.tensors]
    assert {action.replica_id for action in world.staged} == {"user-0"}
    assert rows == [("maker", 0), ("maker", 64)]
    world.finish_all()
    world.check_nothing_is_left()


@pytest.mark.parametrize("nodes", [["a"], ["a", "b"], ["b", "c"], [], [""]])
def test_nothing_is_staged_where_it_lies_or_if_the_place_is_unclear(nodes: list[str]) -> None:
    world = staging_world(*nodes)
    make_busy(world, len(nodes))
    world.submit(made_and_used_twice, [0, 0])
    world.finish(world.batches(add_one)[-1])
    assert not world.staged


def test_a_replica_that_comes_back_takes_waiting_calls_and_gets_their_inputs_staged() -> None:
    world = staging_world("b")
    make_busy(world, 1)
    world.submit(made_and_used_twice, [7, 7])
    world.finish(world.batches(add_one)[-1])
    assert len(world.staged) == 1
    world.leave("user-0")
    world.join(add, "user-0", node="b")
    taken = world.batches(add)[-1]
    assert taken.size == 1, "it took what waited, with its inputs; who was alone on it when it left waits for longer"
    world.submit(made_and_used_twice, [8, 8])
    world.finish(world.batches(add_one)[-1])
    assert len(world.staged) == 2
    world.finish_all()
    world.check_nothing_is_left()


def test_nodes_are_counted() -> None:
    world = staging_world("a", "b", "b")
    pool = world.engine.scheduler.pools["add"]
    assert pool.num_replicas_on == {"a": 1, "b": 2}
    world.leave("user-0")
    world.leave("user-1")
    assert pool.num_replicas_on == {"b": 1}


def test_releases_come_last_in_one_action() -> None:
    world = world_with(add_one, is_taking=False)
    world.submit_all(increment_twice, [[0, 0], [1, 1]])
    world.finish()
    actions = world.engine.handle(
        [world.outcome(world.oldest()), ReplicaJoined("late", "add_one"), ReplicaLeft("late")], world.now_ns
    )
    assert [type(action) for action in actions if isinstance(action, ReleaseTensors)] == [ReleaseTensors]
    assert isinstance(actions[-1], ReleaseTensors)
    assert not any(isinstance(action, DispatchBatch | StageTensors) for action in actions)


def test_a_deadline_still_counts_while_an_answer_is_awaited() -> None:
    world = world_with(add_one, is_taking=False)
    world.submit(increment, [0, 0], deadline_s=1.0)
    world.advance(2.0)
    with pytest.raises(DeadlineError):
        world.result(1)
    world.finish_all()
    world.check_nothing_is_left()
