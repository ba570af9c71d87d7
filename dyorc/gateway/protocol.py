"""Bodies of inference requests and responses: the Open Inference Protocol v2 with its binary tensor extension.

Source: kserve/open-inference-protocol, inference_rest.md; triton-inference-server/server, docs/protocol/extension_binary_data.md.
A body is JSON; with the extension, JSON of a given length and then the raw tensors in the order of the list that names them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import orjson

from dyorc.arrays import Array, dtype_of, numpy_dtype
from dyorc.authoring.signature import Signature, StaticValue
from dyorc.errors import InvalidInputError, TransportError
from dyorc.gateway.catalog import Model
from dyorc.tensor import ITEM_BYTES, DType
from dyorc.transport.codec import MAX_RANK, MAX_SIZE, decode_bytes, encode_bytes

_NO_JSON_FORM = frozenset({DType.FP16, DType.BF16})
_RESERVED = frozenset(
    {"binary_data_output", "explain", "headers", "priority", "sequence_end", "sequence_id", "sequence_start", "timeout"}
)
_HIGHEST_PRIORITY = 2**31
_MAX_TIMEOUT_US = 2**50


class _Input(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] = {}
    data: Any = msgspec.UNSET


class _Output(msgspec.Struct):
    name: str
    parameters: dict[str, Any] = {}


class _Request(msgspec.Struct):
    inputs: list[_Input]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[_Output] | None = None


_decoder = msgspec.json.Decoder(_Request)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """A request, checked against its model.

    Attributes:
        arrays: Inputs in the order of the model's signature.
        outputs: Which outputs to send, by position, and whether as raw bytes.
        timeout_s: The caller's limit; None if it named none.
        priority: Larger goes first.
        is_explained: Whether the answer comes with the request's story.
    """

    request_id: str
    arrays: Sequence[Array]
    statics: tuple[StaticValue, ...]
    outputs: Sequence[tuple[int, bool]]
    timeout_s: float | None
    priority: int
    is_explained: bool


def decode_request(body: bytes | memoryview, json_bytes: int | None, model: Model) -> InferRequest:
    """Reads a request's body.

    Args:
        json_bytes: Length of the JSON, from ``Inference-Header-Content-Length``; None if all of the body is JSON.

    Raises:
        InvalidInputError: If it is malformed or does not fit the model; names what, what was expected, and what came.
    """
    view = memoryview(body)
    if json_bytes is None:
        json_bytes = len(view)
    if not 0 <= json_bytes <= len(view):
        raise InvalidInputError(f"Inference-Header-Content-Length is {json_bytes}, the body has {len(view)} bytes")
    try:
        request = _decoder.decode(view[:json_bytes])
    except RecursionError as error:
        raise InvalidInputError("the request's JSON is nested too deeply") from error
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"the request's JSON is malformed: {error}") from error
    given = _read_inputs(request.inputs, view[json_bytes:])
    signature = model.signature
    _refuse_unknown(given, signature)
    tensors, statics = signature.bind((), given | _static_parameters(request, model))
    if swapped := [spec.name for spec, value in zip(signature.inputs, tensors, strict=True) if not isinstance(value, np.ndarray)]:
        raise InvalidInputError(f"{signature.owner}: {swapped[0]!r} is a tensor; it belongs into 'inputs', not into 'parameters'")
    model.check(tensors, statics)
    return InferRequest(
        request_id=request.id,
        arrays=tensors,
        statics=statics,
        outputs=_wanted_outputs(request, model),
        timeout_s=_timeout_s(request.parameters),
        priority=_priority(request.parameters),
        is_explained=_is_explained(request.parameters),
    )


def _refuse_unknown(given: Iterable[str], signature: Signature) -> None:
    names = signature.input_group.names
    for name in given:
        if name in names:
            continue
        if name in signature.names():
            raise InvalidInputError(f"{signature.owner}: {name!r} is no tensor; it belongs into 'parameters', not into 'inputs'")
        raise InvalidInputError(f"{signature.owner} has no input {name!r}; expected {list(names)}")


def _read_inputs(inputs: Sequence[_Input], rest: memoryview) -> dict[str, Any]:
    """Each input's array, from its data or from the next bytes of `rest`."""
    arrays: dict[str, Any] = {}
    at = 0
    for tensor in inputs:
        if tensor.name in arrays:
            raise InvalidInputError(f"input {tensor.name!r} was given twice")
        if len(tensor.shape) > MAX_RANK or any(not 0 <= size <= MAX_SIZE for size in tensor.shape):
            shown = str(tensor.shape)[:80]
            raise InvalidInputError(
                f"input {tensor.name!r} has shape {shown}, expected at most {MAX_RANK} sizes from 0 to {MAX_SIZE}"
            )
        try:
            dtype = DType(tensor.datatype)
        except ValueError:
            raise InvalidInputError(
                f"input {tensor.name!r} has datatype {tensor.datatype!r}, expected one of {[d.value for d in DType]}"
            ) from None
        size = tensor.parameters.get("binary_data_size")
        if size is None:
            arrays[tensor.name] = _from_json(tensor, dtype)
            continue
        if tensor.data is not msgspec.UNSET:
            raise InvalidInputError(f"input {tensor.name!r} has both data and binary_data_size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise InvalidInputError(f"input {tensor.name!r} has binary_data_size {size!r}, expected a number of bytes")
        if size > len(rest) - at:
            raise InvalidInputError(f"input {tensor.name!r} announces {size} bytes, {len(rest) - at} are left in the body")
        arrays[tensor.name] = _from_bytes(tensor, dtype, rest[at : at + size])
        at += size
    if at != len(rest):
        raise InvalidInputError(f"the inputs take {at} bytes after the JSON, the body has {len(rest)}")
    return arrays


def _from_bytes(tensor: _Input, dtype: DType, raw: memoryview) -> Array:
    if dtype is DType.BYTES:
        try:
            return decode_bytes(raw, tuple(tensor.shape))
        except TransportError as error:
            raise InvalidInputError(f"input {tensor.name!r}: {error}") from error
    expected = math.prod(tensor.shape) * ITEM_BYTES[dtype]
    if len(raw) != expected:
        raise InvalidInputError(f"input {tensor.name!r} has {len(raw)} bytes, {dtype}{tensor.shape} has {expected}")
    return _reshape(tensor, np.frombuffer(raw, numpy_dtype(dtype)))


def _from_json(tensor: _Input, dtype: DType) -> Array:
    if tensor.data is msgspec.UNSET:
        raise InvalidInputError(f"input {tensor.name!r} has neither data nor binary_data_size")
    if dtype in _NO_JSON_FORM:
        raise InvalidInputError(f"input {tensor.name!r} is {dtype}, which JSON cannot carry; send it as binary data")
    array = _as_typed(tensor.name, tensor.data, dtype)
    if array.size != math.prod(tensor.shape):
        raise InvalidInputError(
            f"input {tensor.name!r} has {array.size} elements, shape {tensor.shape} has {math.prod(tensor.shape)}"
        )
    return _reshape(tensor, array)


def _reshape(tensor: _Input, array: Array) -> Array:
    try:
        return array.reshape(tensor.shape)
    except ValueError as error:
        raise InvalidInputError(f"input {tensor.name!r} cannot have shape {tensor.shape}: {error}") from error


_JSON_KINDS = {"b": "booleans", "i": "whole numbers", "f": "numbers", "O": "texts"}


def _as_typed(name: str, data: Any, dtype: DType) -> Array:
    """JSON data, nested or flat, as an array of exactly `dtype`."""
    target = numpy_dtype(dtype)
    kind = "i" if target.kind in "iu" else target.kind
    refusal = InvalidInputError(f"the data of input {name!r} is not an evenly nested list of {_JSON_KINDS[kind]} ({dtype})")
    if not isinstance(data, list):
        raise refusal
    if kind == "O":
        found = np.array(data, dtype=object)
        flat = found.reshape(-1).tolist()
        if not all(isinstance(item, str) for item in flat):
            raise refusal
        array = np.empty(len(flat), dtype=object)
        array[:] = [item.encode() for item in flat]
        return array
    try:
        found = np.array(data)
    except (ValueError, OverflowError):
        raise refusal from None
    if found.size == 0:
        return found.astype(target)
    if kind == "i" and found.dtype.kind in "fO":
        found = _whole_numbers(data)  # NumPy makes floats or objects of numbers that are too large for its first guess
    allowed = {"b": "b", "i": "iuO", "f": "iuf"}[kind]
    if found is None or found.dtype.kind not in allowed:
        raise refusal
    if kind == "i":
        limits = np.iinfo(target)
        if found.min() < limits.min or found.max() > limits.max:
            raise InvalidInputError(f"input {name!r} holds a number outside of {dtype}: {found.min()} to {found.max()}")
    with np.errstate(over="ignore"):
        array = found.astype(target)
    if kind == "f" and not np.isfinite(array).all():  # JSON itself has no infinity
        raise InvalidInputError(f"input {name!r} holds a number outside of {dtype}: {found.min()} to {found.max()}")
    return array


def _whole_numbers(data: list[Any]) -> Array | None:
    """Nested lists of Python integers of any size; None if that is not what they are."""
    try:
        found = np.array(data, dtype=object)
    except ValueError:
        return None
    return found if all(type(item) is int for item in found.reshape(-1).tolist()) else None


def _static_parameters(request: _Request, model: Model) -> dict[str, Any]:
    known = {spec.name for spec in model.signature.statics}
    given = {name: value for name, value in request.parameters.items() if name in known}
    for name, value in request.parameters.items():
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise InvalidInputError(
                f"parameter {name!r} is a number of {value.bit_length()} bits, expected at most 64, with its sign"
            )
    unknown = [
        name for name in request.parameters if name not in known and name not in _RESERVED and not name.startswith("triton_")
    ]
    if unknown:
        raise InvalidInputError(f"model {model.name!r} has no parameter {unknown[0]!r}; expected one of {sorted(known)}")
    return given


def _wanted_outputs(request: _Request, model: Model) -> list[tuple[int, bool]]:
    """Positions of the outputs to send, each with whether it is sent as raw bytes."""
    tensors = model.signature.outputs.tensors
    by_default = bool(request.parameters.get("binary_data_output", False))
    if request.outputs is None:
        wanted = [(at, by_default) for at in range(len(tensors))]
    else:
        names = model.signature.outputs.names
        wanted: list[tuple[int, bool]] = []
        for output in request.outputs:
            if output.name not in names:
                raise InvalidInputError(f"model {model.name!r} has no output {output.name!r}; it has {list(names)}")
            wanted.append((names.index(output.name), bool(output.parameters.get("binary_data", by_default))))
    for at, is_binary in wanted:
        if tensors[at].dtype in _NO_JSON_FORM and not is_binary:
            raise InvalidInputError(
                f"output {tensors[at].name!r} is {tensors[at].dtype}, which JSON cannot carry; ask for binary data"
            )
    return wanted


def _timeout_s(parameters: dict[str, Any]) -> float | None:
    """The protocol's timeout, which is in microseconds; 0 stands for none."""
    timeout = parameters.get("timeout", 0)
    if not isinstance(timeout, int) or isinstance(timeout, bool) or not 0 <= timeout <= _MAX_TIMEOUT_US:
        raise InvalidInputError(f"parameter 'timeout' is {timeout!r}, expected microseconds, at most {_MAX_TIMEOUT_US}")
    return timeout / 1e6 if timeout else None


def _priority(parameters: dict[str, Any]) -> int:
    """The protocol counts from 1, the highest, downwards; 0, the default, comes after all of them."""
    priority = parameters.get("priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority < _HIGHEST_PRIORITY:
        raise InvalidInputError(f"parameter 'priority' is {priority!r}, expected a number from 0 to {_HIGHEST_PRIORITY - 1}")
    return _HIGHEST_PRIORITY - priority if priority else 0


def _is_explained(parameters: dict[str, Any]) -> bool:
    is_explained = parameters.get("explain", False)
    if not isinstance(is_explained, bool):
        raise InvalidInputError(f"parameter 'explain' is {is_explained!r}, expected a boolean")
    return is_explained


def encode_response(
    model: Model, request: InferRequest, arrays: Sequence[Array], story: Sequence[dict[str, Any]] | None = None
) -> tuple[list[bytes | memoryview], int | None]:
    """A response's body, in parts, and the length of its JSON if raw tensors follow it.

    Numbers that JSON cannot carry (NaN, infinity) become null; ask for binary data to get them.

    Raises:
        InvalidInputError: If a BYTES output is no UTF-8 and was not asked for as binary data.
    """
    outputs: list[dict[str, Any]] = []
    raw: list[bytes | memoryview] = []
    has_binary = False
    for at, is_binary in request.outputs:
        array = np.asarray(arrays[at], order="C")
        dtype = dtype_of(array)
        output: dict[str, Any] = {"name": model.signature.outputs.names[at], "datatype": dtype, "shape": array.shape}
        if is_binary:
            part = encode_bytes(array) if dtype is DType.BYTES else array.tobytes()
            output["parameters"] = {"binary_data_size": len(part)}
            raw.append(part)
            has_binary = True
        else:
            output["data"] = _texts(output["name"], array) if dtype is DType.BYTES else array.reshape(-1)
        outputs.append(output)
    response: dict[str, Any] = {"model_name": model.name, "model_version": "1", "outputs": outputs}
    if request.request_id:
        response["id"] = request.request_id
    if story is not None:
        response["parameters"] = {"explain": story}
    head = orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY)
    return [head, *raw], len(head) if has_binary else None


def _texts(name: str, array: Array) -> list[str]:
    try:
        return [bytes(item).decode() for item in array.reshape(-1).tolist()]
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"output {name!r} holds bytes that are no UTF-8; ask for binary data") from error
