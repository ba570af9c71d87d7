"""Cells: the places where values appear, and who waits for them."""

from collections.abc import Hashable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias

from dyorc.arrays import apply_views, read_only, same_array
from dyorc.authoring.signature import StaticValue
from dyorc.errors import DyOrcError
from dyorc.tensor import Index, TensorRef

if TYPE_CHECKING:
    from dyorc.authoring.batching import BatchKey
    from dyorc.authoring.program import Program
    from dyorc.engine.requests import Task


class CellState(Enum):
    PENDING = auto()
    READY = auto()
    FAILED = auto()


class Cell:
    """One value of a request, from the moment it is asked for.

    Attributes:
        producer: The call or task that fills it; None for an input.
        tensors: Its tensors, once READY.
        arrays: Their contents, for the workflow's own eyes, once they are at hand.
        error: Why there is no value, once FAILED.
        dependents: Calls and tasks to tell when it settles.
    """

    __slots__ = ("arrays", "dependents", "error", "is_at_hand", "producer", "state", "tensors")

    def __init__(self, producer: "Call | Task | None" = None) -> None:
        self.producer = producer
        self.state = CellState.PENDING
        self.tensors: tuple[TensorRef, ...] = ()
        self.arrays: tuple[Any, ...] = ()
        self.is_at_hand = False
        self.error: DyOrcError | None = None
        self.dependents: list[Call | Task] = []

    @classmethod
    def ready(cls, *tensors: TensorRef) -> "Cell":
        """A cell that is filled from the start."""
        cell = cls()
        cell.fill(tensors)
        return cell

    def fill(self, tensors: tuple[TensorRef, ...]) -> None:
        """The value is there. Tensors that carry their data can be looked at right away."""
        self.state = CellState.READY
        self.tensors = tensors
        arrays: list[Any] = []
        for tensor in tensors:
            if tensor.data is None:
                return
            arrays.append(apply_views(tensor.data, tensor.views) if tensor.views else tensor.data)
        self.show(tuple(arrays))

    def show(self, arrays: tuple[Any, ...]) -> None:
        """The contents are at hand."""
        self.arrays = tuple(read_only(array) for array in arrays)
        self.is_at_hand = True

    def __repr__(self) -> str:
        return f"<{self.state.name.lower()} result of {self.producer!r}>" if self.producer else "<input>"


class Argument:
    """One tensor argument of a call: a tensor of a cell, seen through views."""

    __slots__ = ("cell", "field", "views")

    def __init__(self, cell: Cell, field: int, views: tuple[Index, ...] = ()) -> None:
        self.cell = cell
        self.field = field
        self.views = views

    def same_as(self, other: "Argument") -> bool:
        """Whether it stands for the same tensor. Values written down in the workflow's code are compared as values."""
        if self.cell is other.cell:
            return self.field == other.field and self.views == other.views
        mine, theirs = self.cell, other.cell
        if mine.producer or theirs.producer or not (mine.tensors and theirs.tensors):
            return False
        a, b = mine.tensors[0].data, theirs.tensors[0].data
        return a is not None and b is not None and same_array(a, b)

    def resolve(self) -> TensorRef:
        """The tensor, once its cell is ready.

        Raises:
            IndexError: If a view does not fit the tensor.
        """
        tensor = self.cell.tensors[self.field]
        for index in self.views:
            tensor = tensor.view(index)
        return tensor


class CallState(Enum):
    """Where a call is. It moves down this list; QUEUED and RUNNING may alternate when a replica is lost."""

    WAITING = auto()
    """Some of its inputs are not there yet."""
    QUEUED = auto()
    """In its program's queue."""
    RUNNING = auto()
    """In a batch on a replica."""
    SETTLED = auto()
    """Its cell is ready or failed."""
    WITHDRAWN = auto()
    """Nobody needs it any more; a result that comes late is dropped."""


Order: TypeAlias = tuple[int, int, int]
"""Deadline (ns), minus the priority, arrival number: smaller goes first."""


class Call:
    """One use of a program by a request.

    Attributes:
        order: Its place in its program's queue.
        num_awaited: Input cells that are still pending.
        operands: Its input tensors, once all are there.
        batch_key: Calls of equal keys may share a batch.
        num_attempts: How often it ran on a replica that died.
    """

    __slots__ = (
        "arguments", "batch_key", "call_id", "callee", "cell", "num_attempts", "num_awaited",
        "operands", "order", "state", "statics", "task",
    )  # fmt: skip

    def __init__(self, program: "Program", arguments: tuple[Argument, ...], statics: tuple[StaticValue, ...]) -> None:
        self.call_id = 0
        self.callee = program
        self.arguments = arguments
        self.statics = statics
        self.cell = Cell(self)
        self.state = CallState.WAITING
        self.num_awaited = 0
        self.num_attempts = 0
        self.operands: tuple[TensorRef, ...] = ()
        self.batch_key: BatchKey = ((), ())
        self.order: Order = (0, 0, 0)
        self.task: Task | None = None

    def __repr__(self) -> str:
        return f"call {self.call_id} of {self.callee.name!r}"


Outcome: TypeAlias = Hashable
