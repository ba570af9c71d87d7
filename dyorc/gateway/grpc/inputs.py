# pyright: basic, reportAttributeAccessIssue=false
# Generated messages have no types.
"""The inputs of a `ModelInferRequest`: quick work happens on the event loop, long work where the caller wants."""

from collections.abc import Sequence
from typing import Any

from dyorc.core.arrays import Array
from dyorc.core.tensor import DType
from dyorc.errors import InvalidInputError
from dyorc.gateway.copies import copy_into
from dyorc.gateway.grpc.contents import from_contents, num_bytes_of, values_of
from dyorc.gateway.inputs import Head, SharedInput, fetched, from_bytes, read_head, span_of
from dyorc.gateway.request_memory import RequestMemory
from dyorc.protocol.raw import MAX_RANK
from dyorc.transport.outbox import offsets_of


class GrpcInputs:
    """A request's inputs. Making one checks their heads, and finds the memory that they need.

    Args:
        inputs: Of a `ModelInferRequest`.
        raws: The bytes of inputs outside client memory, in order; none if they have `contents`.

    Raises:
        InvalidInputError: If they are malformed, or some of `raws` are left over.
        DyOrcError: See `RequestMemory.room`, `span` and `fetch`.

    Attributes:
        num_bytes: How much work `arrays` is, in bytes to copy.
    """

    def __init__(self, inputs: Any, raws: Sequence[memoryview], memory: RequestMemory) -> None:
        self._typed: list[tuple[Head, Any]] = []
        self._raw: list[tuple[Head, memoryview]] = []
        self._shared: list[SharedInput] = []
        self._names: dict[str, None] = {}
        for tensor in inputs:
            self._add(tensor, raws, memory)
        if len(self._raw) != len(raws):
            raise InvalidInputError(f"there are {len(raws)} raw_input_contents for {len(self._raw)} inputs")
        self._places = _places(self._raw, memory)
        self._fetched = fetched(self._shared, memory) if self._shared else {}
        self.num_bytes = sum(map(len, raws)) + sum(num_bytes_of(head, contents) for head, contents in self._typed)

    def arrays(self) -> dict[str, Array]:
        """Returns each input's array, by name. May be called on any thread, once.

        Raises:
            InvalidInputError: If bytes or contents do not fit an input's type and shape.
        """
        found: dict[str, Any] = dict(self._names)
        for head, contents in self._typed:
            found[head.name] = from_bytes(head, b"") if contents is None else from_contents(head, contents)
        for (head, raw), place in zip(self._raw, self._places, strict=True):
            if place is not None:
                copy_into(place, raw)
            found[head.name] = from_bytes(head, raw if place is None else place)
        return found | self._fetched

    def _add(self, tensor: Any, raws: Sequence[memoryview], memory: RequestMemory) -> None:
        head = _read_head(tensor)
        if head.name in self._names:
            raise InvalidInputError(f"input {head.name!r} was given twice")
        self._names[head.name] = None
        has_contents = tensor.HasField("contents")
        span = span_of(values_of(tensor.parameters), "input", head.name, memory) if tensor.parameters else None
        if has_contents and (raws or span is not None):
            _refuse_contents(tensor, "shared memory" if span is not None else "raw_input_contents")
        if span is not None:
            self._shared.append(SharedInput(head, span))
        elif not raws:
            if not has_contents and 0 not in head.shape:
                raise InvalidInputError(f"input {head.name!r} has neither contents nor raw_input_contents")
            self._typed.append((head, tensor.contents if has_contents else None))
        elif len(self._raw) < len(raws):
            self._raw.append((head, raws[len(self._raw)]))
        else:
            raise InvalidInputError(f"input {head.name!r} has no raw_input_contents: there are only {len(raws)}")


def _read_head(tensor: Any) -> Head:
    shape = tensor.shape
    if len(shape) > MAX_RANK:
        shape = shape[: MAX_RANK + 1]  # enough to be refused
    return read_head(tensor.name, tensor.datatype, tuple(shape))


def _refuse_contents(tensor: Any, other: str) -> None:
    if tensor.contents.ListFields():
        raise InvalidInputError(f"input {tensor.name!r} has contents, which must be empty beside {other}")


def _places(raw_inputs: Sequence[tuple[Head, memoryview]], memory: RequestMemory) -> list[memoryview | None]:
    """Returns for each input where in the arena it is to be copied, so that programs read it there; None: it stays where it is.

    BYTES are not read in place, so they need not be there.
    """
    fixed = [len(raw) for head, raw in raw_inputs if head.dtype is not DType.BYTES]
    offsets, end = offsets_of(fixed)
    room = memory.room(end) if fixed else None
    if room is None:
        return [None] * len(raw_inputs)
    at = iter(offsets)
    places: list[memoryview | None] = []
    for head, raw in raw_inputs:
        start = None if head.dtype is DType.BYTES else next(at)
        places.append(None if start is None else room[start : start + len(raw)])
    return places
