"""Futures: the places where values appear, and what waits for them."""

from collections.abc import Hashable, Iterable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from numpy import ndarray

from dyorc.authoring.ref import Ref
from dyorc.authoring.spec import TensorSpec
from dyorc.core.arrays import apply_views, as_value, read_only, same_array
from dyorc.core.tensor import DType, Index, TensorRef
from dyorc.errors import DyOrcError

if TYPE_CHECKING:
    from dyorc.engine.model.journal import BranchPoint, StreamPart
    from dyorc.engine.model.program_call import Call, Feed
    from dyorc.engine.model.request_context import RequestContext
    from dyorc.engine.model.request_tree import Run, Task


class FutureState(Enum):
    PENDING = auto()
    READY = auto()
    FAILED = auto()


# Names of their own, since Python looks a member of an enum up in a tenth of a microsecond, and each call needs some ten of them.
PENDING: Final = FutureState.PENDING
READY: Final = FutureState.READY
FAILED: Final = FutureState.FAILED


class Future:
    """One value of a request, from the moment it is asked for.

    Attributes:
        producer: The call or task that fills it; None for an input.
        owner: The context of its request, by which a Ref of another request is recognised.
        tensors: Its tensors, once READY.
        arrays: The contents of its tensors, if they had to be fetched.
        is_at_hand: Whether the workflow can look at their contents.
        error: Why there is no value, once FAILED.
        dependents: What is notified when it settles.
        hold: An object to which everything refers that may still need the tensors.
        resident_holds: Such an object for each resident, by its place among the outputs; None if there is no resident. Then
            `hold` is that of the tensors beside them.
    """

    __slots__ = (
        "arrays",
        "dependents",
        "error",
        "hold",
        "is_at_hand",
        "owner",
        "producer",
        "resident_holds",
        "state",
        "tensors",
    )

    def __init__(self, owner: "RequestContext | None", producer: "Call | Task | None" = None) -> None:
        self.producer = producer
        self.owner = owner
        self.state = PENDING
        self.tensors: tuple[TensorRef, ...] = ()
        self.arrays: tuple[Any, ...] | None = None
        self.is_at_hand = False
        self.error: DyOrcError | None = None
        self.dependents: list[Call | Waiter] = []
        self.hold = object()
        self.resident_holds: dict[int, object] | None = None

    @classmethod
    def ready(cls, owner: "RequestContext | None", *tensors: TensorRef) -> "Future":
        """Returns a future of a request that is filled from the start."""
        future = cls(owner)
        future.fill(tensors)
        return future

    def fill(self, tensors: tuple[TensorRef, ...]) -> None:
        """Sets the value. Tensors that carry their data can be read right away; residents are never read."""
        self.state = READY
        self.tensors = tensors
        for tensor in tensors:
            if tensor.data is None and tensor.dtype is not DType.RESIDENT:
                return
        self.is_at_hand = True

    def hold_of(self, field: int | None) -> object:
        """Returns what keeps one of its tensors or residents, or all of them."""
        if self.resident_holds is None:
            return self.hold
        if field is None:
            return (self.hold, *self.resident_holds.values())
        return self.resident_holds.get(field, self.hold)

    def refill(self, tensors: tuple[TensorRef, ...]) -> None:
        """Replaces lost tensors by restored ones. What was read before stays as it was."""
        if self.state is READY:
            self.fill(tensors)

    def add_waiter(self, waiter: "Waiter") -> None:
        """Makes a waiter wait until it settles."""
        self.dependents.append(waiter)
        waiter.num_awaited += 1

    def set_arrays(self, arrays: tuple[Any, ...]) -> None:
        """Sets the contents of the readable tensors."""
        contents = iter(arrays)
        self.arrays = tuple([None if t.dtype is DType.RESIDENT else read_only(next(contents)) for t in self.tensors])
        self.is_at_hand = True

    @property
    def readable(self) -> tuple[TensorRef, ...]:
        """Its tensors without residents."""
        return tuple([tensor for tensor in self.tensors if tensor.dtype is not DType.RESIDENT])

    def array(self, field: int) -> Any:
        """Returns the contents of a tensor, for the workflow to read, once they are at hand; None for a resident."""
        if self.arrays is not None:
            return self.arrays[field]
        tensor = self.tensors[field]
        return read_only(apply_views(tensor.data, tensor.views) if tensor.views else tensor.data)

    def __repr__(self) -> str:
        return f"<{self.state.name.lower()} result of {self.producer!r}>" if self.producer else "<input>"


class Argument:
    """One tensor argument of a call: a tensor of a future, seen through views.

    Attributes:
        hold: What keeps the tensor, as long as the call has not ended.
    """

    __slots__ = ("field", "future", "hold", "views")

    def __init__(self, future: Future, field: int, views: tuple[Index, ...] = ()) -> None:
        self.future = future
        self.hold: object | None = future.hold if future.resident_holds is None else future.hold_of(field)
        self.field = field
        self.views = views

    def same_as(self, other: "Argument") -> bool:
        """Returns whether it is the same tensor. Constants of the workflow's code are compared as values."""
        if self.future is other.future:
            return self.field == other.field and self.views == other.views
        mine, theirs = self.future, other.future
        if mine.producer or theirs.producer or not (mine.tensors and theirs.tensors):
            return False
        a, b = mine.tensors[0].data, theirs.tensors[0].data
        return a is not None and b is not None and same_array(a, b)

    def resolve(self) -> TensorRef:
        """Returns the tensor, once its future is ready.

        Raises:
            IndexError: If a view does not fit the tensor.
        """
        tensor = self.future.tensors[self.field]
        for index in self.views:
            tensor = tensor.view(index)
        return tensor


Outcome: TypeAlias = Hashable
"""What a decision returns, as `dyorc.authoring.exact_values.exact` has it: equal to identical outcomes only."""

Waiter: TypeAlias = "Run | BranchPoint | Task | StreamPart | Feed"
"""What continues once its values are there; the engine counts how many each waiter still needs."""


def read_ref(ref: Ref) -> Any:
    """Returns the value of a ref whose future is at hand, as the workflow sees it.

    Raises:
        InvalidInputError: If it is a structured value, and its bytes hold none of its type.
    """
    outputs = ref.outputs
    if ref.field is None:
        future: Future = ref.future
        return outputs.build([spec.value_of(future.array(at), _READ) for at, spec in enumerate(outputs.tensors)])
    return outputs.tensors[ref.field].value_of(read_array(ref), _READ)


_READ = "a value that is awaited"


def read_refs(refs: Sequence[Ref]) -> list[Any]:
    """Returns the values of refs whose futures are at hand, each as `read_ref` does."""
    values: list[Any] = []
    for ref in refs:
        future: Future = ref.future
        field = ref.field
        if field is None or ref.views or future.arrays is not None or type(ref.outputs.tensors[field]) is not TensorSpec:
            values.append(read_ref(ref))
            continue
        tensor = future.tensors[field]
        array = tensor.data
        if tensor.views or type(array) is not ndarray or not array.ndim:
            values.append(as_value(future.array(field)))
        else:
            if array.flags.writeable:
                array = array.view()
                array.flags.writeable = False
            values.append(array)
    return values


def fill_all(futures: Iterable[Future], values: Iterable[tuple[TensorRef, ...]]) -> None:
    """Sets the values of pending futures."""
    for future, tensors in zip(futures, values, strict=True):
        future.state = READY
        future.tensors = tensors
        is_at_hand = True
        for tensor in tensors:
            if tensor.data is None and tensor.dtype is not DType.RESIDENT:
                is_at_hand = False
        future.is_at_hand = is_at_hand


def read_array(ref: Ref) -> Any:
    """Returns the tensor of a ref of one tensor whose future is at hand."""
    future: Future = ref.future
    array = future.array(ref.field or 0)
    return apply_views(array, ref.views) if ref.views else array
