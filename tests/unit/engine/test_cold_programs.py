"""Programs without a replica: calls wait for one within their deadline, and errors name the program and how long it takes."""

import pytest

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.events import ReplicasWanted
from dyorc.errors import DeadlineError, ProgramLoadError, ScaledToZeroError
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, cascade, double, increment, increment_twice, send
from tests.unit.engine.speculative_world import GOOD, YES, counts, guarded, world_with


def test_a_call_of_a_cold_program_waits_and_is_answered() -> None:
    world = World([add_one])
    world.want(add_one, 0, lead_s=2.0)
    request_id = world.submit(increment, [1, 1], deadline_s=5.0)
    world.want(add_one, 1, lead_s=2.0)
    world.advance(2.0)
    world.join(add_one)
    world.finish()
    assert world.result(request_id).tolist() == [2, 2]


def test_a_request_that_cannot_wait_for_a_replica_fails_at_once() -> None:
    world = World([add_one, double])
    world.join(add_one)
    world.want(double, 0, lead_s=2.3)
    request_id = world.submit(cascade, [1, 1], deadline_s=0.5)
    world.finish()
    with pytest.raises(DeadlineError) as caught:
        world.result(request_id)
    assert str(caught.value) == (
        "the request's deadline cannot be met: program 'double' is cold; a replica takes about 2.3 s to be ready, 0.5 s were left"
    )
    world.check_nothing_is_left()


def test_the_time_that_a_replica_has_been_on_its_way_counts() -> None:
    world = World([add_one])
    world.want(add_one, 1, lead_s=2.0)
    world.advance(1.8)
    request_id = world.submit(increment, [1, 1], deadline_s=0.5)
    assert request_id not in world.answers, "0.2 s are left of the 2"
    world.want(add_one, 1, lead_s=2.0)
    world.submit(increment, [1, 1], deadline_s=0.5)
    assert not world.answers, "saying it again does not start anew"


def test_a_replica_that_is_overdue_may_come_at_any_moment() -> None:
    world = World([add_one])
    world.want(add_one, 1, lead_s=2.0)
    world.advance(10.0)
    world.submit(increment, [1, 1], deadline_s=0.1)
    assert not world.answers


def test_after_the_last_replica_has_died_another_takes_the_whole_time() -> None:
    world = World([add_one])
    world.want(add_one, 1, lead_s=2.0)
    replica = world.join(add_one)
    world.advance(10.0)
    world.leave(replica)
    assert isinstance(world.answers[world.submit(increment, [1, 1], deadline_s=1.0)], DeadlineError)


def test_a_deadline_that_passes_while_a_call_waits_names_the_program() -> None:
    world = World([add_one])
    world.want(add_one, 1, lead_s=2.0)
    request_id = world.submit(increment, [1, 1], deadline_s=3.0)
    world.advance(3.1)
    assert str(world.answers[request_id]) == (
        "the request's deadline passed before its answer was ready: program 'add_one' is cold; "
        "a replica takes about 2 s to be ready"
    )


def test_without_a_lead_time_the_error_still_names_the_program() -> None:
    world = World([add_one])
    request_id = world.submit(increment, [1, 1], deadline_s=3.0)
    world.advance(3.1)
    assert str(world.answers[request_id]).endswith("no replica of program 'add_one' is ready")


def test_a_request_that_is_late_for_another_reason_does_not_blame_a_cold_program() -> None:
    world = World([add_one, double])
    world.want(double, 0, lead_s=2.0)
    world.join(add_one)
    request_id = world.submit(increment_twice, [1, 1], deadline_s=1.0)
    world.advance(1.1)
    assert str(world.answers[request_id]) == "the request's deadline passed before its answer was ready"


def test_with_early_drop_switched_off_nobody_is_refused_ahead_of_time() -> None:
    world = World([add_one], EngineConfig(early_drop=False))
    world.want(add_one, 0, lead_s=2.0)
    world.submit(increment, [1, 1], deadline_s=1.0)
    assert not world.answers


def test_a_program_that_could_not_be_loaded_gets_another_chance_when_it_has_gone_cold() -> None:
    world = World([add_one], EngineConfig(max_load_failures=1))
    world.fail_load(add_one)
    assert isinstance(world.answers[world.submit(increment, [1, 1])], ProgramLoadError)
    world.want(add_one, 0)
    request_id = world.submit(increment, [1, 1])
    assert request_id not in world.answers
    world.want(add_one, 1)
    world.join(add_one)
    world.finish()
    assert world.result(request_id).tolist() == [2, 2]


def test_guesses_of_a_cold_program_wait_and_cost_nothing() -> None:
    world = world_with(YES)
    world.want(double, 0, lead_s=2.0)
    (replica,) = world.parked
    request_id = world.submit(guarded, GOOD)
    assert len(world.engine.scheduler.pools["double"].guesses) == 1
    assert world.engine.speculator.total.reserved_s == 0
    world.finish()
    assert not world.in_flight
    world.want(double, 1)
    world.warm(replica)
    world.finish()
    assert world.result(request_id).tolist() == [2, 4]
    assert counts(world) == (0, 0, 0)


def test_calls_of_a_program_that_a_person_has_scaled_to_zero_fail_at_once() -> None:
    world = World([add_one])
    waiting = world.submit(increment, [1, 1])
    world.tell(ReplicasWanted("add_one", 0, is_order=True))
    late = world.submit(increment, [1, 1])
    for request_id in (waiting, late):
        with pytest.raises(ScaledToZeroError, match="'add_one' is scaled to 0 replicas by hand; `dyorc scale add_one 1`"):
            world.result(request_id)
    world.tell(ReplicasWanted("add_one", 0))
    again = world.submit(increment, [1, 1])
    assert again not in world.answers, "it may be woken up"
    world.tell(ReplicasWanted("add_one", 1))
    world.join(add_one)
    world.finish_all()
    assert world.result(again)[0] == 2


def test_what_a_replica_runs_when_a_person_takes_it_away_is_answered() -> None:
    world = World([add_one])
    world.join(add_one)
    request_id = world.submit(increment, [1, 1])
    world.tell(ReplicasWanted("add_one", 0, is_order=True))
    world.finish_all()
    assert world.result(request_id)[0] == 2


def test_effects_of_an_answered_request_wait_for_a_program_that_is_off() -> None:
    world = World([send, double])
    world.join(double)
    world.submit(doubled_and_sent, [1, 1])
    world.finish_all()
    world.tell(ReplicasWanted("send", 0, is_order=True))
    assert world.engine.pending_effects() == {"doubled_and_sent": 1}
    world.tell(ReplicasWanted("send", 1))
    world.join(send)
    world.finish_all()
    assert not world.failed_effects
    assert not world.engine.pending_effects()


@dyorc.workflow
async def doubled_and_sent(x: Vector) -> Vector:
    send(x)
    return double(x)
