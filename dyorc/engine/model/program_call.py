"""Calls: what a workflow asks of programs, and the states of each call."""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from dyorc.authoring.signature import StaticValue
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.engine.model.futures import Argument, Future
from dyorc.engine.model.speculation_budget import Bet
from dyorc.engine.request_trace import CallTrace
from dyorc.errors import DyOrcError, InternalError

if TYPE_CHECKING:
    from dyorc.authoring.batching import BatchKey
    from dyorc.authoring.program import Program
    from dyorc.authoring.resident import ChainLink
    from dyorc.engine.model.journal import Segment
    from dyorc.engine.model.part_list import Cell, PartList, StreamArgument
    from dyorc.engine.model.request_tree import Restoration


class CallState(Enum):
    """Where a call is. `_TRANSITIONS` says which state follows which, and why; docs/concepts/call-states.md draws it."""

    WAITING = auto()
    """Some of its inputs have not been computed yet or were lost, or it may not run before it is certain."""
    GUESSED = auto()
    """In its program's queue of guesses."""
    QUEUED = auto()
    """In its program's queue."""
    RUNNING = auto()
    """In a batch on a replica, or just back from there."""
    SETTLED = auto()
    """Its future is ready or failed."""
    WITHDRAWN = auto()
    """No longer needed; a result that comes late is dropped."""


_TRANSITIONS: dict[tuple[CallState, CallState], str] = {
    (CallState.WAITING, CallState.GUESSED): "all inputs are ready; its decision is still open",
    (CallState.WAITING, CallState.QUEUED): "all inputs are ready, and it is certain",
    (CallState.WAITING, CallState.WAITING): "its inputs are checked again, or it is about to fail",
    (CallState.WAITING, CallState.SETTLED): "it fails: an input failed, or it is refused",
    (CallState.WAITING, CallState.WITHDRAWN): "no longer needed",
    (CallState.GUESSED, CallState.GUESSED): "its place in the queue changes",
    (CallState.GUESSED, CallState.QUEUED): "its decision commits: the guess was right",
    (CallState.GUESSED, CallState.RUNNING): "a batch takes it ahead of its decision",
    (CallState.GUESSED, CallState.WAITING): "an input was lost, or it is about to fail",
    (CallState.GUESSED, CallState.WITHDRAWN): "squashed: the guess was wrong",
    (CallState.QUEUED, CallState.QUEUED): "its place in the queue changes",
    (CallState.QUEUED, CallState.RUNNING): "a batch takes it",
    (CallState.QUEUED, CallState.WAITING): "an input was lost, or it is about to fail",
    (CallState.QUEUED, CallState.WITHDRAWN): "no longer needed",
    (CallState.RUNNING, CallState.QUEUED): "it is tried again: its replica was lost, or its batch failed",
    (CallState.RUNNING, CallState.WAITING): "an input was lost, or a failed guess waits until it is certain",
    (CallState.RUNNING, CallState.SETTLED): "its result arrived, or its error",
    (CallState.RUNNING, CallState.WITHDRAWN): "no longer needed; its result will be dropped",
}
"""The changes of state that are allowed, and what causes each. `Call` refuses all others."""


def _before(state: CallState) -> tuple[CallState, ...]:
    """Returns the states that `state` may follow."""
    return tuple([earlier for earlier, later in _TRANSITIONS if later is state])


# Names of their own, since Python looks a member of an enum up in a tenth of a microsecond.
_WAITING: Final = CallState.WAITING
_GUESSED: Final = CallState.GUESSED
_QUEUED: Final = CallState.QUEUED
_RUNNING: Final = CallState.RUNNING
_SETTLED: Final = CallState.SETTLED
_WITHDRAWN: Final = CallState.WITHDRAWN
_BEFORE_GUESSED = _before(CallState.GUESSED)
_BEFORE_QUEUED = _before(CallState.QUEUED)
_BEFORE_RUNNING = _before(CallState.RUNNING)
_BEFORE_WAITING = _before(CallState.WAITING)
_BEFORE_SETTLED = _before(CallState.SETTLED)
_BEFORE_WITHDRAWN = _before(CallState.WITHDRAWN)


class Feed:
    """How far a running call was fed with one of its streams.

    Attributes:
        call: That reads it.
        number: Which of its streams.
        num_fed: Parts that were sent to it.
        num_taken: Parts that it has read.
        num_awaited: 1 while the next part has not come, or has to be restored; else 0.
        has_ended: Whether its end was sent.
        error: Why the stream failed, if the call was told so.
    """

    __slots__ = ("call", "error", "has_ended", "num_awaited", "num_fed", "num_taken", "number", "parts")

    def __init__(self, call: "Call", number: int, parts: "PartList") -> None:
        self.call = call
        self.number = number
        self.parts = parts
        self.num_fed = 0
        self.num_taken = 0
        self.num_awaited = 0
        self.has_ended = False
        self.error: DyOrcError | None = None

    @property
    def segment(self) -> "Segment":
        """Where the call is."""
        return self.call.segment

    @property
    def next_cell(self) -> "Cell":
        """Where the next part to be sent is, or will be."""
        return self.parts.cells[self.num_fed]

    @property
    def is_live(self) -> bool:
        """Whether the call still runs, as it did when this began, and wants more."""
        call = self.call
        is_current = self.number < len(call.feeds) and call.feeds[self.number] is self
        return is_current and call.state is _RUNNING and not self.has_ended

    def __repr__(self) -> str:
        return f"stream {self.number} of {self.call!r}"


class Call:
    """One use of a program by a request.

    Attributes:
        context: What the scheduler knows about its request.
        state: Changed only by the methods named after the states.
        order: Its place in its program's queue.
        num_awaited: Input futures that are still pending, and streams of calls that have not started; plus one while it may not
            run before it is certain.
        awaits_commit: Whether it may not run before it is certain.
        is_guess: Whether it may turn out not to be needed.
        bet: What was spent on it while it was a guess.
        operands: Its input tensors, once all are there.
        blocks: Where the stored ones lie.
        batch_key: Calls of equal keys may share a batch.
        cost: What it costs, once its inputs are there; 1 if its program declares no cost. Equal for equal batch keys.
        num_attempts: How many times it ran on a replica that died.
        is_suspect: Whether it may have crashed a replica.
        num_losses: How many times its result was lost, or its batch could not read inputs that seemed to be there.
        room_share: The rest of its part of the wait for room in an arena; 0: it has not waited.
        restores: The restoration it runs for, if it repeats a call whose result was lost; then it is in no journal.
        submitted_ns: When all its inputs were there.
        expected_ns: When its result is expected, once it was submitted.
        parts: Its parts, if its program yields.
        process: The process that holds its residents, once its inputs are there; empty: it can run anywhere.
        chain: If it rebuilds a resident, the calls of the chain; its inputs are theirs.
        streams: Those that it takes whole, in the order of its program's parameters.
        feeds: How far it was fed with each, while it runs.
        segment: Where it is in its task's journal.
        trace: None if its request is not recorded.
    """

    __slots__ = (
        "arguments", "awaits_commit", "batch_key", "bet", "blocks", "call_id", "callee", "chain", "context", "cost",
        "expected_ns", "feeds", "future", "is_guess", "is_suspect", "num_attempts", "num_awaited", "num_losses", "operands",
        "order", "parts", "process", "restores", "room_share", "segment", "state", "statics", "streams", "submitted_ns", "trace",
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
        self.context = context = segment.task.request.context
        self.future = Future(context, self)
        self.state = _WAITING
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
        self.cost = 1.0
        self.order = context.order
        self.parts: PartList | None = None
        self.process = ""
        self.chain: Sequence[ChainLink] = ()
        self.streams: tuple[StreamArgument, ...] = ()
        self.feeds: tuple[Feed, ...] = ()
        self.submitted_ns = 0
        self.expected_ns = 0
        self.trace: CallTrace | None = None

    def is_from_client(self, input_at: int) -> bool:
        """Returns whether an input, by its index among its program's, is one that its request came with."""
        root, future = self.segment.task.request.root, self.arguments[input_at].future
        return root is not None and any(argument.future is future for argument in root.arguments)

    def guess(self) -> None:
        """Enters its program's queue of guesses."""
        if self.state not in _BEFORE_GUESSED:
            raise self.cannot_become(_GUESSED)
        self.state = _GUESSED

    def enqueue(self) -> None:
        """Enters its program's queue; after a batch that did not end well, once more."""
        if self.state not in _BEFORE_QUEUED:
            raise self.cannot_become(_QUEUED)
        self.state = _QUEUED
        if self.parts is not None:
            self.segment.task.request.await_place(self)

    def dispatch(self) -> None:
        """Leaves its queue in a batch."""
        if self.state not in _BEFORE_RUNNING:
            raise self.cannot_become(_RUNNING)
        self.state = _RUNNING

    def wait(self) -> None:
        """Leaves its queue or its batch without having run."""
        if self.state not in _BEFORE_WAITING:
            raise self.cannot_become(_WAITING)
        self.state = _WAITING

    def settle(self) -> None:
        """Ends: it has run, or will never run."""
        if self.state not in _BEFORE_SETTLED:
            raise self.cannot_become(_SETTLED)
        self.state = _SETTLED

    def withdraw(self) -> None:
        """Leaves its queue or batch, because it is no longer needed."""
        if self.state not in _BEFORE_WITHDRAWN:
            raise self.cannot_become(_WITHDRAWN)
        self.state = _WITHDRAWN

    def cannot_become(self, state: CallState) -> InternalError:
        """Returns the error of a change of state that is not allowed."""
        return InternalError(f"{self!r} is {self.state.name} and cannot become {state.name}")

    def __repr__(self) -> str:
        return f"call {self.call_id} of {self.callee.name!r}"


# The same changes for many calls at once.


def enqueue_all(calls: Iterable[Call]) -> None:
    """Enters calls into their program's queue."""
    for call in calls:
        if call.state not in _BEFORE_QUEUED:
            raise call.cannot_become(_QUEUED)
        call.state = _QUEUED
        if call.parts is not None:
            call.segment.task.request.await_place(call)


def dispatch_all(calls: Iterable[Call]) -> None:
    """Takes calls out of their queue, in a batch."""
    for call in calls:
        if call.state not in _BEFORE_RUNNING:
            raise call.cannot_become(_RUNNING)
        call.state = _RUNNING


def settle_all(calls: Iterable[Call]) -> None:
    """Ends calls."""
    for call in calls:
        if call.state not in _BEFORE_SETTLED:
            raise call.cannot_become(_SETTLED)
        call.state = _SETTLED
