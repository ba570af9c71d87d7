"""A request that is written down is served exactly like one that is not, and what is written down is complete and consistent."""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import Action, DispatchBatch, EffectFailed, FailRequest
from dyorc.engine.request_trace import RequestTrace
from tests.effort import examples
from tests.property.random_workflows import Numbers, Tree, inputs, meaning_of, trees, workflow_of
from tests.property.tallies import Tally, comes_across
from tests.property.test_speculation import AGGRESSIVE, KINDS, Turmoil, predictor_of

_TALLY = Tally()


def shown(value: Any) -> Any:
    """Returns what an action says, in a form that can be compared."""
    match value:
        case TensorRef(data=data):
            return value.shape, value.holder, value.block, value.offset, None if data is None else data.tobytes()
        case DispatchBatch():
            operands = [shown(tensor) for call in value.operands for tensor in call]
            return value.replica_id, value.batch_id, value.program.name, operands, value.reason.name, value.room_share
        case FailRequest():
            return value.request_id, type(value.error).__name__, str(value.error)
        case EffectFailed():
            return value.request_id, value.callee, str(value.error)
        case msgspec.Struct():
            return type(value).__name__, *[shown(part) for part in msgspec.structs.astuple(value)]
        case tuple() | list():
            return [shown(part) for part in value]
        case _:
            return value


def played(turmoil: Turmoil, tree: Tree, asked: Sequence[Numbers], *, is_recorded: bool) -> list[Any]:
    """Runs requests, some at a time. Returns all that the engine did, with the times."""
    world, workflow = turmoil.world, workflow_of(tree)
    done: list[Any] = []
    carry_out = world._carry_out

    def note(action: Action) -> None:
        done.append((world.now_ns, shown(action)))
        carry_out(action)

    world._carry_out = note
    left = list(asked)
    while left:
        num_now = turmoil.random.randint(1, len(left))
        world.submit_all(workflow, left[:num_now], explain=is_recorded)
        del left[:num_now]
        for _ in range(turmoil.random.choice([0, 3, 1000])):
            if not turmoil.happen():
                break
    turmoil.run()
    turmoil.check_end()
    return done


def check(story: RequestTrace) -> None:
    """Checks the story of a request that has ended, with all its work."""
    numbers = {call.call_id for call in story.calls}
    assert len(numbers) == len(story.calls)
    for call in story.calls:
        assert call.outcome != "waiting"
        assert all(source in numbers and source != call.call_id for source in call.sources)
        assert -1 <= call.decision < len(story.decisions)
        assert story.started_ns <= call.asked_ns <= call.ended_ns
        assert not call.queued_ns or call.asked_ns <= call.queued_ns
        assert not call.batches or call.queued_ns <= call.batches[0].sent_ns
        assert call.outcome != "done" or call.batches[-1].outcome == "done"
        assert call.outcome != "squashed" or call.is_guess
        for batch in call.batches:
            assert batch.outcome != "running"
            assert batch.sent_ns <= batch.ended_ns
            assert story.number in batch.requests
            assert len(batch.requests) == batch.size >= batch.num_guesses
    for number, decision in enumerate(story.decisions):
        assert -1 <= decision.decision < number
        assert all(source in numbers for source in decision.sources)
        assert bool(decision.outcome) == bool(decision.decided_ns)
    steps = story.steps()
    times = [step["at_ms"] for step in steps]
    assert times == sorted(times)
    assert sum(step["event"] == "dispatched" for step in steps) == sum(len(call.batches) for call in story.calls)


@comes_across(_TALLY, "squashed", "withdrawn", "failed", "lost batches", "repeated", "decided at once", "followed", least=5)
@settings(max_examples=examples(280, 0.75))
@given(
    tree=trees,
    asked=st.lists(inputs, min_size=1, max_size=4),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32),
    trouble=st.sampled_from([0.0, 0.1, 0.3]),
    world=st.sampled_from([{}, {"is_storing": True}, {"is_placing": True}]),
)
def test_recording_changes_nothing_that_the_engine_does(
    tree: Tree, asked: list[Numbers], kind: str, seed: int, trouble: float, world: dict[str, bool]
) -> None:
    assume(sum(meaning_of(tree, x).num_calls for x in asked) < 100)
    turmoils = [Turmoil(AGGRESSIVE, predictor_of(kind, seed), seed, trouble, **world) for _ in range(2)]
    plain, recorded = (played(turmoil, tree, asked, is_recorded=bool(at)) for at, turmoil in enumerate(turmoils))
    assert plain == recorded
    stories = turmoils[1].world.stories.values()
    assert len(stories) == len(asked)
    for story in stories:
        check(story)
        _TALLY.add(
            {
                **{
                    outcome: sum(call.outcome == outcome for call in story.calls)
                    for outcome in ("squashed", "withdrawn", "failed")
                },
                "lost batches": sum(batch.outcome == "lost" for call in story.calls for batch in call.batches),
                "repeated": sum(call.is_repeat for call in story.calls),
                "decided at once": sum(one.decided_ns == one.opened_ns > 0 for one in story.decisions),
                "followed": sum(bool(one.followed) for one in story.decisions),
            }
        )
