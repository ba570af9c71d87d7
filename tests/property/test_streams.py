"""Streaming requests: under any order of events, guesses, losses and slow consumers, their parts are those of the plain run."""

import gc
from collections import Counter
from types import AsyncGeneratorType

from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from dyorc.errors import DyOrcError, ProgramError, ReplicaLostError
from tests.effort import examples
from tests.property.random_workflows import Meaning, Numbers, Tree, meaning_of_stream, poisonous_inputs, stream_of, streams
from tests.property.tallies import Tally, comes_across
from tests.property.test_lost_tensors import Losses
from tests.property.test_speculation import AGGRESSIVE, KINDS, OFF, Turmoil, alive, predictor_of, without_collector
from tests.unit.engine.driver import World

rooms = st.sampled_from([1, 2, 3, 16])
troubles = st.sampled_from([0.0, 0.1, 0.3])

_GUESSED, _LOST = Tally(), Tally()


def run(turmoil: Turmoil, tree: Tree, asked: list[Numbers]) -> None:
    """Runs requests, some at a time, to their end."""
    workflow, left = stream_of(tree), list(asked)
    while left:
        num_now = turmoil.random.randint(1, len(left))
        turmoil.world.submit_all(workflow, left[:num_now])
        del left[:num_now]
        for _ in range(turmoil.random.choice([0, 3, 1000])):
            if not turmoil.happen():
                break
    turmoil.run()
    turmoil.world.check_nothing_is_left()


def check(world: World, request_id: int, meaning: Meaning) -> None:
    """Checks that all parts came, in order, and then the end or the error."""
    assert parts_of(world, request_id) == list(meaning.parts)
    answer = world.answers[request_id]
    if meaning.answer is None:
        assert isinstance(answer, ProgramError), answer
        assert answer.error_type == "ValueError", answer
    else:
        assert answer == []


def parts_of(world: World, request_id: int) -> list[Numbers]:
    return [tuple(part[0].tolist()) for part in world.parts.get(request_id, ())]


@comes_across(
    _GUESSED, "parts", "parts before an error", "poisoned parts", "parts on guesses", "runs that wait for room",
    "guesses that wait for room", "speculations", "commits", "squashes",
)  # fmt: skip
@settings(max_examples=examples(180, 0.5))
@given(
    tree=streams,
    asked=st.lists(poisonous_inputs, min_size=1, max_size=3),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
    trouble=troubles,
    room=rooms,
    world=st.sampled_from([{}, {"is_storing": True}, {"is_storing": True, "is_fetching": False}]),
    is_slow=st.booleans(),
)
def test_guesses_and_slow_consumers_change_no_part(
    tree: Tree, asked: list[Numbers], kind: str, seed: int, trouble: float, room: int, world: dict[str, bool], is_slow: bool
) -> None:
    meanings = [meaning_of_stream(tree, x) for x in asked]
    assume(sum(meaning.num_calls for meaning in meanings) < 200)
    for speculation in (AGGRESSIVE, OFF):
        turmoil = Turmoil(
            speculation, predictor_of(kind, seed), seed, trouble, max_untaken_parts=room, is_taking=not is_slow, **world
        )
        run(turmoil, tree, asked)
        turmoil.check_end()
        for number, meaning in enumerate(meanings, 1):
            check(turmoil.world, number, meaning)
        most = sum((meaning.effects for meaning in meanings), Counter[tuple[str, Numbers]]())
        least = sum((meaning.effects for meaning in meanings if not meaning.is_cut), Counter[tuple[str, Numbers]]())
        assert least <= turmoil.effects <= most
        turmoil.seen.counts["parts"] += sum(len(meaning.parts) for meaning in meanings)
        turmoil.seen.counts["parts before an error"] += sum(len(each.parts) for each in meanings if each.answer is None)
        turmoil.seen.counts["poisoned parts"] += sum(meaning.is_cut for meaning in meanings)
        _GUESSED.add(turmoil.seen.counts)


@comes_across(_LOST, "parts on guesses", "parts lost", "runs that wait for room", "restorations")
@settings(max_examples=examples(180, 0.7))
@given(
    tree=streams,
    asked=st.lists(poisonous_inputs, min_size=1, max_size=3),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
    trouble=troubles,
    room=rooms,
    is_storing=st.booleans(),
)
def test_lost_tensors_change_no_part(
    tree: Tree, asked: list[Numbers], kind: str, seed: int, trouble: float, room: int, is_storing: bool
) -> None:
    meanings = [meaning_of_stream(tree, x) for x in asked]
    assume(sum(meaning.num_calls for meaning in meanings) < 200)
    for speculation in (AGGRESSIVE, OFF):
        turmoil = Losses(speculation, predictor_of(kind, seed), seed, trouble, max_untaken_parts=room, is_storing=is_storing)
        run(turmoil, tree, asked)
        for number, meaning in enumerate(meanings, 1):
            check(turmoil.world, number, meaning)
        if not trouble:
            assert not turmoil.seen.counts["restorations"], "a tensor was released before its time"
        _LOST.add(turmoil.seen.counts)


@settings(max_examples=examples(100), phases=[Phase.explicit, Phase.generate])
@given(
    tree=streams,
    asked=st.lists(poisonous_inputs, min_size=1, max_size=3),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
    max_attempts=st.sampled_from([1, 3, 10**6]),
    room=rooms,
    num_events=st.integers(0, 30),
    end=st.sampled_from(["answer", "cancel", "deadline"]),
)
def test_a_stream_that_has_ended_leaves_nothing_in_memory(
    tree: Tree, asked: list[Numbers], kind: str, seed: int, max_attempts: int, room: int, num_events: int, end: str
) -> None:
    """Whatever its end, also in mid-stream, no generator is left to be closed by the garbage collector."""
    meanings = [meaning_of_stream(tree, x) for x in asked]
    assume(sum(meaning.num_calls for meaning in meanings) < 100)
    workflow = stream_of(tree)
    with without_collector():
        before = alive() + generators()
        turmoil = Losses(AGGRESSIVE, predictor_of(kind, seed), seed, 0.3, max_attempts, max_untaken_parts=room)
        requests = turmoil.world.submit_all(workflow, asked)
        for _ in range(num_events):
            turmoil.happen()
        if end == "cancel":
            for request_id in requests:
                turmoil.world.cancel(request_id)
        elif end == "deadline":
            turmoil.let_deadlines_pass()
        turmoil.run()
        turmoil.world.check_nothing_is_left()
        for request_id, meaning in zip(requests, meanings, strict=True):
            check_end(turmoil.world, request_id, meaning, end)
        turmoil.world.answers.clear()  # an error's traceback refers to frames, which are not the engine's
        turmoil.world.failed_effects.clear()
        left = alive() + generators() - before
    assert not left


def generators() -> Counter[str]:
    """Returns the generators of workflows that are still in memory."""
    return Counter("generator" for thing in gc.get_objects() if type(thing) is AsyncGeneratorType)


def check_end(world: World, request_id: int, meaning: Meaning, end: str) -> None:
    """Checks that, whatever happened, the parts that came are the first of those that the workflow means to yield."""
    parts, answer = parts_of(world, request_id), world.answers[request_id]
    assert parts == list(meaning.parts[: len(parts)])
    if isinstance(answer, DyOrcError):
        assert meaning.answer is None or isinstance(answer, ReplicaLostError) or end != "answer", repr(answer)
    else:
        assert len(parts) == len(meaning.parts)
        assert meaning.answer is not None
