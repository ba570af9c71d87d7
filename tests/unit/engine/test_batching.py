"""Which calls run together, where, when and in which order."""

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.actions import FormReason
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, Vectors, add, add_one, increment, increment_twice


@dyorc.program(max_batch_size=1)
def one_at_a_time(x: Vectors) -> Vectors:
    return x


@dyorc.workflow
async def slowly(x: Vector) -> Vector:
    return one_at_a_time(x)


def world_with(num_replicas: int = 1, program: dyorc.Program = add_one, **limits: float) -> World:
    world = World([program], EngineConfig.model_validate(limits))
    for _ in range(num_replicas):
        world.join(program)
    return world


def learn(world: World, *, base_s: float = 0.1, item_s: float = 0.01, sizes: tuple[int, ...] = (1, 4, 2, 3)) -> None:
    """Lets the engine see batches that take base_s + item_s * n seconds."""
    for size in sizes:
        world.submit_all(increment, [[0, 0]] * size)
        while world.in_flight:
            batch = world.oldest()
            world.finish(batch, execute_s=base_s + item_s * batch.size)
    world.history.clear()


def test_an_idle_replica_takes_waiting_calls_at_once() -> None:
    world = world_with()
    world.submit(increment, [1, 1])
    assert world.sizes(add_one) == [1]
    assert world.oldest().action.reason is FormReason.QUEUE_EMPTIED


def test_requests_that_arrive_together_share_a_batch() -> None:
    world = world_with()
    world.submit_all(increment, [[at, at] for at in range(3)])
    assert world.oldest().column() == [[0, 0], [1, 1], [2, 2]]


def test_calls_of_different_iterations_share_a_batch() -> None:
    world = world_with()
    world.submit(increment_twice, [0, 0])
    world.submit(increment, [5, 5])
    world.finish()
    assert world.oldest().column() == [[5, 5], [1, 1]] or world.oldest().column() == [[1, 1], [5, 5]]


def test_a_batch_has_at_most_max_batch_size_calls() -> None:
    world = world_with()
    world.submit_all(increment, [[0, 0]] * 9)
    world.finish_all()
    assert world.sizes(add_one) == [4, 4, 1]
    assert [batch.action.reason for batch in world.history] == [FormReason.FULL, FormReason.FULL, FormReason.QUEUE_EMPTIED]


def test_a_full_batch_travels_while_another_runs() -> None:
    world = world_with()
    world.submit(increment, [0, 0])
    world.submit_all(increment, [[1, 1]] * 4)
    assert [batch.size for batch in world.batches(add_one)] == [1, 4]


def test_a_replica_holds_no_more_than_max_in_flight_batches() -> None:
    world = world_with()
    world.submit_all(increment, [[0, 0]] * 12)
    assert [batch.size for batch in world.batches(add_one)] == [4, 4]
    one = world_with(max_in_flight_batches=1)
    one.submit_all(increment, [[0, 0]] * 12)
    assert [batch.size for batch in one.batches(add_one)] == [4]


def test_a_second_batch_that_can_still_grow_waits_until_the_first_is_due_to_end() -> None:
    world = world_with()
    learn(world)
    world.submit(increment, [0, 0])
    world.submit_all(increment, [[1, 1]] * 2)
    world.advance(0.109)
    assert [batch.size for batch in world.batches(add_one)] == [1]
    world.submit(increment, [2, 2])
    world.advance(0.002)  # T(1) = 0.11 s has passed
    assert [batch.size for batch in world.batches(add_one)] == [1, 3]


def test_the_prefetch_ratio_sends_the_second_batch_earlier() -> None:
    world = world_with(prefetch_ratio=0.5)
    learn(world)
    world.submit(increment, [0, 0])
    world.submit(increment, [1, 1])
    world.advance(0.054)
    assert len(world.in_flight) == 1
    world.advance(0.002)
    assert len(world.in_flight) == 2


def test_a_replica_whose_speed_is_unknown_gets_no_second_batch_that_can_still_grow() -> None:
    world = world_with()
    world.submit(increment, [0, 0])
    world.submit(increment, [1, 1])
    world.advance(50)
    assert len(world.in_flight) == 1


def test_idle_replicas_split_the_queue_when_that_is_faster() -> None:
    world = world_with(num_replicas=2)
    learn(world, base_s=0.001, item_s=0.1)
    world.submit_all(increment, [[0, 0]] * 4)
    assert world.sizes(add_one) == [2, 2]
    assert [batch.action.reason for batch in world.history] == [FormReason.SHARED, FormReason.QUEUE_EMPTIED]
    assert len({batch.action.replica_id for batch in world.history}) == 2


def test_idle_replicas_do_not_split_a_queue_that_one_batch_serves_as_fast() -> None:
    world = world_with(num_replicas=2)
    learn(world, base_s=1.0, item_s=0.001)
    world.submit_all(increment, [[0, 0]] * 4)
    assert world.sizes(add_one) == [4]
    assert world.oldest().action.reason is FormReason.FULL


def test_a_single_replica_never_counts_as_sharing() -> None:
    world = world_with()
    learn(world, base_s=0.001, item_s=0.1)
    world.submit_all(increment, [[0, 0]] * 3)
    assert world.oldest().action.reason is FormReason.QUEUE_EMPTIED


Urgency = tuple[float | None, int]
"""A request's deadline in seconds, and its priority."""


def order_of(*requests: Urgency, between_s: float = 0.0) -> list[int]:
    """Returns the order in which up to four requests that wait while a batch runs are served, by the number of their arrival."""
    world = world_with()
    world.submit(increment, [0, 0])
    for number, (deadline_s, priority) in enumerate(requests, 1):
        world.tell(world.arrival(increment, [number, number], deadline_s=deadline_s, priority=priority))
        world.advance(between_s)
    world.fail(message="make room")
    world.finish_all()
    return [call[0] for batch in world.history[1:] for call in batch.column()]


def test_the_highest_priority_goes_first_then_the_earliest_deadline_then_arrival() -> None:
    assert order_of((90, 0), (90, 2), (30, 0), (99, 1)) == [4, 2, 3, 1]


def test_priorities_count_between_requests_that_name_no_deadline() -> None:
    assert order_of((None, 0), (None, 2), (None, 0), (None, 1), between_s=0.1) == [4, 2, 1, 3]


def test_a_request_without_a_deadline_has_that_of_the_configured_timeout() -> None:
    assert order_of((None, 0), (299, 0), (301, 0), (1, 0)) == [4, 2, 1, 3]


def test_a_transport_that_names_a_deadline_for_everything_does_not_void_priorities() -> None:
    assert order_of((60, 0), (60, 1), (60, 0), between_s=0.1) == [2, 1, 3]


def test_any_priority_counts_for_more_than_a_deadline() -> None:
    assert order_of((0.5, 0), (None, 100), (0.5, 0), (None, 1)) == [4, 2, 1, 3]


def num_overtaking(priority: int, deadline_s: float | None) -> int:
    """Returns how many requests overtake a waiting one, if another arrives every second and one is served in that time."""
    world = World([one_at_a_time], EngineConfig(max_overtaking_s=30, early_drop=False))
    world.join(one_at_a_time)
    world.submit_all(slowly, [[0, 0]] * 2)  # one runs, one travels
    waiting = world.submit(slowly, [-1, -1])
    for number in range(100):
        if waiting in world.answers:
            return number - 3  # the two that were sent before, and itself
        world.submit(slowly, [1, 1], priority=priority, deadline_s=deadline_s)
        world.advance(1)
        world.finish()
    raise AssertionError("it starves")


def test_priorities_age() -> None:
    assert 20 <= num_overtaking(1, None) <= 21  # two thirds of the time: none of them names a deadline
    assert 15 <= num_overtaking(2, None) <= 16
    assert 10 <= num_overtaking(10**9, None) <= 11
    assert num_overtaking(0, None) == 0


def test_a_request_is_overtaken_only_by_those_that_arrive_within_the_configured_time() -> None:
    assert 28 <= num_overtaking(1, 1.5) <= 30
    assert 5 <= num_overtaking(0, 5) <= 6  # those with the earlier deadlines


def test_a_batch_goes_to_the_node_that_holds_most_of_its_bytes() -> None:
    world = World([add_one])
    for node in ("a", "b", "c"):
        world.join(add_one, f"replica on {node}", node)
    world.submit(increment, [0, 0], node="c")
    assert world.oldest().action.replica_id == "replica on c"
    world.tell(*(world.arrival(increment, [at, at], node=node) for at, node in enumerate("abb")))
    assert world.history[-1].action.replica_id == "replica on b"


def test_without_a_node_that_helps_the_longest_idle_replica_is_next() -> None:
    world = world_with(num_replicas=3)
    for _ in range(4):
        world.submit(increment, [0, 0])
        world.finish()
    assert [batch.action.replica_id for batch in world.history] == ["add_one#0", "add_one#1", "add_one#2", "add_one#0"]


def test_a_replica_that_announces_itself_again_is_the_same() -> None:
    world = world_with()
    world.submit(increment, [0, 0])
    world.join(add_one, "add_one#0")
    world.submit(increment, [1, 1])
    assert len(world.in_flight) == 1


Row = Float[np.ndarray, "width"]


@dyorc.program(max_batch_size=8)
def scale(x: Float[np.ndarray, "batch width"], factor: float = 2.0) -> Float[np.ndarray, "batch width"]:
    return x * factor


@dyorc.workflow
async def scaled(x: Row, factor: float = 2.0) -> Row:
    return scale(x, factor)


def sizes_of_two(program: dyorc.Program, workflow: dyorc.Workflow, a: list[float], b: list[float], **of_b: float) -> list[int]:
    """Returns the sizes of the batches of two requests whose calls wait together."""
    world = World([program])
    world.tell(world.arrival(workflow, a), world.arrival(workflow, b, **of_b))
    world.join(program)
    world.finish_all()
    assert np.array_equal(world.result(1), np.multiply(a, 2))
    return world.sizes(program)


def test_only_equal_shapes_and_parameters_share_a_batch() -> None:
    assert sizes_of_two(scale, scaled, [1, 2], [3, 4]) == [2]
    assert sizes_of_two(scale, scaled, [1, 2], [3, 4, 5]) == [1, 1]
    assert sizes_of_two(scale, scaled, [1, 2], [3, 4], factor=3.0) == [1, 1]


padded_scale = scale.with_options(name="padded_scale", pad=dyorc.pad(width=(4, 8), value=-1.0))


@dyorc.workflow
async def scaled_padded(x: Row) -> Row:
    return padded_scale(x)


def test_shapes_of_one_bucket_share_a_batch_and_results_have_their_own_size() -> None:
    assert sizes_of_two(padded_scale, scaled_padded, [1, 2], [3, 4, 5, 6]) == [2]
    assert sizes_of_two(padded_scale, scaled_padded, [1, 2], [3, 4, 5, 6, 7]) == [1, 1]


@dyorc.workflow
async def scaled_by_another(x: Row) -> Row:
    return scaled_padded(x)


@dyorc.workflow
async def scaled_twice(x: Row) -> Row:
    return padded_scale(scale(x))


@pytest.mark.parametrize("workflow", [scaled_padded, scaled_by_another], ids=lambda workflow: workflow.name)
def test_a_size_above_the_largest_bucket_is_the_clients_error_if_the_client_sent_it(workflow: dyorc.Workflow) -> None:
    world = World([padded_scale])
    world.join(padded_scale)
    world.submit(workflow, [0] * 9)
    text = r"program 'padded_scale': 'x' has size 9 in dimension 0 \('width'\), expected at most 8, the largest bucket"
    with pytest.raises(dyorc.InvalidInputError, match=text):
        world.result(1)
    assert world.history == []


def test_a_size_above_the_largest_bucket_fails_the_program_if_the_workflow_made_it() -> None:
    world = World([padded_scale, scale])
    world.join(padded_scale)
    world.join(scale)
    world.submit(scaled_twice, [0] * 9)
    world.finish_all()
    with pytest.raises(dyorc.ProgramError, match=r"'x' has size 9 in dimension 0 \('width'\), expected at most 8"):
        world.result(1)
    assert world.sizes(padded_scale) == []


@dyorc.program(batched=False)
def norm(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, ""]:
    return np.asarray(np.sqrt((x * x).sum()), np.float32)


@dyorc.workflow
async def length(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, ""]:
    return norm(x)


def test_a_program_that_is_not_batched_gets_one_call_at_a_time() -> None:
    world = world_with(program=norm)
    world.submit_all(length, [[3, 4], [6, 8], [0, 1]])
    world.finish_all()
    assert world.sizes(norm) == [1, 1, 1]
    assert {batch.action.reason for batch in world.history} == {FormReason.ALONE}
    assert [world.result(at) for at in (1, 2, 3)] == [5, 10, 1]


@dyorc.program(max_batch_size=1)
def add_one_alone(x: Vectors) -> Vectors:
    return x + 1


@dyorc.program(batched=False, max_ongoing=2)
async def norm_aside(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, ""]:
    return np.asarray(np.sqrt((x * x).sum()), np.float32)


@dyorc.workflow
async def increment_alone(x: Vector) -> Vector:
    return add_one_alone(x)


@dyorc.workflow
async def length_aside(x: Vector) -> Float[np.ndarray, ""]:
    return norm_aside(x)


@pytest.mark.parametrize(
    ("program", "workflow", "reason"),
    [(add_one_alone, increment_alone, FormReason.ALONE), (norm_aside, length_aside, FormReason.SIDE_BY_SIDE)],
    ids=["batches of one", "side by side"],
)
def test_a_reason_says_whether_calls_run_one_by_one_or_side_by_side(
    program: dyorc.Program, workflow: dyorc.Workflow, reason: FormReason
) -> None:
    world = world_with(program=program)
    world.submit_all(workflow, [[3, 4]] * 3)
    world.finish_all()
    assert {batch.action.reason for batch in world.history} == {reason}


@dyorc.workflow
async def fan_out(x: Vector) -> Vector:
    total = x
    for part in [add_one(x) for _ in range(4)]:
        total = add(total, part)
    return total


def test_the_fan_out_of_one_request_shares_a_batch() -> None:
    world = World([add_one, add])
    world.join(add_one)
    world.join(add)
    world.submit(fan_out, [0, 1])
    world.finish_all()
    assert world.sizes(add_one) == [4]
    assert np.array_equal(world.result(1), [4, 9])
