"""Calls: where each is, and what the scheduler needs to know of its request."""

from collections.abc import Hashable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from dyorc.authoring.signature import StaticValue
from dyorc.engine.model.budget import Bet, Budget
from dyorc.engine.model.cells import Argument, Cell
from dyorc.engine.statistics import Record
from dyorc.engine.story import Story
from dyorc.errors import InternalError
from dyorc.tensor import BlockId, TensorRef
from dyorc.terms import Terms

if TYPE_CHECKING:
    from dyorc.authoring.batching import BatchKey
    from dyorc.authoring.program import Program
    from dyorc.engine.model.journal import Segment
    from dyorc.engine.model.restorations import Restoration


class Order(msgspec.Struct, frozen=True, order=True, gc=False):
    """A call's place in a queue: the smaller goes first.

    Attributes:
        improbability: Minus the probability, in thousandths, of a call that is a guess; 0 for all others.
        due_ns: When its request is due, by its priority, deadline and arrival.
        deadline_ns: Of its request.
        arrival: The request's number, in the order in which requests arrived; 0 for guesses.
    """

    improbability: int
    due_ns: int
    deadline_ns: int
    arrival: int

    @classmethod
    def of_request(cls, terms: Terms, now_ns: int, deadline_ns: int, arrival: int, max_overtaking_ns: int) -> "Order":
        """Returns the place of a request that arrives now.

        It is due at its deadline, but no later than a third of `max_overtaking_ns` after its arrival. Any priority moves that
        forward by another third, so that it counts for more than a deadline, and priority n by an n-th of the last third. A
        request is therefore due at most two thirds before and one third after its arrival: priorities age, since a
        request that arrives more than `max_overtaking_ns` after another is due after it. The place never changes, so a heap can
        hold it.
        """
        third_ns = max_overtaking_ns // 3
        due_ns = min(deadline_ns, now_ns + third_ns)
        if terms.priority:
            due_ns -= third_ns + third_ns // terms.priority
        return cls(0, due_ns, deadline_ns, arrival)


class Standing(msgspec.Struct, eq=False, gc=False):
    """What all calls of one request have in common where they wait: whose they are, how urgent, what they may waste.

    Attributes:
        order: Their place in every queue, among the calls of their tenant.
        identity: Equal for requests with the same inputs; None if that is not known.
        tenant: Who sent the request.
        weight: The tenant's part of every queue.
        budget: What the request's workflow may waste on guesses.
        record: Where the workflow's requests are counted.
        story: The steps of the request, if somebody asked for them.
        can_be_dropped: Whether the request may be failed because it will be late: it is not answered and has had no effect.
    """

    order: Order
    tenant: str
    weight: float
    budget: Budget
    record: Record
    identity: Hashable = None
    story: Story | None = None
    can_be_dropped: bool = True


class CallState(Enum):
    """Where a call is. It moves down this list; when a replica is lost, it goes back to QUEUED, or to WAITING for lost inputs."""

    WAITING = auto()
    """Some of its inputs have not been computed yet or were lost, or it may not run before it is certain."""
    GUESSED = auto()
    """In its program's queue of guesses."""
    QUEUED = auto()
    """In its program's queue."""
    RUNNING = auto()
    """In a batch on a replica, or just back from there."""
    SETTLED = auto()
    """Its cell is ready or failed."""
    WITHDRAWN = auto()
    """Nobody needs it any more; a result that comes late is dropped."""


_UNFINISHED = (CallState.WAITING, CallState.GUESSED, CallState.QUEUED, CallState.RUNNING)
_BEFORE_GUESSED = (CallState.WAITING, CallState.GUESSED)
_BEFORE_QUEUED = _UNFINISHED
_BEFORE_RUNNING = (CallState.QUEUED, CallState.GUESSED)
_BEFORE_SETTLED = (CallState.RUNNING, CallState.WAITING)


class Call:
    """One use of a program by a request.

    Attributes:
        standing: What the scheduler knows of its request.
        state: Changed only by the methods named after the states.
        order: Its place in its program's queue.
        num_awaited: Input cells that are still pending, plus one while it may not run before it is certain.
        awaits_commit: Whether it may not run before it is certain.
        is_guess: Whether it may turn out not to be needed.
        bet: What was spent on it while it was a guess.
        operands: Its input tensors, once all are there.
        blocks: Where the stored ones lie.
        batch_key: Calls of equal keys may share a batch.
        num_attempts: How many times it ran on a replica that died.
        is_suspect: Whether it may have been the cause.
        num_losses: How many times its result was lost, or its batch could not read inputs that seemed to be there.
        room_share: Its part of the wait for room in an arena, of which its last batch has used some; 0: it has not waited.
        restores: The restoration it runs for, if it repeats a call whose result was lost; then it stands in no journal.
        submitted_ns: When all its inputs were there.
        expected_ns: When its result is expected, once it was submitted.
        segment: Where in its task's journal it stands.
    """

    __slots__ = (
        "arguments", "awaits_commit", "batch_key", "bet", "blocks", "call_id", "callee", "cell", "expected_ns", "is_guess",
        "is_suspect", "num_attempts", "num_awaited", "num_losses", "operands", "order", "restores", "room_share", "segment",
        "standing", "state", "statics", "submitted_ns",
    )  # fmt: skip

    def __init__(
        self,
        program: "Program",
        arguments: tuple[Argument, ...],
        statics: tuple[StaticValue, ...],
        segment: "Segment",
    ) -> None:
        self.call_id = 0
        self.callee = program
        self.arguments = arguments
        self.statics = statics
        self.segment = segment
        self.standing = segment.task.request.standing
        self.cell = Cell(self)
        self.state = CallState.WAITING
        self.num_awaited = 0
        self.awaits_commit = False
        self.is_guess = False
        self.bet: Bet | None = None
        self.num_attempts = 0
        self.is_suspect = False
        self.num_losses = 0
        self.room_share = 0.0
        self.restores: Restoration | None = None
        self.operands: tuple[TensorRef, ...] = ()
        self.blocks: Sequence[BlockId] = ()
        self.batch_key: BatchKey = ((), ())
        self.order = self.standing.order
        self.submitted_ns = 0
        self.expected_ns = 0

    def guess(self) -> None:
        """Enters its program's queue of guesses."""
        if self.state not in _BEFORE_GUESSED:
            raise self._cannot_become(CallState.GUESSED)
        self.state = CallState.GUESSED

    def enqueue(self) -> None:
        """Enters its program's queue; after a batch that did not end well, once more."""
        if self.state not in _BEFORE_QUEUED:
            raise self._cannot_become(CallState.QUEUED)
        self.state = CallState.QUEUED

    def dispatch(self) -> None:
        """Leaves its queue in a batch."""
        if self.state not in _BEFORE_RUNNING:
            raise self._cannot_become(CallState.RUNNING)
        self.state = CallState.RUNNING

    def wait(self) -> None:
        """Leaves its queue or its batch without having run."""
        if self.state not in _UNFINISHED:
            raise self._cannot_become(CallState.WAITING)
        self.state = CallState.WAITING

    def settle(self) -> None:
        """Ends: it has run, or will never run."""
        if self.state not in _BEFORE_SETTLED:
            raise self._cannot_become(CallState.SETTLED)
        self.state = CallState.SETTLED

    def withdraw(self) -> None:
        """Leaves its queue or batch, because nobody needs it any more."""
        if self.state not in _UNFINISHED:
            raise self._cannot_become(CallState.WITHDRAWN)
        self.state = CallState.WITHDRAWN

    def _cannot_become(self, state: CallState) -> InternalError:
        return InternalError(f"{self!r} is {self.state.name} and cannot become {state.name}")

    def __repr__(self) -> str:
        return f"call {self.call_id} of {self.callee.name!r}"
