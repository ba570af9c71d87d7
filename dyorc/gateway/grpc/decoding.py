# pyright: basic, reportAttributeAccessIssue=false
# Generated messages have no types.
"""`ModelInferRequest` to `InferRequest`: the model's inputs as arrays, from raw bytes, lists of numbers or client memory."""

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from dyorc.arrays import Array
from dyorc.errors import InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.grpc.contents import from_contents, values_of
from dyorc.gateway.grpc.wire import split
from dyorc.gateway.inputs import Head, SharedInput, fetched, from_bytes, read_head, span_of
from dyorc.gateway.outputs import WantedOutput, all_outputs, wanted_output
from dyorc.gateway.parameters import flag
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.requests import InferRequest, make_request
from dyorc.protocol.inference_pb2 import ModelInferRequest
from dyorc.protocol.raw import MAX_RANK
from dyorc.tensor import DType
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
        raise InvalidInputError(f"the request is no ModelInferRequest: {error}") from None


def decode_request(found: Any, raws: Sequence[memoryview], model: Model, memory: RequestMemory) -> tuple[InferRequest, bool]:
    """Checks a request.

    Args:
        found: A `ModelInferRequest` whose raw bytes are in `raws`.
        memory: Takes inputs that are large or in client memory.

    Returns:
        The request, and whether a streamed answer ends with an empty last response.

    Raises:
        InvalidInputError: If it is malformed or does not fit the model; names what, what was expected, and what came.
        UnsupportedError: If it belongs to a sequence.
        DyOrcError: See `RequestMemory.room`, `span` and `fetch`.
    """
    given = read_inputs(found.inputs, raws, memory)
    parameters = values_of(found.parameters) if found.parameters else {}
    has_empty_final = flag(parameters, "triton_enable_empty_final_response")
    request = make_request(model, found.id, given, parameters, _wanted(found.outputs, model, memory))
    return request, has_empty_final


def _wanted(asked: Any, model: Model, memory: RequestMemory) -> list[WantedOutput]:
    if not asked:
        return all_outputs(model, is_binary=True)
    _check_number(asked, "outputs")
    return [wanted_output(output.name, values_of(output.parameters), True, model, memory) for output in asked]


def _check_number(tensors: Any, what: str) -> None:
    if len(tensors) > _MAX_TENSORS:
        raise InvalidInputError(f"the request has {len(tensors)} {what}, expected at most {_MAX_TENSORS}")


def read_inputs(inputs: Any, raws: Sequence[memoryview], memory: RequestMemory) -> dict[str, Array]:
    """Returns each input's array, by name.

    Args:
        raws: The bytes of inputs outside client memory, in order; none if they have `contents`.

    Raises:
        InvalidInputError: If they are malformed, or some of `raws` are left over.
        DyOrcError: See `RequestMemory.room`, `span` and `fetch`.
    """
    _check_number(inputs, "inputs")
    arrays: dict[str, Any] = {}
    raw_inputs: list[tuple[Head, memoryview]] = []
    shared: list[SharedInput] = []
    for tensor in inputs:
        head = _read_head(tensor)
        if head.name in arrays:
            raise InvalidInputError(f"input {head.name!r} was given twice")
        arrays[head.name] = None  # until all heads are read
        has_contents = tensor.HasField("contents")
        span = span_of(values_of(tensor.parameters), "input", head.name, memory) if tensor.parameters else None
        if has_contents and (raws or span is not None):
            _refuse_contents(tensor, "shared memory" if span is not None else "raw_input_contents")
        if span is not None:
            shared.append(SharedInput(head, span))
        elif not raws:
            arrays[head.name] = _from_contents(head, tensor.contents, has_contents)
        elif len(raw_inputs) < len(raws):
            raw_inputs.append((head, raws[len(raw_inputs)]))
        else:
            raise InvalidInputError(f"input {head.name!r} has no raw_input_contents: there are only {len(raws)}")
    if len(raw_inputs) != len(raws):
        raise InvalidInputError(f"there are {len(raws)} raw_input_contents for {len(raw_inputs)} inputs")
    if raw_inputs:
        _place(raw_inputs, arrays, memory)
    if shared:
        arrays |= fetched(shared, memory)
    return arrays


def _read_head(tensor: Any) -> Head:
    shape = tensor.shape
    if len(shape) > MAX_RANK:
        shape = shape[: MAX_RANK + 1]  # enough to be refused
    return read_head(tensor.name, tensor.datatype, tuple(shape))


def _refuse_contents(tensor: Any, other: str) -> None:
    if tensor.contents.ListFields():
        raise InvalidInputError(f"input {tensor.name!r} has contents, which must be empty beside {other}")


def _from_contents(head: Head, contents: Any, has_contents: bool) -> Array:
    if not has_contents and 0 not in head.shape:
        raise InvalidInputError(f"input {head.name!r} has neither contents nor raw_input_contents")
    return from_contents(head, contents) if has_contents else from_bytes(head, b"")


def _place(raw_inputs: Sequence[tuple[Head, memoryview]], arrays: dict[str, Any], memory: RequestMemory) -> None:
    """Makes arrays of raw bytes, as views; large ones are copied to the arena, where programs read them.

    BYTES are not read in place, so they need not be there.
    """
    fixed = [raw for head, raw in raw_inputs if head.dtype is not DType.BYTES]
    offsets, end = offsets_of([len(raw) for raw in fixed])
    room = memory.room(end) if fixed else None
    at = iter(offsets)
    for head, raw in raw_inputs:
        if room is not None and head.dtype is not DType.BYTES:
            start = next(at)
            part = room[start : start + len(raw)]
            part[:] = raw
            raw = part
        arrays[head.name] = from_bytes(head, raw)
