"""Cells: the places where values appear, and who waits for them."""

from collections.abc import Hashable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias

from dyorc.arrays import apply_views, as_value, read_only, same_array
from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import StaticValue
from dyorc.engine.model.budget import Bet
from dyorc.errors import DyOrcError
from dyorc.tensor import BlockId, Index, TensorRef

if TYPE_CHECKING:
    from dyorc.authoring.batching import BatchKey
    from dyorc.authoring.program import Program
    from dyorc.engine.model.journal import BranchPoint, Part, Segment
    from dyorc.engine.model.requests import Task
    from dyorc.engine.tasks.paths import Path
    from dyorc.engine.tasks.recovery import Restoration


class CellState(Enum):
    PENDING = auto()
    READY = auto()
    FAILED = auto()


class Cell:
    """One value of a request, from the moment it is asked for.

    Attributes:
        producer: The call or task that fills it; None for an input.
        tensors: Its tensors, once READY.
        is_at_hand: Whether the workflow can look at their contents.
        error: Why there is no value, once FAILED.
        dependents: Who is told when it settles.
        hold: An object that everybody refers to who may still need the tensors.
    """

    __slots__ = ("_arrays", "dependents", "error", "hold", "is_at_hand", "producer", "state", "tensors")

    def __init__(self, producer: "Call | Task | None" = None) -> None:
        self.producer = producer
        self.state = CellState.PENDING
        self.tensors: tuple[TensorRef, ...] = ()
        self._arrays: tuple[Any, ...] | None = None
        self.is_at_hand = False
        self.error: DyOrcError | None = None
        self.dependents: list[Call | Waiter] = []
        self.hold = object()

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
        for tensor in tensors:
            if tensor.data is None:
                return
        self.is_at_hand = True

    def refill(self, tensors: tuple[TensorRef, ...]) -> None:
        """Its tensors were lost and are there again, elsewhere. What was looked at stays as it was."""
        if self.state is CellState.READY:
            self.fill(tensors)

    def show(self, arrays: tuple[Any, ...]) -> None:
        """The contents are at hand."""
        self._arrays = tuple(read_only(array) for array in arrays)
        self.is_at_hand = True

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The contents, for the workflow's own eyes, once they are at hand."""
        if self._arrays is None:
            self._arrays = tuple([read_only(apply_views(tensor.data, tensor.views)) for tensor in self.tensors])
        return self._arrays

    def __repr__(self) -> str:
        return f"<{self.state.name.lower()} result of {self.producer!r}>" if self.producer else "<input>"


class Argument:
    """One tensor argument of a call: a tensor of a cell, seen through views.

    Attributes:
        hold: The cell's, as long as the call has not ended.
    """

    __slots__ = ("cell", "field", "hold", "views")

    def __init__(self, cell: Cell, field: int, views: tuple[Index, ...] = ()) -> None:
        self.cell = cell
        self.hold: object | None = cell.hold
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
    """Where a call is. It moves down this list; when a replica is lost, it goes back to QUEUED, or to WAITING for lost inputs."""

    WAITING = auto()
    """Some of its inputs are not there yet or were lost, or it may not run before it is certain."""
    GUESSED = auto()
    """In its program's queue of guesses."""
    QUEUED = auto()
    """In its program's queue."""
    RUNNING = auto()
    """In a batch on a replica."""
    SETTLED = auto()
    """Its cell is ready or failed."""
    WITHDRAWN = auto()
    """Nobody needs it any more; a result that comes late is dropped."""


Order: TypeAlias = tuple[int, int, int]
"""Minus the priority, deadline (ns), arrival number: smaller goes first. For guesses: minus the probability, then these."""


class Call:
    """One use of a program by a request.

    Attributes:
        order: Its place in its program's queue.
        num_awaited: Input cells that are still pending, and one more while it has to wait until it is certain.
        awaits_commit: Whether it has to.
        is_guess: Whether it may turn out not to be needed.
        bet: What was spent on it while that was so.
        operands: Its input tensors, once all are there.
        blocks: Where those lie that are not carried along.
        batch_key: Calls of equal keys may share a batch.
        num_attempts: How often it ran on a replica that died.
        num_losses: How often its result was lost, or its batch did not get its inputs though they seemed to be there.
        restores: What it is made for, if it runs another one again whose result was lost; it stands in no journal.
        submitted_ns: When all its inputs were there.
        expected_ns: When its result is expected, once it was submitted.
        segment: Where in its task's journal it stands.
    """

    __slots__ = (
        "arguments", "awaits_commit", "batch_key", "bet", "blocks", "call_id", "callee", "cell", "expected_ns", "is_guess",
        "num_attempts", "num_awaited", "num_losses", "operands", "order", "restores", "segment", "state", "statics",
        "submitted_ns",
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
        self.cell = Cell(self)
        self.state = CallState.WAITING
        self.num_awaited = 0
        self.awaits_commit = False
        self.is_guess = False
        self.bet: Bet | None = None
        self.num_attempts = 0
        self.num_losses = 0
        self.restores: Restoration | None = None
        self.operands: tuple[TensorRef, ...] = ()
        self.blocks: Sequence[BlockId] = ()
        self.batch_key: BatchKey = ((), ())
        self.order: Order = (0, 0, 0)
        self.submitted_ns = 0
        self.expected_ns = 0

    def __repr__(self) -> str:
        return f"call {self.call_id} of {self.callee.name!r}"


Waiter: TypeAlias = "Path | BranchPoint | Task | Part"
"""Who goes on when values are there; the engine counts what each still waits for."""


def look(ref: Ref) -> Any:
    """The value of a ref whose cell is at hand, as the workflow sees it."""
    arrays = ref.cell.arrays
    if ref.field is None:
        return ref.outputs.build([as_value(array) for array in arrays])
    return as_value(apply_views(arrays[ref.field], ref.views) if ref.views else arrays[ref.field])


Outcome: TypeAlias = Hashable
