"""What a request's story tells."""

import msgspec
import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.events import BatchDone
from dyorc.engine.request_trace import Move, RequestTrace, TraceReader
from dyorc.engine.trace_text import as_text
from tests.unit.engine.driver import World

Vector = Float[np.ndarray, "2"]
Vectors = Float[np.ndarray, "batch 2"]


@dyorc.program(max_batch_size=4)
def look(x: Vectors) -> Vectors:
    return x


@dyorc.program(max_batch_size=4)
def work(x: Vectors) -> Vectors:
    return 2 * x


@dyorc.workflow
async def guarded(x: Vector) -> Vector:
    if await dyorc.when(look(x), lambda seen: seen[0] >= 0, likely=True):
        return work(x)
    return x


@dyorc.workflow
async def double(x: Vector) -> Vector:
    return work(x)


@dyorc.workflow
async def double_twice(x: Vector) -> Vector:
    return work(double(x))


def experienced_world() -> World:
    """Returns a world that knows how long its programs take."""
    world = World([look, work], EngineConfig(speculation=SpeculationConfig(margin=0)))
    for program in (look, work):
        world.join(program)
    for _ in range(20):
        world.submit(guarded, [1, 1])
        while world.in_flight:
            world.advance(0.05)
            world.finish(execute_s=0.05)
    return world


def story_of(world: World, x: list[float], workflow: dyorc.Workflow = guarded) -> RequestTrace:
    """Runs a request to its end and returns its story."""
    event = world.arrival(workflow, x, explain=True)
    world.tell(event)
    while world.in_flight:
        world.advance(0.05)
        world.finish(execute_s=0.05)
    assert not isinstance(world.answers[event.request_id], Exception)
    return world.stories[event.request_id]


def test_it_tells_what_was_guessed_why_batches_ran_and_what_was_gained() -> None:
    steps = story_of(experienced_world(), [1, 1]).steps()
    assert [step["event"] for step in steps] == ["followed", "dispatched", "dispatched", "done", "decided", "done", "answered"]
    assert [step["at_ms"] for step in steps] == sorted(step["at_ms"] for step in steps)
    by_program = {step["program"]: step for step in steps if step["event"] == "dispatched"}
    assert "guess" not in by_program["look"]
    assert by_program["work"]["guess"]["saves_ms"] > 10
    (decided,) = [step for step in steps if step["event"] == "decided"]
    assert decided["guesses"][0]["gain_ms"] == by_program["work"]["guess"]["saves_ms"]


def test_a_wrong_guess_is_told_with_its_cost() -> None:
    steps = story_of(experienced_world(), [-1, 1]).steps()
    (decided,) = [step for step in steps if step["event"] == "decided"]
    assert decided["outcome"] == "False"
    assert decided["guesses"][0]["is_right"] is False
    assert decided["guesses"][0]["gain_ms"] < 0


def test_its_text_has_a_line_for_each_step() -> None:
    right, wrong = (as_text(story_of(experienced_world(), [sign, 1.0]).steps()) for sign in (1.0, -1.0))
    assert "a guess: p = 0.9" in right
    assert "the guess True was right, saved " in right
    assert "the guess True was wrong, cost others " in wrong
    assert wrong.splitlines()[-1].endswith("answered")


@dyorc.workflow
async def twenty_turns(x: Vector) -> Vector:
    for _ in range(20):
        x = look(x)
        if not await dyorc.when(x, lambda seen: seen[0] >= 0):
            break
    return work(x)


def test_the_turns_of_a_loop_are_one_line() -> None:
    world = World([look, work], EngineConfig(speculation=SpeculationConfig(enabled=False)))
    for program in (look, work):
        world.join(program)
    steps = story_of(world, [1, 1], twenty_turns).steps()
    lines = [line.split(" ms  ")[1] for line in as_text(steps).splitlines()]
    assert lines[0] == "look x 20, 50.0 ms each, in batches of 1"
    assert lines[1].startswith("decision at ")
    assert lines[1].endswith(" x 20: True x 20")
    assert [line.partition(" in ")[0] for line in lines[2:]] == ["work starts", "work is done", "answered"]
    assert len(as_text(steps, max_alike=20).splitlines()) == len(steps) == 63


def test_calls_say_what_became_of_guesses() -> None:
    right, wrong = (story_of(experienced_world(), [sign, 1.0]) for sign in (1.0, -1.0))
    (work,) = [call for call in right.calls if call.program == "work"]
    assert (work.outcome, work.is_guess) == ("done", True)
    assert work.asked_ns < work.committed_ns == right.decisions[0].decided_ns
    (work,) = [call for call in wrong.calls if call.program == "work"]
    assert (work.outcome, work.committed_ns) == ("squashed", 0)
    assert work.bet is not None
    assert list(wrong.decisions[0].followed) == ["True"]


def test_calls_share_the_trace_of_their_batch() -> None:
    world = experienced_world()
    first, second = world.submit_all(double, [[1, 1], [2, 2]], explain=True)
    other = world.submit(double, [3, 3])
    world.finish_all()
    (mine,) = world.stories[first].calls
    (theirs,) = world.stories[second].calls
    assert mine.batches[0] is theirs.batches[0]
    assert mine.batches[0].requests == (first, second)
    assert other not in world.stories


def test_a_batch_says_how_it_went() -> None:
    world = experienced_world()
    request = world.submit(double, [1, 1], explain=True)
    (batch,) = world.in_flight.values()
    done = world.outcome(batch, 0.05)
    world.advance(0.1)
    assert isinstance(done, BatchDone)
    moves = (Move("shm", 8, 0.001),)
    world.tell(msgspec.structs.replace(done, gather_s=0.01, infer_s=0.03, publish_s=0.02, moves=moves))
    (trace,) = world.stories[request].calls[0].batches
    assert (trace.gather_s, trace.infer_s, trace.publish_s, trace.moves, trace.outcome) == (0.01, 0.03, 0.02, moves, "done")
    assert trace.ended_ns - trace.started_ns == 100_000_000


def test_a_call_that_is_tried_again_was_in_two_batches() -> None:
    world = experienced_world()
    request = world.submit(double, [1, 1], explain=True)
    world.leave("work#1")
    assert world.stories[request].calls[0].batches[0].outcome == "lost"
    world.join(work)
    world.finish_all()
    (call,) = world.stories[request].calls
    assert [batch.outcome for batch in call.batches] == ["lost", "done"]


def test_a_call_says_that_its_program_was_cold() -> None:
    world = World([work])
    request = world.submit(double, [1, 1], explain=True)
    assert world.stories[request].calls[0].was_cold
    world.join(work)
    request = world.submit(double, [1, 1], explain=True)
    assert not world.stories[request].calls[0].was_cold


def test_a_call_names_the_calls_behind_its_inputs_also_in_other_workflows() -> None:
    world = experienced_world()
    request = world.submit(double_twice, [1, 1], explain=True)
    world.finish_all()
    outer, inner = world.stories[request].calls
    assert (inner.sources, outer.sources) == ((), (inner.call_id,))


def test_a_request_that_fails_has_a_story() -> None:
    world = experienced_world()
    request = world.submit(guarded, [1, 1], explain=True)
    world.advance(1.0)
    world.cancel(request)
    story = world.stories[request]
    assert (story.ended_ns, story.is_answered) == (world.now_ns, False)
    assert {call.outcome for call in story.calls} == {"withdrawn"}
    assert "answered" not in [step["event"] for step in story.steps()]


def test_a_story_is_read_while_it_goes_on() -> None:
    world = experienced_world()
    request = world.submit(guarded, [1, 1], explain=True)
    reader = TraceReader(world.stories[request])
    steps = reader.new_steps()
    assert [step["event"] for step in steps] == ["followed", "dispatched", "dispatched"]
    assert reader.new_steps() == []
    world.advance(0.05)
    world.finish_all()
    assert steps + reader.new_steps() == world.stories[request].steps()


def test_there_is_no_story_unless_asked_for() -> None:
    world = experienced_world()
    request_id = world.submit(guarded, [1, 1])
    assert world.engine.tasks.requests[request_id].context.story is None
