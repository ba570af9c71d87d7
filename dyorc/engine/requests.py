"""What is known of a request in flight: its tree of tasks, and walks over it."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import StaticValue
from dyorc.authoring.workflow import Workflow
from dyorc.engine.cells import Argument, Call, CallState, Cell, CellState, Order
from dyorc.engine.journal import Entry, Segment
from dyorc.engine.paths import Path


class TaskState(Enum):
    ACTIVE = auto()
    """Its path runs, or waits for values."""
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
        path: Its run; there is one at a time as long as nothing is guessed.
        entries: The calls and tasks it asked for.
        num_awaited: Cells it waits for.
    """

    __slots__ = (
        "arguments",
        "callee",
        "cell",
        "entries",
        "journal",
        "num_awaited",
        "path",
        "request",
        "result",
        "state",
        "statics",
    )

    def __init__(
        self, request: "Request", workflow: Workflow, arguments: tuple[Argument, ...], statics: tuple[StaticValue, ...]
    ) -> None:
        self.request = request
        self.callee = workflow
        self.arguments = arguments
        self.statics = statics
        self.cell = Cell(self)
        self.state = TaskState.ACTIVE
        self.journal = Segment()
        self.path: Path | None = None
        self.entries: list[Entry] = []
        self.num_awaited = 0
        self.result: tuple[Argument, ...] = ()

    def inputs(self) -> list[Ref]:
        """Its arguments, as its own code sees them."""
        group = self.callee.signature.input_group
        return [Ref(argument.cell, group, argument.field, argument.views) for argument in self.arguments]

    @property
    def is_live(self) -> bool:
        return self.state in (TaskState.ACTIVE, TaskState.RETURNED)

    def __repr__(self) -> str:
        return f"workflow {self.callee.name!r}"


class Request:
    """A request in flight.

    Attributes:
        root: Its first task; the request answers when that settles.
        order: Place of its calls in every queue.
        stored: Ids of tensors that are kept for it.
        num_effects: Impure calls and tasks that have not ended; the request is kept until they have.
        has_effects: Whether it ever made such a call.
    """

    __slots__ = ("has_effects", "is_answered", "num_calls", "num_effects", "order", "request_id", "root", "stored")

    def __init__(self, request_id: int, order: Order) -> None:
        self.request_id = request_id
        self.order = order
        self.root: Task | None = None
        self.stored: list[int] = []
        self.num_calls = 0
        self.num_effects = 0
        self.has_effects = False
        self.is_answered = False


def is_effect(entry: Entry) -> bool:
    """Whether it has to run even if nobody waits for its result."""
    if isinstance(entry, Call):
        return not entry.callee.options.pure
    return not entry.callee.is_pure


def dismantle(request: Request) -> None:
    """Cuts the cycles in a finished request, so that its memory is freed now and not by the garbage collector."""
    pending = [request.root] if request.root is not None else []
    request.root = None
    while pending:
        task = pending.pop()
        for entry in task.entries:
            entry.cell.producer = None
            if isinstance(entry, Task):
                pending.append(entry)
            else:
                entry.task = None
        task.cell.producer = None
        task.entries = []
        task.path = None


def is_unfinished(entry: Entry) -> bool:
    return entry.cell.state is CellState.PENDING and entry.state not in (TaskState.WITHDRAWN, CallState.WITHDRAWN)


def live_effects(task: Task) -> Iterator[Entry]:
    """Unfinished calls and tasks with an effect below `task`, also in tasks that have settled."""
    pending = [task] if task.request.num_effects else []
    while pending:
        for entry in pending.pop().entries:
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
