"""What a request's story tells."""

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.engine.story import Story, as_text
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


def story_of(world: World, x: list[float]) -> Story:
    """Runs a request to its end and returns its story."""
    event = world.arrival(guarded, x, explain=True)
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


def test_there_is_no_story_unless_asked_for() -> None:
    world = experienced_world()
    request_id = world.submit(guarded, [1, 1])
    assert world.engine.tasks.requests[request_id].standing.story is None
