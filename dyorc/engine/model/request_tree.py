"""A request in flight and its tree of tasks."""

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final, Protocol, TypeAlias

from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.workflow import Workflow
from dyorc.core.tensor import BlockId
from dyorc.engine.model.futures import Argument, Future, Outcome
from dyorc.engine.model.journal import BranchPoint, Entry, Segment, StreamPart
from dyorc.engine.model.part_list import Cell, PartList, StreamArgument
from dyorc.engine.model.program_call import Call, Feed
from dyorc.engine.model.request_context import RequestContext
from dyorc.errors import DyOrcError


class Run(Protocol):
    """One run of a coroutine against its task's journal.

    Attributes:
        segment: Where it is in the journal.
        assumed: The open decisions that it has passed, first to last, or will pass, and the outcomes it assumes.
        undecided: The decision that it waits for.
        num_awaited: Futures that it waits for.
        num_parts: Parts that it has yielded.
        awaits_room: Whether it waits until some of them have been taken.
        is_closed: Whether it was ended because it is not needed.
    """

    segment: Segment
    assumed: dict[BranchPoint, Outcome]
    undecided: BranchPoint | None
    num_awaited: int
    num_parts: int
    awaits_room: bool
    is_closed: bool

    @property
    def end(self) -> object | None:
        """How it ended, while that still rests on guesses; None before."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class TaskState(Enum):
    ACTIVE = auto()
    """Its paths run, or wait for values."""
    RETURNED = auto()
    """Its coroutine returned; tensors of its result are still being computed."""
    SETTLED = auto()
    """Its future is ready or failed."""
    WITHDRAWN = auto()
    """No longer needed."""


_ACTIVE: Final = TaskState.ACTIVE
_RETURNED: Final = TaskState.RETURNED


class Task:
    """One run of a workflow within a request.

    Attributes:
        arguments: The tensors it was called with.
        context: That of its request.
        name: Of its workflow; of a request's root, as the request asked for it.
        segment: Where it is in its caller's journal; None for a request's root.
        depth: Callers above it; 0 for the root.
        paths: Its runs: one, or more while decisions are guessed.
        num_awaited: Pending futures of its result.
        result: Its result, once it has returned; for a streaming task, the parts still to be sent.
        started_ns: When it was called.
        streams: Those that it takes whole, in the order of its workflow's parameters.
        parts: Its parts, if it yields them to another workflow.
        stream: How far it is in yielding, if it does and has not ended.
    """

    __deletable__ = ("journal",)  # for mypyc
    __slots__ = (
        "_residents", "arguments", "callee", "context", "depth", "future", "journal", "name", "num_awaited", "parts", "paths",
        "request", "result", "segment", "started_ns", "state", "statics", "stream", "streams",
    )  # fmt: skip

    def __init__(
        self,
        request: "Request",
        workflow: Workflow,
        arguments: tuple[Argument, ...],
        statics: tuple[StaticValue, ...],
        segment: Segment | None = None,
    ) -> None:
        self.request = request
        self.context = context = request.context
        self.callee = workflow
        self.name = context.record.name if segment is None else workflow.name
        self.arguments = arguments
        self.statics = statics
        self.segment = segment
        self.depth: int = 0 if segment is None else segment.task.depth + 1
        self.future = Future(context, self)
        self.state = _ACTIVE
        self.journal = Segment(self, is_certain=segment is None or segment.is_certain)
        self.paths: list[Run] = []
        self.parts: PartList | None = None
        self.streams: tuple[StreamArgument, ...] = ()
        self.stream: StreamProgress | None = None
        if workflow.is_streaming:
            self.stream = StreamProgress(self.journal)
            if segment is not None:
                self.parts = PartList(self)
        self.num_awaited = 0
        self.started_ns = 0
        self._residents: TaskResidents | None = None
        self.result: tuple[Argument, ...] = ()

    @property
    def residents(self) -> "TaskResidents":
        """What its calls have left in processes. Most tasks leave nothing, and never have this object."""
        if self._residents is None:
            self._residents = TaskResidents()
        return self._residents

    def inputs(self) -> list[Ref]:
        """Returns its arguments, as its own code sees them."""
        group = self.callee.signature.input_group
        refs: list[Ref] = []
        for argument in self.arguments:  # a comprehension would be another call, for each task
            refs.append(Ref(argument.future, group, argument.field, argument.views))
        return refs

    def entries(self) -> Iterator[Entry]:
        """Yields the calls and tasks it asked for, on all branches that are not cut off."""
        for segment in self.journal.below():
            yield from segment.entries

    def forget_runs(self) -> None:
        """Drops its runs and its journal, which refers to it: they are no longer needed."""
        self.paths = []
        del self.journal

    @property
    def is_live(self) -> bool:
        return self.state is _ACTIVE or self.state is _RETURNED

    def __repr__(self) -> str:
        return f"workflow {self.callee.name!r}"


class TaskResidents:
    """The residents of a task's calls.

    Attributes:
        number: How many there are in all processes.
        num_bytes: Their size together.
        most_bytes: The most that this ever was, or is known to become.
        homes: Where residents that met in one call were brought together, by group; the others follow when they have to move.
    """

    __slots__ = ("homes", "most_bytes", "num_bytes", "number")

    def __init__(self) -> None:
        self.number = 0
        self.num_bytes = 0
        self.most_bytes = 0
        self.homes: dict[str, str] = {}

    def need(self, num_bytes: int) -> None:
        """Notes that they take, or will take, so many bytes together."""
        self.most_bytes = max(self.most_bytes, num_bytes)


class StreamProgress:
    """The progress of a task that yields: its parts go to the client, if it is the root, or into the places of its `Task.parts`.

    Attributes:
        front: Where the next part to be sent is, or will be; None if no more follows, because a part could not be computed.
        untaken: Parts that were sent to the client and not taken, by their index.
        num_taken: Parts that the client has taken.
        sent_ns: When the last part was sent to the client; 0 before the first.
        is_ended: Whether the workflow has ended.
        error: What the task fails with after its last part.
    """

    __slots__ = ("error", "front", "is_ended", "num_taken", "sent_ns", "untaken")

    def __init__(self, journal: Segment) -> None:
        self.front: Segment | None = journal
        self.untaken: dict[int, StreamPart] = {}
        self.num_taken = 0
        self.sent_ns = 0
        self.is_ended = False
        self.error: DyOrcError | None = None

    def unsent(self) -> Iterator[StreamPart]:
        """Yields the parts that are certain and still to be sent."""
        segment = self.front
        while segment is not None:
            if isinstance(segment.end, StreamPart):
                yield segment.end
            segment = segment.next_taken()

    def is_due(self, part: StreamPart) -> bool:
        """Returns whether a part is still to be sent, or to be taken."""
        return self.untaken.get(part.index) is part or part in self.unsent()


class Restoration:
    """A future whose tensors are being made again.

    Attributes:
        call: What runs for it, if the future is a call's.
        num_awaited: Restorations that it waits for, if the future is a task's.
        waiters: What needs the tensors: calls, other restorations, the future itself if a workflow reads it, a part of the
            answer, and the request if it is its answer.
        cells: The lost parts, if the future is that of a call that yields: they are made again together.
        feeds: Running calls that read these parts one after another: each part goes on to them as soon as it is there.
        end: Up to here, exclusive, parts have to be made again.
        is_paced: Whether they come as fast as they are read, because the call was started again for it.
        is_done: Whether the tensors are there; the waiters are notified next.
        error: Why they cannot be made; the waiters are notified next.
    """

    __slots__ = (
        "call", "cells", "end", "error", "feeds", "future", "is_done", "is_paced", "num_awaited", "request",
        "waiters",
    )  # fmt: skip

    def __init__(self, request: "Request", future: Future) -> None:
        self.request = request
        self.future = future
        self.call: Call | None = None
        self.cells: dict[Cell, None] = {}
        self.feeds: dict[Feed, None] = {}
        self.end = 0
        self.is_paced = False
        self.num_awaited = 0
        self.waiters: list[RestorationWaiter] = []
        self.is_done = False
        self.error: DyOrcError | None = None

    def wants(self, cell: Cell, max_ahead: int) -> bool:
        """Returns whether a part is kept when it comes again.

        Args:
            max_ahead: Of parts that come faster than they are read, this many are kept for a call that reads them.
        """
        index = cell.index
        return cell in self.cells or any(
            feed.is_live and feed.num_fed <= index and (self.is_paced or index < feed.num_taken + max_ahead)
            for feed in self.feeds
        )

    def __repr__(self) -> str:
        return f"restoration of the {self.future!r}"


Needer: TypeAlias = "Call | Future | StreamPart | Feed | Request"
"""What needs lost tensors: a call, a part, a call that is fed, a future that a workflow reads, or a request for its answer."""

RestorationWaiter: TypeAlias = "Needer | Restoration"


class Request:
    """A request in flight.

    Attributes:
        context: What the scheduler knows about it.
        arrived_ns: When it arrived.
        root: Its first task; the request answers when that settles.
        pinned: Its futures whose tensors are pinned, with the blocks they lie in.
        release_at: When it pins more futures than this, unneeded ones are searched for.
        keeping: Those of its pinned futures that keep residents.
        release_residents_at: When there are more of these than this, unneeded residents are searched for.
        yielding: Its calls and tasks that yield to a workflow and have not ended, numbered in their order.
        maybe_unread: Those of their parts that lost a reader: each that nothing can read is among them.
        awaiting_place: Those of these calls that were queued, or awaited while they were, by program: each that still is both is
            among them, and perhaps others.
        restoring: Its futures whose tensors were lost and are being made again.
        num_calls: Calls and tasks that it made for certain.
        num_guessed: Calls and tasks on branches that are guesses.
        num_effects: Impure calls and tasks that have not ended; the request is kept until they have.
        has_effects: Whether it ever made an impure call.
        waits_for_effects: Whether its answer waits until all effects have ended.
        failed_effects: Effects that have failed.
        raised: Errors raised inside its workflows since it has effects, each with the task that got it.
        has_stored: Whether any of its tensors was ever stored and not carried along in a message.
        is_untaken: Whether its answer's tensors have not been read yet; the request is kept until they have.
        num_answers: How many times it was answered, because the tensors were lost before they were read.
        may_rebuild: Whether programs' `rebuild` makes its lost residents again; not once one has failed.
    """

    __slots__ = (
        "_num_yielding", "arrived_ns", "awaiting_place", "context", "failed_effects", "has_effects", "has_stored",
        "is_answered", "is_untaken", "keeping", "may_rebuild", "maybe_unread", "num_answers", "num_calls", "num_effects",
        "num_guessed", "pinned", "raised", "release_at", "release_residents_at", "request_id", "restoring", "root",
        "waits_for_effects", "yielding",
    )  # fmt: skip

    def __init__(self, request_id: int, context: RequestContext, arrived_ns: int) -> None:
        self.request_id = request_id
        self.context = context
        self.arrived_ns = arrived_ns
        self.root: Task | None = None
        self.pinned: dict[Future, Sequence[BlockId]] = {}
        self.release_at = self.release_residents_at = 0
        self.keeping: dict[Future, None] = {}
        self.restoring: dict[Future, Restoration] = {}
        self.num_calls = 0
        self.num_guessed = 0
        self.num_effects = 0
        self.has_effects = False
        self.waits_for_effects = False
        self.failed_effects: list[Entry] = []
        self.raised: list[tuple[DyOrcError, Task]] = []
        self.has_stored = False
        self.is_answered = False
        self.is_untaken = False
        self.num_answers = 0
        self.may_rebuild = True
        self.yielding: dict[Entry, int] = {}
        self.maybe_unread: dict[PartList, None] = {}
        self._num_yielding = 0
        self.awaiting_place: dict[str, dict[Call, None]] = {}

    def add_effect(self) -> None:
        """Counts a call or a task that must run even if its result is not needed."""
        self.num_effects += 1
        self.has_effects = True
        self.context.can_be_dropped = False

    def await_place(self, call: Call) -> None:
        """Notes that one of its calls that yield has been queued, or that something waits for it while it is."""
        if call in self.yielding:
            self.awaiting_place.setdefault(call.callee.name, {})[call] = None

    def begin_yielding(self, entry: Entry, parts: PartList) -> None:
        """Adds a call or task that yields. Nothing can read its parts before its workflow has their stream."""
        self._num_yielding = self.yielding[entry] = self._num_yielding + 1
        parts.maybe_unread = self.maybe_unread
        parts.lose_reader()

    def end_yielding(self, entry: Entry) -> None:
        """Forgets a call or task that yields, because it has ended."""
        self.yielding.pop(entry, None)
        if entry.parts is not None:
            entry.parts.maybe_unread = None
            self.maybe_unread.pop(entry.parts, None)
        if isinstance(entry, Call) and (calls := self.awaiting_place.get(entry.callee.name)):
            calls.pop(entry, None)

    def unreported_failures(self) -> list[tuple[Entry, DyOrcError]]:
        """Returns the effects whose failure is unreported: the error neither is the request's own, nor was it raised in a
        workflow that went on. An error that passed from a call through nested workflows is returned once."""
        reported = {id(error) for error, task in self.raised if task is self.root or task.future.error is not error}
        if self.root is not None and self.root.future.error is not None:
            reported.add(id(self.root.future.error))
        unreported: list[tuple[Entry, DyOrcError]] = []
        for entry in self.failed_effects:
            error = entry.future.error
            if error is not None and id(error) not in reported:
                reported.add(id(error))
                unreported.append((entry, error))
        return unreported

    def end(self) -> None:
        """Ends it: it is answered, or has failed."""
        self.is_answered = True
        self.context.can_be_dropped = False
