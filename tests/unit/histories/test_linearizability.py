"""The search is compared with trying every order, and knows histories that nothing explains."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.job_model import JobModel
from tests.histories.linearizability import SequentialModel, check
from tests.histories.operation import History, NotSentError, Operation


class Register:
    """A variable: ``write`` sets it, ``read`` gives it."""

    start: int = 0

    def step(self, state: int, operation: Operation) -> Iterable[int]:
        if operation.kind == "write":
            return (operation.argument,)
        return (state,) if operation.outcome in (None, state) else ()


def some_order_explains(history: Sequence[Operation], model: SequentialModel[Any]) -> bool:
    """Tries every order of every choice of unanswered operations."""
    answered = [operation for operation in history if operation.outcome is not None]
    unanswered = [operation for operation in history if operation.outcome is None]
    chosen = (done for num in range(len(unanswered) + 1) for done in itertools.combinations(unanswered, num))
    return any(_explains(order, model) for done in chosen for order in itertools.permutations([*answered, *done]))


def _explains(order: Sequence[Operation], model: SequentialModel[Any]) -> bool:
    if any(later.ended_s < earlier.began_s for at, earlier in enumerate(order) for later in order[at + 1 :]):
        return False
    states = {model.start}
    for operation in order:
        states = {after for state in states for after in model.step(state, operation)}
    return bool(states)


@st.composite
def histories(draw: st.DrawFn, kinds: Sequence[tuple[str, Sequence[object], Sequence[object]]]) -> list[Operation]:
    """Draws up to five operations; `kinds` have a name, arguments and outcomes."""
    history = []
    for client in range(draw(st.integers(1, 5))):
        kind, arguments, outcomes = draw(st.sampled_from(kinds))
        began_s = draw(st.integers(0, 8))
        outcome = draw(st.sampled_from([None, *outcomes]))
        ended_s = math.inf if outcome is None else began_s + draw(st.integers(0, 4)) + 0.5
        operation = Operation(client=client, kind=kind, subject="x", argument=draw(st.sampled_from(arguments)), outcome=outcome)
        operation.began_s, operation.ended_s = began_s, ended_s
        history.append(operation)
    return history


_REGISTER = [("write", [1, 2], ["done"]), ("read", [None], [0, 1, 2])]
_STATES = [["state", "queued"], ["state", "succeeded"], ["state", "cancelled"], ["gone", ""]]
_JOBS = [
    ("submit", ["a", "b"], [["id", "1"], ["id", "2"], ["conflict", ""]]),
    ("look", ["1", "2"], _STATES),
    ("cancel", ["1"], _STATES[1:]),
    ("forget", ["1"], [["forgotten", ""], ["gone", ""]]),
]


@given(histories(_REGISTER))
def test_a_register_is_judged_as_by_trying_every_order(history: list[Operation]) -> None:
    assert check(history, Register()).is_linearizable is some_order_explains(history, Register())


@given(histories(_JOBS))
def test_jobs_are_judged_as_by_trying_every_order(history: list[Operation]) -> None:
    assert check(history, JobModel()).is_linearizable is some_order_explains(history, JobModel())


def row(*steps: tuple[str, str, list[str] | None]) -> list[Operation]:
    """Returns operations one after another."""
    return [
        Operation(
            client=0, kind=kind, subject="k", argument=argument, outcome=outcome,
            began_s=at, ended_s=math.inf if outcome is None else at + 0.5,
        )
        for at, (kind, argument, outcome) in enumerate(steps)
    ]  # fmt: skip


FIRST = ("submit", "a", ["id", "1"])


@pytest.mark.parametrize(
    "history",
    [
        row(FIRST, ("submit", "a", ["id", "1"]), ("submit", "b", ["conflict", ""]), ("look", "1", ["state", "succeeded"])),
        row(FIRST, ("cancel", "1", None), ("look", "1", ["state", "cancelled"])),
        row(("submit", "a", None), ("submit", "a", ["id", "1"]), ("forget", "1", None), ("submit", "b", ["id", "2"])),
        row(FIRST, ("cancel", "1", ["state", "succeeded"]), ("forget", "1", ["forgotten", ""]), ("look", "1", ["gone", ""])),
    ],
)
def test_what_jobs_may_do(history: list[Operation]) -> None:
    assert str(check(history, JobModel())) == "linearizable"


@pytest.mark.parametrize(
    "history",
    [
        row(FIRST, ("submit", "a", ["id", "2"])),  # two jobs of one key
        row(FIRST, ("submit", "b", ["id", "1"])),  # another body, taken for the same
        row(FIRST, ("look", "1", ["gone", ""])),  # an accepted job is lost
        row(FIRST, ("look", "1", ["state", "succeeded"]), ("look", "1", ["state", "running"])),  # it ended, and goes on
        row(FIRST, ("look", "1", ["state", "failed"]), ("cancel", "1", ["state", "cancelled"])),  # it ended twice
        row(FIRST, ("cancel", "1", ["state", "running"])),
        row(FIRST, ("look", "1", ["state", "cancelled"])),  # nobody cancelled it
        row(FIRST, ("forget", "1", ["forgotten", ""]), ("look", "1", ["state", "queued"])),  # it came back
    ],
)
def test_what_no_order_explains(history: list[Operation]) -> None:
    verdict = check(history, JobModel())
    assert verdict.is_linearizable is False
    assert verdict.explained == history[:-1]
    assert verdict.stuck == history[-1:]
    assert str(history[-1]) in str(verdict)


def test_a_job_may_be_forgotten_after_its_time_and_not_before() -> None:
    gone = row(FIRST, ("look", "1", ["state", "succeeded"]), ("list", "1", ["gone", ""]), ("submit", "b", ["id", "2"]))
    assert check(gone, JobModel(ttl_s=1.0)).is_linearizable
    assert check(gone, JobModel(ttl_s=10.0)).is_linearizable is False
    back = row(*[FIRST] * 2, ("list", "1", ["gone", ""]), ("list", "1", ["state", "queued"]))
    assert check(back, JobModel(ttl_s=1.0)).is_linearizable is False


def test_a_search_that_takes_too_long_is_undecided() -> None:
    history = row(*[("submit", "a", None)] * 5, FIRST, ("look", "1", ["gone", ""]))
    assert check(history, JobModel(), max_steps=10).is_linearizable is None


def test_what_never_reached_a_server_is_not_in_the_history() -> None:
    history = History()
    with history.recorded(0, "read", "x") as answered:
        answered.outcome = 1
    with history.recorded(0, "read", "x"):
        raise NotSentError
    with history.recorded(1, "write", "y", 2) as unanswered:
        pass
    assert history.by_subject() == {"x": [answered], "y": [unanswered]}
    assert answered.began_s <= answered.ended_s < unanswered.ended_s == math.inf
