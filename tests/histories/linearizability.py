"""Whether a history can be explained: each operation happened at one moment between its beginning and its end.

Wing and Gong's search (1993) with Lowe's memory (2017), as Knossos and Porcupine do it: try the operations that may have come
next, one after the other, and never twice from the same state with the same operations done. An operation without an answer may
have happened at any time after its beginning, or not at all.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tests.histories.operation import Operation

MAX_STEPS = 2_000_000
"""The search is exponential at worst. A history that takes more is undecided."""


State = TypeVar("State", bound=Hashable)


class SequentialModel(Protocol[State]):
    """What a subject does when operations come one at a time."""

    @property
    def start(self) -> State:
        """The state before the first operation."""
        ...

    def step(self, state: State, operation: Operation) -> Iterable[State]:
        """Returns the states that an operation may lead to: none if it cannot have had its outcome in this state; all that are
        possible if it has none."""
        ...


@dataclass
class Verdict:
    """What came out.

    Attributes:
        is_linearizable: None if the search was given up.
        explained: The longest order that explains something, if not all.
        stuck: The operations that fit nowhere after it.
        num_steps: Of the search.
    """

    is_linearizable: bool | None
    explained: list[Operation] = field(default_factory=list[Operation])
    stuck: list[Operation] = field(default_factory=list[Operation])
    num_steps: int = 0

    def __str__(self) -> str:
        if self.is_linearizable:
            return "linearizable"
        if self.is_linearizable is None:
            return f"undecided after {self.num_steps} steps"
        lines = [*(f"  {operation}" for operation in self.explained), "but none of these can have come next:"]
        return "\n".join(["not linearizable; this much is explained:", *lines, *(f"  {each}" for each in self.stuck)])


def check(history: Sequence[Operation], model: SequentialModel[State], max_steps: int = MAX_STEPS) -> Verdict:
    """Searches an order of one subject's operations."""
    operations = sorted(history, key=lambda operation: operation.began_s)
    answered = sum(1 << at for at, operation in enumerate(operations) if operation.outcome is not None)
    verdict = Verdict(False)
    seen: set[tuple[int, State]] = set()
    # A stack in place of recursion: what is done, as bits; the state; the order until here.
    pending: list[tuple[int, State, tuple[int, ...]]] = [(0, model.start, ())]
    longest: tuple[int, ...] = ()
    longest_done = 0
    while pending:
        done, state, order = pending.pop()
        if done & answered == answered:
            return Verdict(True, [operations[at] for at in order], [], verdict.num_steps)
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if (done & answered).bit_count() >= (longest_done & answered).bit_count():
            longest, longest_done = order, done
        for at in reversed(_may_be_next(operations, done)):
            verdict.num_steps += 1
            if verdict.num_steps > max_steps:
                return Verdict(None, num_steps=max_steps)
            pending += [(done | 1 << at, next_state, (*order, at)) for next_state in model.step(state, operations[at])]
    verdict.explained = [operations[at] for at in longest]
    verdict.stuck = [operations[at] for at in _may_be_next(operations, longest_done) if answered >> at & 1]
    return verdict


def _may_be_next(operations: Sequence[Operation], done: int) -> list[int]:
    """Returns the operations that began before any other one that is not done ended."""
    left = [at for at in range(len(operations)) if not done >> at & 1]
    first_end_s = min(operations[at].ended_s for at in left)
    return [at for at in left if operations[at].began_s <= first_end_s]
