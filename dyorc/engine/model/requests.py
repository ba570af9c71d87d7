"""A request in flight and its tree of tasks."""

from collections.abc import Iterator, Sequence
from enum import Enum, auto

from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.workflow import Workflow
from dyorc.engine.model.cells import Argument, Future
from dyorc.engine.model.journal import Entry, Segment
from dyorc.engine.model.restorations import Restoration
from dyorc.engine.model.runs import Run
from dyorc.engine.model.standing import RequestContext
from dyorc.engine.model.streams import Stream
from dyorc.errors import DyOrcError
from dyorc.tensor import BlockId


class TaskState(Enum):
    ACTIVE = auto()
    """Its paths run, or wait for values."""
    RETURNED = auto()
    """Its coroutine returned; tensors of its result are still being computed."""
    SETTLED = auto()
    """Its cell is ready or failed."""
    WITHDRAWN = auto()
    """Nobody needs it any more."""


class Task:
    """One run of a workflow within a request.

    Attributes:
        arguments: The tensors it was called with.
        segment: Where in its caller's journal it stands; None for a request's root.
        depth: Callers above it; 0 for the root.
        paths: Its runs: one, or more while decisions are guessed.
        num_awaited: Pending cells of its result.
        result: Its result, once it has returned; for a streaming task, the parts still to be sent.
        started_ns: When it was called.
    """

    __deletable__ = ("journal",)  # for mypyc
    __slots__ = (
        "arguments", "callee", "cell", "depth", "journal", "num_awaited", "paths", "request", "result", "segment", "started_ns",
        "state", "statics",
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
        self.callee = workflow
        self.arguments = arguments
        self.statics = statics
        self.segment = segment
        self.depth: int = 0 if segment is None else segment.task.depth + 1
        self.cell = Future(self)
        self.state = TaskState.ACTIVE
        self.journal = Segment(self, is_certain=segment is None or segment.is_certain)
        self.paths: list[Run] = []
        self.num_awaited = 0
        self.started_ns = 0
        self.result: tuple[Argument, ...] = ()

    def inputs(self) -> list[Ref]:
        """Returns its arguments, as its own code sees them."""
        group = self.callee.signature.input_group
        return [Ref(argument.cell, group, argument.field, argument.views) for argument in self.arguments]

    def entries(self) -> Iterator[Entry]:
        """Yields the calls and tasks it asked for, on all branches that are not cut off."""
        for segment in self.journal.below():
            yield from segment.entries

    def forget_runs(self) -> None:
        """Drops its runs and its journal, which refers to it: nobody asks for them any more."""
        self.paths = []
        del self.journal

    @property
    def is_live(self) -> bool:
        return self.state in (TaskState.ACTIVE, TaskState.RETURNED)

    def __repr__(self) -> str:
        return f"workflow {self.callee.name!r}"


class Request:
    """A request in flight.

    Attributes:
        standing: What its calls tell the scheduler about it.
        arrived_ns: When it arrived.
        root: Its first task; the request answers when that settles.
        pinned: Its cells whose tensors are pinned, with the blocks they lie in.
        release_at: When it pins more cells than this, those that nobody needs any more are searched for.
        restoring: Its cells whose tensors were lost and are being made again.
        num_calls: Calls and tasks that it made for certain.
        num_guessed: Calls and tasks on branches that are guesses.
        num_effects: Impure calls and tasks that have not ended; the request is kept until they have.
        has_effects: Whether it ever made such a call.
        waits_for_effects: Whether its answer waits until all have ended.
        failed_effects: Those that have failed.
        raised: Errors that its workflows were shown since it has effects, each with the task that was shown it.
        has_stored: Whether any of its tensors was ever stored and not carried along.
        is_untaken: Whether its answer's tensors have not been read yet; the request is kept until they have.
        num_answers: How many times it was answered, because the tensors were lost before they were read.
        stream: How far its parts have come, if it answers in parts and has not ended.
    """

    __slots__ = (
        "arrived_ns", "failed_effects", "has_effects", "has_stored", "is_answered", "is_untaken", "num_answers", "num_calls",
        "num_effects", "num_guessed", "pinned", "raised", "release_at", "request_id", "restoring", "root", "standing", "stream",
        "waits_for_effects",
    )  # fmt: skip

    def __init__(self, request_id: int, standing: RequestContext, arrived_ns: int) -> None:
        self.request_id = request_id
        self.standing = standing
        self.arrived_ns = arrived_ns
        self.root: Task | None = None
        self.pinned: dict[Future, Sequence[BlockId]] = {}
        self.release_at = 0
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
        self.stream: Stream | None = None

    def have_effect(self) -> None:
        """Notes that it makes a call or a task that must run even if nobody waits for it."""
        self.num_effects += 1
        self.has_effects = True
        self.standing.can_be_dropped = False

    def unheeded_failures(self) -> list[tuple[Entry, DyOrcError]]:
        """Returns the effects that have failed without anybody being told: the error neither is the request's own, nor was it
        shown to a workflow that went on. An error that passed from a call through nested workflows is returned once."""
        heeded = [error for error, task in self.raised if task is self.root or task.cell.error is not error]
        if self.root is not None and self.root.cell.error is not None:
            heeded.append(self.root.cell.error)
        unheeded: list[tuple[Entry, DyOrcError]] = []
        for entry in self.failed_effects:
            error = entry.cell.error
            if error is not None and not any(other is error for other in heeded):
                heeded.append(error)
                unheeded.append((entry, error))
        return unheeded

    def end(self) -> None:
        """Ends it: it is answered, or has failed."""
        self.is_answered = True
        self.standing.can_be_dropped = False
