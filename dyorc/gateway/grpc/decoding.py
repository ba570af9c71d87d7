# pyright: basic, reportAttributeAccessIssue=false
# Generated messages have no types.
"""`ModelInferRequest` to `InferRequest`: the model's inputs as arrays, from raw bytes, lists of numbers or client memory.

Quick work happens on the event loop, long work where the caller wants.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from dyorc.core.arrays import Array, numpy_dtype
from dyorc.core.tensor import DType
from dyorc.errors import InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.copies import PAUSE_S, PIECE_ITEMS, copy_into
from dyorc.gateway.grpc.wire import split
from dyorc.gateway.infer_request import InferRequest, make_request
from dyorc.gateway.request_inputs import NO_JSON_FORM, Head, SharedInput, fetch_inputs, from_bytes, read_head, reshape, span_of
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.request_outputs import WantedOutput, all_outputs, wanted_output
from dyorc.gateway.request_parameters import flag
from dyorc.protocol.inference_pb2 import ModelInferRequest
from dyorc.protocol.parameter_names import EMPTY_FINAL
from dyorc.protocol.raw import MAX_RANK
from dyorc.system.thread_offload import INLINE_BYTES, ThreadOffload
from dyorc.transport.outbox import offsets_of

_MAX_TENSORS = 1000
"""Inputs, or outputs, of a request."""


def parse(message: bytes) -> tuple[Any, list[memoryview]]:
    """Splits a message into the `ModelInferRequest` without its `raw_input_contents`, and those.

    Raises:
        InvalidInputError: If the message is not a ModelInferRequest.
    """
    rest, raws = split(message)
    try:
        return ModelInferRequest.FromString(rest), raws
    except DecodeError as error:
        raise InvalidInputError(f"the request is not a ModelInferRequest: {error}") from None


def model_in(message: bytes) -> str:
    """Returns the name of the model in a message; empty if it cannot be read."""
    try:
        return parse(message)[0].model_name
    except InvalidInputError:
        return ""


async def decode_request(
    message: Any, raws: Sequence[memoryview], model: Model, memory: RequestMemory, off_loop: ThreadOffload
) -> tuple[InferRequest, bool]:
    """Checks a request.

    Args:
        message: A `ModelInferRequest` whose raw bytes are in `raws`.
        memory: Takes inputs that are large or in client memory.
        off_loop: Copies and converts inputs that are large together.

    Returns:
        The request, and whether a streamed answer ends with an empty last response.

    Raises:
        InvalidInputError: If it is malformed or does not fit the model. The message says what was expected and what came.
        UnsupportedError: If it belongs to a sequence.
        DyOrcError: See `RequestMemory.room`, `span` and `fetch`.
    """
    _check_number(message.inputs, "inputs")
    inputs = GrpcInputs(message.inputs, raws, memory)
    if inputs.num_bytes > INLINE_BYTES:
        arrays = await off_loop.run(inputs.arrays)
    else:
        arrays = inputs.arrays()
    parameters = values_of(message.parameters) if message.parameters else {}
    has_empty_final = flag(parameters, EMPTY_FINAL)
    request = make_request(model, message.id, arrays, parameters, _wanted(message.outputs, model, memory))
    return request, has_empty_final


def _wanted(outputs: Any, model: Model, memory: RequestMemory) -> list[WantedOutput]:
    if not outputs:
        return all_outputs(model, is_binary=True)
    _check_number(outputs, "outputs")
    return [wanted_output(output.name, values_of(output.parameters), True, model, memory) for output in outputs]


def _check_number(tensors: Any, kind: str) -> None:
    if len(tensors) > _MAX_TENSORS:
        raise InvalidInputError(f"the request has {len(tensors)} {kind}, expected at most {_MAX_TENSORS}")


class GrpcInputs:
    """A request's inputs. The constructor checks their heads, and reserves the memory that they need.

    Args:
        inputs: Of a `ModelInferRequest`.
        raws: The bytes of inputs outside client memory, in order; none if they have `contents`.

    Raises:
        InvalidInputError: If they are malformed, or some of `raws` are left over.
        DyOrcError: See `RequestMemory.room`, `span` and `fetch`.

    Attributes:
        num_bytes: The work that `arrays` has to do, in bytes to copy.
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
        self._fetched = fetch_inputs(self._shared, memory) if self._shared else {}
        self.num_bytes = sum(map(len, raws)) + sum(num_bytes_of(head, contents) for head, contents in self._typed)

    def arrays(self) -> dict[str, Array]:
        """Returns each input's array, by name. May be called on any thread, once.

        Raises:
            InvalidInputError: If bytes or contents do not fit an input's type and shape.
        """
        arrays: dict[str, Any] = dict(self._names)
        for head, contents in self._typed:
            arrays[head.name] = from_bytes(head, b"") if contents is None else from_contents(head, contents)
        for (head, raw), place in zip(self._raw, self._places, strict=True):
            if place is not None:
                copy_into(place, raw)
            arrays[head.name] = from_bytes(head, raw if place is None else place)
        return arrays | self._fetched

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
        raise InvalidInputError(f"input {tensor.name!r} has contents as well as {other}, expected only one")


def _places(raw_inputs: Sequence[tuple[Head, memoryview]], memory: RequestMemory) -> list[memoryview | None]:
    """Returns for each input the place in the arena to copy it to, where programs read it; None: it stays where it is.

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


_FIELDS = {
    DType.BOOL: "bool_contents",
    DType.INT8: "int_contents", DType.INT16: "int_contents", DType.INT32: "int_contents", DType.INT64: "int64_contents",
    DType.UINT8: "uint_contents", DType.UINT16: "uint_contents", DType.UINT32: "uint_contents", DType.UINT64: "uint64_contents",
    DType.FP32: "fp32_contents", DType.FP64: "fp64_contents",
    DType.BYTES: "bytes_contents",
}  # fmt: skip

_NARROW = {
    DType.INT8: np.dtype(np.int32), DType.INT16: np.dtype(np.int32),
    DType.UINT8: np.dtype(np.uint32), DType.UINT16: np.dtype(np.uint32),
}  # fmt: skip
"""Types whose field in the message has a wider type."""

_ITEM_WORK_BYTES = 64
"""Converting an item takes about as long as copying this many bytes."""

_MAX_PARAMETERS = 1000


def from_contents(head: Head, contents: Any) -> Array:
    """Returns an input's array from its `contents`.

    Raises:
        InvalidInputError: If they do not fit its type and shape.
    """
    if head.dtype in NO_JSON_FORM:
        raise InvalidInputError(f"input {head.name!r} is {head.dtype}, which 'contents' cannot carry; send raw_input_contents")
    field = _FIELDS[head.dtype]
    if others := [descriptor.name for descriptor, _ in contents.ListFields() if descriptor.name != field]:
        raise InvalidInputError(f"input {head.name!r} has {others[0]}, expected {field} for {head.dtype}")
    items = getattr(contents, field)
    num_expected = math.prod(head.shape)
    if len(items) != num_expected:
        raise InvalidInputError(
            f"input {head.name!r} has {len(items)} elements in {field}, shape {list(head.shape)} has {num_expected}"
        )
    if head.dtype is DType.BYTES:
        return reshape(head, _filled(items, np.dtype(object)))
    return reshape(head, _numbers(head, items))


def num_bytes_of(head: Head, contents: Any) -> int:
    """Estimates the work to convert an input's contents, in bytes to copy: each item becomes a Python object in between."""
    field = _FIELDS.get(head.dtype)
    if contents is None or field is None:
        return 0
    return contents.ByteSize() if head.dtype is DType.BYTES else _ITEM_WORK_BYTES * len(getattr(contents, field))


def _filled(items: Any, dtype: np.dtype[Any]) -> Array:
    """Returns items as an array. NumPy holds the interpreter's lock for each piece, so there is a pause after it."""
    array = np.empty(len(items), dtype)
    for at in range(0, len(items), PIECE_ITEMS):
        if at:
            time.sleep(PAUSE_S)
        array[at : at + PIECE_ITEMS] = items[at : at + PIECE_ITEMS]
    return array


def _numbers(head: Head, items: Any) -> Array:
    target = numpy_dtype(head.dtype)
    array = _filled(items, _NARROW.get(head.dtype, target))
    if array.dtype == target or not array.size:
        return array.astype(target, copy=False)
    limits = np.iinfo(target)
    if array.min() < limits.min or array.max() > limits.max:
        raise InvalidInputError(
            f"input {head.name!r} holds a number outside the range of {head.dtype}: {array.min()} to {array.max()}"
        )
    return array.astype(target)


def values_of(parameters: Any) -> dict[str, Any]:
    """Returns parameters as plain values, by name.

    Raises:
        InvalidInputError: If there are too many, or one has no value.
    """
    if len(parameters) > _MAX_PARAMETERS:
        raise InvalidInputError(f"there are {len(parameters)} parameters, expected at most {_MAX_PARAMETERS}")
    values: dict[str, Any] = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if kind is None:
            raise InvalidInputError(f"parameter {name!r} has no value")
        values[name] = getattr(parameter, kind)
    return values
