"""What is known of a request in flight: its tree of tasks, and walks over it."""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING

from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.workflow import Workflow
from dyorc.engine.model.budget import Budget
from dyorc.engine.model.cells import Argument, Call, CallState, Cell, CellState, Order
from dyorc.engine.model.journal import BranchPoint, Entry, Part, Segment
from dyorc.engine.statistics import Record
from dyorc.engine.story import Story
from dyorc.engine.tasks.paths import Path

if TYPE_CHECKING:
    from dyorc.engine.leases import Kept
    from dyorc.engine.tasks.parts import Stream
    from dyorc.engine.tasks.recovery import Restoration


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
        paths: Its runs: one, and more while decisions are guessed.
        num_awaited: Cells of its result that are pending.
        result: Its result, once it has returned; of one that streams, the parts that are still to be sent.
        started_ns: When it was called.
    """

    __slots__ = (
        "arguments", "callee", "cell", "journal", "num_awaited", "paths", "request", "result", "segment", "started_ns", "state",
        "statics",
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
        self.cell = Cell(self)
        self.state = TaskState.ACTIVE
        self.journal = Segment(self, is_certain=segment is None or segment.is_certain)
        self.paths: list[Path] = []
        self.num_awaited = 0
        self.started_ns = 0
        self.result: tuple[Argument, ...] = ()

    def inputs(self) -> list[Ref]:
        """Its arguments, as its own code sees them."""
        group = self.callee.signature.input_group
        return [Ref(argument.cell, group, argument.field, argument.views) for argument in self.arguments]

    def entries(self) -> Iterator[Entry]:
        """The calls and tasks it asked for, on all branches that are not cut off."""
        for segment in self.journal.below():
            yield from segment.entries

    @property
    def is_live(self) -> bool:
        return self.state in (TaskState.ACTIVE, TaskState.RETURNED)

    def __repr__(self) -> str:
        return f"workflow {self.callee.name!r}"


class Request:
    """A request in flight.

    Attributes:
        root: Its first task; the request answers when that settles.
        order: Place of its calls in every queue, among those of its tenant.
        tenant: Whose it is.
        weight: Of the tenant.
        kept: Its cells whose tensors are kept for it, with the blocks that they lie in.
        release_at: When it keeps more cells than that, it is looked through for those that nobody needs any more.
        restoring: Its cells whose tensors were lost and are being made again.
        budget: What its workflow may waste on guesses.
        record: Where its workflow's requests are counted.
        arrived_ns: When it came.
        num_calls: Calls and tasks that it made for certain.
        num_guessed: Calls and tasks on branches that are guesses.
        num_effects: Impure calls and tasks that have not ended; the request is kept until they have.
        has_effects: Whether it ever made such a call.
        has_stored: Whether any of its tensors was ever stored and not carried along.
        is_untaken: Whether its answer's tensors have not been read yet; the request is kept until they have.
        num_answers: How often it was answered, because the tensors were lost before they were read.
        story: What became of it, if somebody wants to know.
        stream: How far its parts have come, if it answers in parts and has not ended.
    """

    __slots__ = (
        "arrived_ns", "budget", "has_effects", "has_stored", "is_answered", "is_untaken", "kept", "num_answers", "num_calls",
        "num_effects", "num_guessed", "order", "record", "release_at", "request_id", "restoring", "root", "story", "stream",
        "tenant", "weight",
    )  # fmt: skip

    def __init__(
        self,
        request_id: int,
        order: Order,
        budget: Budget,
        record: Record,
        arrived_ns: int,
        tenant: str = "",
        weight: float = 1.0,
    ) -> None:
        self.request_id = request_id
        self.order = order
        self.budget = budget
        self.record = record
        self.arrived_ns = arrived_ns
        self.tenant = tenant
        self.weight = weight
        self.root: Task | None = None
        self.kept: Kept = {}
        self.release_at = 0
        self.restoring: dict[Cell, Restoration] = {}
        self.num_calls = 0
        self.num_guessed = 0
        self.num_effects = 0
        self.has_effects = False
        self.has_stored = False
        self.is_answered = False
        self.is_untaken = False
        self.num_answers = 0
        self.story: Story | None = None
        self.stream: Stream | None = None

    @property
    def deadline_ns(self) -> int:
        """When its time is up."""
        return self.order[1]

    @property
    def can_be_dropped(self) -> bool:
        """Whether it may be failed because it will be late: somebody still waits for it, and it has had no effect."""
        return not (self.is_answered or self.has_effects)


def request_of(entry: Entry) -> Request:
    """Whose it is."""
    return entry.request if isinstance(entry, Task) else entry.segment.task.request


def is_effect(entry: Entry) -> bool:
    """Whether it has to run even if nobody waits for its result."""
    if isinstance(entry, Call):
        return not entry.callee.options.pure
    return not entry.callee.is_pure


def dismantle(journal: Segment, let_go: Callable[[Cell], None] | None = None) -> int:
    """Cuts the cycles below a segment that nobody will look at again, so that its memory is freed now and not by the
    garbage collector. Gives the number of calls and tasks.

    Args:
        let_go: Told of each of their cells, if somebody may keep its tensors.
    """
    num_entries = 0
    pending = [journal]
    while pending:
        segment = pending.pop()
        num_entries += len(segment.entries)
        for entry in segment.entries:
            entry.cell.producer = None
            entry.cell.dependents = []
            if let_go is not None:
                let_go(entry.cell)
            if isinstance(entry, Task):
                pending.append(entry.journal)
                entry.paths = []
                del entry.journal
        segment.entries = []
        if isinstance(segment.end, BranchPoint):
            pending.extend(segment.end.branches.values())
            segment.end.branches = {}
        elif isinstance(segment.end, Part):
            pending.append(segment.end.following)
        segment.end = None
    return num_entries


def is_unfinished(entry: Entry) -> bool:
    return entry.cell.state is CellState.PENDING and entry.state not in (TaskState.WITHDRAWN, CallState.WITHDRAWN)


def live_effects(task: Task) -> Iterator[Entry]:
    """Unfinished calls and tasks with an effect below `task`, also in tasks that have settled."""
    pending = [task] if task.request.num_effects else []
    while pending:
        for entry in pending.pop().entries():
            if isinstance(entry, Task):
                pending.append(entry)
            if is_effect(entry) and is_unfinished(entry):
                yield entry


def closure(cells: Iterable[Cell]) -> Iterator[Entry]:
    """Everything unfinished that `cells` depend on, in their task and in those that passed it values."""
    seen: set[Cell] = set()
    pending = list(cells)
    while pending:
        cell = pending.pop()
        if cell.state is CellState.PENDING and cell.producer is not None and cell not in seen:
            seen.add(cell)
            yield cell.producer
            pending.extend(argument.cell for argument in cell.producer.arguments)
