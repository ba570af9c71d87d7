"""Inputs that kill their replica: they are tried again alone, then refused; other requests hardly notice."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.engine_context import Host
from dyorc.engine.events import ReplicaLeft, SuspectInput, SuspectsReported
from dyorc.engine.invariants.in_flight import scheduler_of
from dyorc.errors import EffectLostError, SuspectInputError
from tests.unit.engine.dispatched import Dispatched
from tests.unit.engine.driver import World
from tests.unit.engine.programs import Vector, add_one, double, increment, put, send
from tests.unit.engine.speculative_world import BAD as GUARDED_BAD
from tests.unit.engine.speculative_world import GOOD as GUARDED_GOOD
from tests.unit.engine.speculative_world import guarded, world_with

SEGFAULT = "its process was killed by signal 11, SIGSEGV"
KILLED = "its process was killed by signal 9, SIGKILL"
BAD = -1.0


@dyorc.workflow
async def increment_of_double(x: Vector) -> Vector:
    return add_one(double(x))


@dyorc.workflow
async def double_alone(x: Vector) -> Vector:
    return double(x)


@dataclass
class Deaths:
    """A world in which a replica dies if it runs a vector that begins with `BAD`."""

    world: World
    program: dyorc.Program = add_one
    num: int = 0
    victims: list[int] = field(default_factory=list[int])
    """Sizes of the batches that were running."""

    def step(self, batch: Dispatched, *, is_crash: bool = True, was_killed: bool = False, comes_back: bool = True) -> None:
        """Runs a batch, which kills its replica if it holds the bad input."""
        if batch.program != self.program.name or BAD not in [row[0] for row in batch.column()]:
            self.world.finish(batch)
            return
        self.num += 1
        self.victims.append(batch.size)
        self.die(batch.action.replica_id, is_crash=is_crash and not was_killed, was_killed=was_killed)
        if comes_back:
            self.world.join(self.program)

    def die(self, replica_id: str, *, is_crash: bool = True, was_killed: bool = False) -> None:
        """Ends a replica's process."""
        self.world.forget(replica_id)
        reason = KILLED if was_killed else SEGFAULT if is_crash else "connection lost"
        self.world.tell(ReplicaLeft(replica_id, reason, is_crash, was_killed))

    def run(self, **how: bool) -> None:
        """Runs batches, oldest first, until none is in flight."""
        while self.world.in_flight:
            self.step(self.world.oldest(), **how)


def deaths(num_replicas: int = 1, program: dyorc.Program = add_one, **limits: float) -> Deaths:
    world = World([program, double], EngineConfig.model_validate({"hold": False, **limits}))
    for _ in range(num_replicas):
        world.join(program)
    world.join(double)
    return Deaths(world, program)


def refusal(world: World, request_id: int) -> str:
    with pytest.raises(SuspectInputError) as caught:
        world.result(request_id)
    assert not caught.value.retryable
    return str(caught.value)


def test_an_input_that_ends_its_replica_twice_is_refused_and_the_error_says_how_it_ended() -> None:
    seen = deaths()
    bad = seen.world.submit(increment, [BAD, 0])
    seen.run()
    assert seen.num == 2
    assert refusal(seen.world, bad) == (
        f"program 'add_one' lost 2 replicas while running this call ({SEGFAULT}); it is not run again"
    )
    seen.world.check_nothing_is_left()


def test_an_input_whose_replica_is_killed_from_outside_gets_one_more_try() -> None:
    seen = deaths()
    bad = seen.world.submit(increment, [BAD, 0])
    for _ in range(2):
        seen.step(seen.world.oldest(), was_killed=True)
        assert bad not in seen.world.answers
    seen.run(was_killed=True)
    assert seen.num == 3
    assert f"lost 3 replicas while running this call ({KILLED})" in refusal(seen.world, bad)
    seen.world.check_nothing_is_left()


@pytest.mark.parametrize(("is_crash", "victims"), [(True, [4, 1]), (False, [4, 4, 1])])
def test_requests_that_shared_a_batch_with_it_are_answered(is_crash: bool, victims: list[int]) -> None:
    """If nobody can tell how the process ended, sharing one batch with it is no reason for suspicion."""
    seen = deaths()
    good = [seen.world.arrival(increment, [at, at]) for at in range(3)]
    bad = seen.world.arrival(increment, [BAD, 0])
    seen.world.tell(*good, bad)
    seen.run(is_crash=is_crash)
    assert seen.victims == victims
    assert [seen.world.result(event.request_id)[0] for event in good] == [1, 2, 3]
    refusal(seen.world, bad.request_id)
    seen.world.check_nothing_is_left()


def test_calls_that_wait_go_before_a_suspect_where_there_is_one_replica() -> None:
    seen = deaths()
    bad = seen.world.submit(increment, [BAD, 0])
    good = seen.world.submit_all(increment, [[at, at] for at in range(6)])
    seen.step(seen.world.oldest())
    while any(request_id not in seen.world.answers for request_id in good):
        seen.step(seen.world.oldest())
        assert seen.num == 1, "they were delayed by a second death"
    seen.run()
    assert seen.num == 2
    refusal(seen.world, bad)


def test_where_others_always_wait_a_suspect_waits_no_longer_than_the_limit() -> None:
    seen = deaths(max_suspect_wait_s=10)
    bad = seen.world.submit(increment, [BAD, 0])
    num_seconds = 0
    while bad not in seen.world.answers:
        seen.world.submit_all(increment, [[1, 1]] * 9)
        seen.step(seen.world.oldest())
        seen.world.advance(1)
        num_seconds += 1
        assert num_seconds < 30
    assert num_seconds >= 10
    refusal(seen.world, bad)


def test_of_two_replicas_one_always_serves() -> None:
    two = add_one.with_options(name="two", num_replicas=2)

    @dyorc.workflow
    async def by_two(x: Vector) -> Vector:
        return two(x)

    seen = deaths(2, two)
    world = seen.world
    bad = world.submit(by_two, [BAD, 0])
    seen.step(world.oldest(), comes_back=False)
    for at in range(20):
        good = world.submit(by_two, [at, at])
        seen.step(world.oldest())
        assert world.result(good)[0] == at + 1
    assert seen.num == 1, "it waits for the second replica"
    world.join(two)
    [batch] = world.batches(two)
    seen.step(batch, comes_back=False)
    refusal(world, bad)
    assert len(scheduler_of(world.engine).pools["two"].replicas) == 1


def test_suspects_run_one_after_the_other() -> None:
    seen = deaths(3)
    for _ in range(2):
        seen.world.submit(increment, [BAD, 0])
    for batch in list(seen.world.in_flight.values()):
        seen.step(batch)
    assert [batch.size for batch in seen.world.in_flight.values()] == [1]
    seen.run()
    assert seen.num == 4


# Equal requests


def test_an_equal_request_is_refused_at_once_until_the_input_is_forgotten() -> None:
    seen = deaths(refuse_inputs_s=600)
    world = seen.world
    world.submit(increment, [BAD, 0], identity="bad")
    seen.run()
    assert "nor are equal requests for 600 s" in refusal(world, 1)
    world.advance(100)
    again = world.submit(increment, [BAD, 0], identity="bad")
    assert refusal(world, again) == (
        f"program 'add_one' lost replicas to an equal request ({SEGFAULT}); such requests are refused for another 500 s"
    )
    other = world.submit(increment, [1, 1], identity="good")
    unknown = world.submit(increment, [1, 1])
    seen.run()
    assert (world.result(other)[0], world.result(unknown)[0], seen.num) == (2, 2, 2)
    world.advance(501)
    world.submit(increment, [BAD, 0], identity="bad")
    seen.run()
    assert seen.num == 4
    world.check_nothing_is_left()


def test_equal_requests_that_wait_already_are_refused_with_it() -> None:
    single = add_one.with_options(name="single", max_batch_size=1)

    @dyorc.workflow
    async def singly(x: Vector) -> Vector:
        return single(x)

    seen = deaths(1, single)
    for _ in range(10):
        seen.world.submit(singly, [BAD, 0], identity="bad")
    good = seen.world.submit(singly, [1, 1], identity="good")
    seen.run()
    assert seen.world.result(good)[0] == 2
    for request_id in range(1, 11):
        refusal(seen.world, request_id)
    assert seen.num == 2
    seen.world.check_nothing_is_left()


def test_an_equal_request_is_refused_where_its_workflow_reaches_that_program() -> None:
    seen = deaths()
    for expected in (2, 2):
        request_id = seen.world.submit(increment_of_double, [BAD / 2, 0], identity="half")
        seen.run()
        refusal(seen.world, request_id)
        assert seen.num == expected
    seen.world.check_nothing_is_left()


def test_the_number_of_remembered_inputs_is_bounded() -> None:
    seen = deaths(max_refused_inputs=2)
    for name in "abc":
        seen.world.submit(increment, [BAD, 0], identity=name)
        seen.run()
    assert seen.num == 6
    assert seen.world.engine.scheduler.report("add_one")["num_refused_inputs"] == 2
    seen.world.submit(increment, [BAD, 0], identity="c")
    assert seen.num == 6
    seen.world.submit(increment, [BAD, 0], identity="a")
    seen.run()
    assert seen.num == 8, "the oldest is forgotten"


def test_an_engine_that_takes_over_refuses_what_the_last_one_refused() -> None:
    host = Host()
    first = Deaths(World([add_one, double], EngineConfig(hold=False), host=host))
    first.world.join(add_one)
    first.world.submit(increment, [BAD, 0], identity="bad")
    first.run()
    assert first.num == 2
    second = Deaths(World([add_one, double], EngineConfig(hold=False), host=host))
    second.world.join(add_one)
    bad = second.world.submit(increment, [BAD, 0], identity="bad")
    good = second.world.submit(increment, [1, 1], identity="good")
    second.run()
    assert second.num == 0
    refusal(second.world, bad)
    assert second.world.result(good)[0] == 2
    second.world.advance(EngineConfig().refuse_inputs_s)
    assert second.world.engine.scheduler.report("add_one")["num_refused_inputs"] == 1, "it is forgotten when it is asked for"
    second.world.submit(increment, [BAD, 0], identity="bad")
    second.run()
    assert second.num == 2


def test_inputs_are_not_compared_before_one_is_refused() -> None:
    class Costly:
        def __hash__(self) -> int:
            raise AssertionError("it was asked for")

    seen = deaths()
    seen.world.submit(increment, [1, 1], identity=Costly())
    seen.run()
    assert seen.world.result(1)[0] == 2


def test_an_input_that_was_cleared_is_not_blamed_for_a_later_death() -> None:
    seen = deaths()
    for _ in range(5):
        request_id = seen.world.submit(increment, [1, 1], identity="good")
        seen.die(seen.world.oldest().action.replica_id)  # by chance
        seen.world.join(add_one)
        seen.run()
        assert seen.world.result(request_id)[0] == 2


# Others


def test_an_effect_is_not_repeated_because_its_replica_crashed() -> None:
    @dyorc.workflow
    async def sending(x: Vector) -> Vector:
        return send(x)

    seen = deaths(1, send)
    request_id = seen.world.submit(sending, [BAD, 0])
    seen.run()
    assert seen.num == 1
    with pytest.raises(EffectLostError, match=SEGFAULT):
        seen.world.result(request_id)


def test_a_suspect_that_is_cancelled_leaves_room_for_the_next() -> None:
    seen = deaths(1, put, max_suspect_wait_s=1)

    @dyorc.workflow
    async def putting(x: Vector) -> Vector:
        return put(x)

    first, second = seen.world.submit_all(putting, [[BAD, 0], [1, 1]])
    seen.step(seen.world.oldest(), comes_back=False)
    seen.world.cancel(first)
    seen.world.join(put)
    seen.run()
    assert np.array_equal(seen.world.result(second), [1, 1])
    seen.world.check_nothing_is_left()


def warned(
    world: World, suspects: Sequence[Hashable] = (), refused: Sequence[Hashable] = (), *, names_inputs: bool = False
) -> SuspectsReported:
    """Returns what a cell is told when another has ended."""

    def dangers(identities: Sequence[Hashable]) -> list[SuspectInput]:
        until_ns = world.now_ns + 600 * 10**9
        return [SuspectInput("add_one", identity, "its cell was ended by SIGSEGV", until_ns) for identity in identities]

    return SuspectsReported(dangers(suspects), dangers(refused), world.now_ns + 600 * 10**9 if names_inputs else 0)


def test_what_ended_another_process_runs_alone_until_it_has_run_without_harm() -> None:
    seen = deaths()
    world = seen.world
    waiting = [world.submit(increment, [at, 0], identity=at) for at in range(2)]
    world.tell(warned(world, suspects=[5]))
    later = [world.submit(increment, [at, 0], identity=at) for at in (5, 6, 5)]
    sizes: list[tuple[int, bool]] = []
    while world.in_flight:
        batch = world.oldest()
        sizes.append((batch.size, batch.action.is_suspect))
        world.finish(batch)
    assert (1, True) in sizes
    assert [is_suspect for size, is_suspect in sizes if size > 1] == [False] * sum(size > 1 for size, _ in sizes)
    assert sum(is_suspect for _, is_suspect in sizes) == 1  # its equal is free once it has run
    for request_id in (*waiting, *later):
        world.result(request_id)
    world.submit(increment, [5, 0], identity=5)
    assert not world.oldest().action.is_suspect


def test_what_ended_two_other_processes_is_refused_even_if_it_waits_already() -> None:
    seen = deaths()
    world = seen.world
    world.submit_all(increment, [[at, 0] for at in range(2)])
    waiting = world.submit(increment, [9, 0], identity=9)
    world.tell(warned(world, refused=[9]))
    later = world.submit(increment, [9, 0], identity=9)
    for request_id in (waiting, later):
        assert "lost replicas to an equal request (its cell was ended by SIGSEGV)" in refusal(world, request_id)


def test_suspects_of_two_programs_do_not_run_at_once_in_one_process() -> None:
    world = World([add_one, double], EngineConfig(hold=False))
    for program in (add_one, double):
        world.join(program)
    until_ns = world.now_ns + 600 * 10**9
    world.tell(SuspectsReported([SuspectInput(name, 5, "", until_ns) for name in ("add_one", "double")]))
    world.tell(world.arrival(increment, [1, 0], identity=5), world.arrival(double_alone, [1, 0], identity=5))
    assert [batch.action.is_suspect for batch in world.in_flight.values()] == [True]
    world.finish()
    assert [batch.action.is_suspect for batch in world.in_flight.values()] == [True]


def _finish_all(world: World) -> list[tuple[int, bool]]:
    """Finishes all batches, oldest first. Returns the size of each, and whether it was tried as a suspect."""
    seen: list[tuple[int, bool]] = []
    while world.in_flight:
        batch = world.oldest()
        seen.append((batch.size, batch.action.is_suspect))
        world.finish(batch)
    return seen


def test_each_call_of_a_suspect_request_runs_alone() -> None:
    @dyorc.workflow
    async def increments(x: Vector) -> Vector:
        return (await dyorc.gather(*dyorc.map(add_one, [x, x, x])))[0]

    world = World([add_one], EngineConfig(hold=False))
    world.join(add_one)
    world.tell(warned(world, suspects=[5]))
    request = world.submit(increments, [5, 0], identity=5)
    seen = _finish_all(world)
    world.result(request)
    assert seen == [(1, True)] * 3, "any of them may be the one that ended the other process"
    world.submit(increment, [5, 0], identity=5)
    assert not world.oldest().action.is_suspect


def test_batches_name_their_inputs_while_the_engine_is_warned() -> None:
    world = deaths().world
    world.submit(increment, [1, 0], identity="a")
    assert world.oldest().action.inputs == ()
    world.finish()
    world.tell(warned(world, names_inputs=True))
    world.submit(increment, [1, 0], identity="a")
    assert world.oldest().action.inputs == ["a"]
    world.finish()
    world.advance(601)
    world.submit(increment, [1, 0], identity="a")
    assert world.oldest().action.inputs == ()


def test_a_call_that_follows_others_of_its_request_is_tried_alone_too() -> None:
    @dyorc.workflow
    async def in_a_row(x: Vector) -> Vector:
        first = await add_one(x)
        second = await add_one(first)
        return add_one(second)

    world = World([add_one], EngineConfig(hold=False))
    world.join(add_one)
    world.tell(warned(world, suspects=[5]))
    request = world.submit(in_a_row, [5, 0], identity=5)
    equal = world.submit(in_a_row, [5, 0], identity=5)
    seen = _finish_all(world)
    world.result(request)
    world.result(equal)
    assert seen[:3] == [(1, True)] * 3, "the last may be the one that ended the other process"
    assert all(is_suspect for _, is_suspect in seen[:5]), "no call of an equal request is free before one has ended well"
    world.submit(increment, [5, 0], identity=5)
    assert not world.oldest().action.is_suspect


@pytest.mark.parametrize("x", [GUARDED_GOOD, GUARDED_BAD], ids=["right", "wrong"])
def test_a_suspect_call_is_not_guessed(x: list[float]) -> None:
    world = world_with()
    until_ns = world.now_ns + 600 * 10**9
    world.tell(SuspectsReported([SuspectInput("double", 5, "", until_ns)]))
    request = world.submit(guarded, x, identity=5)
    assert world.batches(double) == []
    other = world.submit(guarded, x, identity=6)
    assert len(world.batches(double)) == 1, "only what is not suspect"
    while world.in_flight:
        batch = world.oldest()
        assert batch.size == 1 or not batch.action.is_suspect
        world.finish(batch)
    assert world.result(request).tolist() == world.result(other).tolist()
    world.check_nothing_is_left()
