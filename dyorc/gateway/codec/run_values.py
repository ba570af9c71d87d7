"""Requests and answers of ``POST /run/NAME``: values by the names of parameters, in the form that people have them.

A body is a JSON object with a key for each parameter; a form (multipart or URL-encoded) with a field for each; or the bytes of
the only file that a workflow takes, with the other parameters in the query. The answer is JSON, or the bytes of a file.
"""

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
import numpy as np
import orjson

from dyorc.authoring.signature import OutputKind, StaticSpec, expectation
from dyorc.authoring.spec import TensorSpec, ValueSpec
from dyorc.authoring.values import ContentKind, content_type_of
from dyorc.core.arrays import Array, element_of_bytes
from dyorc.core.tensor import DType
from dyorc.errors import InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.codec.form_fields import FormField, read_form
from dyorc.gateway.codec.generate_json import as_input
from dyorc.gateway.codec.json_inputs import Input, read_inputs
from dyorc.gateway.codec.json_objects import read_object
from dyorc.gateway.codec.json_outputs import texts
from dyorc.gateway.codec.schema_texts import takes_text
from dyorc.gateway.infer_request import InferRequest, make_request
from dyorc.gateway.request_memory import RequestMemory
from dyorc.protocol import media_types
from dyorc.protocol.parameter_names import BINARY_DATA_SIZE

_FORM = "multipart/form-data"
_URL_FORM = "application/x-www-form-urlencoded"
_TEXT = "text/plain"
_ANY_FILE = "application/octet-stream"
_WITHOUT_BODY = ("", media_types.JSON, _URL_FORM)

_ADVICE = "; expected an object with a key for each parameter"


@dataclass(frozen=True, slots=True)
class RunBody:
    """A request's body, and what says how to read it.

    Attributes:
        content_type: The header; empty if there is none.
        query: Of the URL, after the ``?``.
    """

    body: bytes | memoryview
    content_type: str = ""
    query: str = ""


class RunAnswer(NamedTuple):
    """An answer, with its media type."""

    content_type: str
    body: bytes


def decode_run(sent: RunBody, model: Model, memory: RequestMemory, request_id: str = "") -> InferRequest:
    """Reads a request.

    Raises:
        InvalidInputError: If it is malformed or does not fit the model; names the parameter.
    """
    specs = {spec.name: spec for spec in model.signature.parameters}
    given = _given(sent, model, specs)
    arrays: dict[str, Array] = {}
    parameters: dict[str, Any] = {}
    for name, value in given.items():
        spec = specs.get(name)
        if spec is None:
            raise InvalidInputError(f"{model.signature.owner} has no parameter {name!r}; {expectation(specs.values())}")
        if isinstance(spec, StaticSpec):
            parameters[name] = _static(spec, value, model)
        elif isinstance(spec, ValueSpec):
            arrays[name] = _value(spec, value, model)
        elif isinstance(spec, TensorSpec):
            arrays |= _tensor(spec, value, model, memory)
    return make_request(model, request_id, arrays, parameters, ())


def _given(sent: RunBody, model: Model, specs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a request gives for parameters, by name: from JSON as it is, from forms as `FormField`."""
    query = _fields_of(sent.query, "the query")
    kind = sent.content_type.partition(";")[0].strip().lower()
    if kind == _FORM:
        body = read_form(bytes(sent.body), sent.content_type)
    elif not len(sent.body) and (kind in _WITHOUT_BODY or not _files(kind, specs)):
        body = {}
    elif kind in (media_types.JSON, "") or kind.endswith("+json"):
        body = read_object(sent.body, _ADVICE)
    elif kind == _URL_FORM:
        # curl says so of all that it sends by -d
        is_json = bytes(sent.body[:1]) == b"{"
        body = read_object(sent.body, _ADVICE) if is_json else _fields_of(_utf8(bytes(sent.body), "the form"), "the form")
    else:
        body = {_only_file(kind, model, specs): FormField(bytes(sent.body))}
    if twice := sorted(body.keys() & query.keys()):
        raise InvalidInputError(f"{model.signature.owner}: {twice[0]!r} was given twice, in the body and in the query")
    return query | body


def _fields_of(text: str, label: str) -> dict[str, FormField]:
    """Returns the fields of a URL-encoded form or query, by name."""
    fields: dict[str, FormField] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError) as error:
        raise InvalidInputError(f"{label} cannot be read: {error}") from None
    for name, value in pairs:
        if name in fields:
            raise InvalidInputError(f"{label} has two fields named {name!r}")
        fields[name] = FormField(value.encode())
    return fields


def _files(kind: str, specs: Mapping[str, Any]) -> list[str]:
    """Returns the parameters that a body of a media type may be for."""

    def takes(spec: Any) -> bool:
        if isinstance(spec, ValueSpec) and spec.is_file:
            return spec.kind is not ContentKind.IMAGE or kind.startswith("image/") or kind == _ANY_FILE
        is_text = kind == _TEXT and (
            (isinstance(spec, StaticSpec) and spec.type is str) or (isinstance(spec, ValueSpec) and spec.kind is ContentKind.TEXT)
        )
        return is_text or (type(spec) is TensorSpec and spec.dtype is DType.BYTES and spec.fixed_shape == ())

    return [name for name, spec in specs.items() if takes(spec)]


def _only_file(kind: str, model: Model, specs: Mapping[str, Any]) -> str:
    """Returns the parameter that a body of a media type is for."""
    names = _files(kind, specs)
    if len(names) != 1:
        why = f"{names} can each be one" if names else "it takes none"
        raise InvalidInputError(
            f"{model.signature.owner}: a body of {kind} is one file or text, and {why}; send JSON or multipart/form-data with "
            f"{list(specs)}"
        )
    return names[0]


def _value(spec: ValueSpec, value: Any, model: Model) -> Array:
    return element_of_bytes(_bytes_of(spec, value, f"{model.signature.owner}: {spec.name!r}"))


def _bytes_of(spec: ValueSpec, value: Any, label: str) -> bytes:
    """Returns a structured value as its bytes."""
    if isinstance(value, FormField):
        return value.data if spec.kind is not ContentKind.JSON else _json_of_field(spec, value.data)
    if spec.kind is ContentKind.JSON:
        return msgspec.json.encode(value)
    if not isinstance(value, str):
        expected = "a text" if spec.kind is ContentKind.TEXT else "the file as base64, or a data URL"
        raise InvalidInputError(f"{label} is {_shown(value)}, expected {expected}")
    return value.encode() if spec.kind is ContentKind.TEXT else _from_base64(value, label)


def _json_of_field(spec: ValueSpec, data: bytes) -> bytes:
    """Returns the JSON of a form's field. Where the type takes a text, the field is that text, even if it looks like JSON."""
    if takes_text(spec.schema):
        return msgspec.json.encode(_utf8(data, f"the field {spec.name!r}"))
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.encode(_utf8(data, f"the field {spec.name!r}"))
    return data


def _from_base64(text: str, label: str) -> bytes:
    if text.startswith("data:"):
        head, comma, text = text.partition(",")
        if not comma or not head.endswith(";base64"):
            raise InvalidInputError(f"{label} is a data URL, expected it as data:TYPE;base64,...")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInputError(f"{label} is {_shown(text)}, expected the file as base64, or a data URL: {error}") from None


_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def _static(spec: StaticSpec, value: Any, model: Model) -> Any:
    """Returns a parameter; texts of forms and queries become what it is declared."""
    if not isinstance(value, FormField):
        if spec.type is int and isinstance(value, float) and value.is_integer():
            return int(value)  # JSON does not tell 1.0 from 1
        if isinstance(value, str | int | float | bool):
            return value
        raise InvalidInputError(
            f"{model.signature.owner}: parameter {spec.name!r} is {_shown(value)}, expected {spec.type.__name__}"
        )
    text = _utf8(value.data, f"the field {spec.name!r}")
    if spec.type is str:
        return text
    try:
        is_number = text.isascii() and "_" not in text  # Python takes more
        value = _TRUTHS[text.lower()] if spec.type is bool else spec.type(text) if is_number else math.nan
    except (KeyError, ValueError):
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):  # JSON has no such numbers either
        raise InvalidInputError(
            f"{model.signature.owner}: parameter {spec.name!r} is {text[:80]!r}, expected {spec.type.__name__}"
        )
    return value


class RawTensor(msgspec.Struct, forbid_unknown_fields=True):
    """A tensor by its raw bytes. Nested lists cannot say what size rows have if there are none, and JSON has no NaN.

    Attributes:
        base64: The bytes as in the Open Inference Protocol's binary form.
    """

    datatype: str
    shape: list[int]
    base64: str


def _tensor(spec: TensorSpec, value: Any, model: Model, memory: RequestMemory) -> dict[str, Array]:
    nested = _nested(spec, value, model)
    if not isinstance(nested, dict):
        _check_rank(spec, nested, model)
        return read_inputs([as_input(spec, nested)], memoryview(b""), memory)
    label = f"{model.signature.owner}: {spec.name!r}"
    try:
        raw = msgspec.convert(nested, RawTensor)
    except msgspec.ValidationError as error:
        raise InvalidInputError(
            f"{label} is an object, expected nested lists, or datatype, shape and base64 of a tensor {spec.describe()}: {error}"
        ) from None
    data = _from_base64(raw.base64, label)
    tensor = Input(name=spec.name, shape=raw.shape, datatype=raw.datatype, parameters={BINARY_DATA_SIZE: len(data)})
    return read_inputs([tensor], memoryview(data), memory)


def _nested(spec: TensorSpec, value: Any, model: Model) -> Any:
    """Returns the numbers or texts of a tensor, nested in lists, or as the fields of a `RawTensor`."""
    if not isinstance(value, FormField):
        return value
    if spec.dtype is DType.BYTES and spec.fixed_shape == ():
        return _utf8(value.data, f"the field {spec.name!r}")
    try:
        return msgspec.json.decode(value.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidInputError(
            f"{model.signature.owner}: the field {spec.name!r} is a tensor {spec.describe()}, expected its elements as JSON"
        ) from None


def _check_rank(spec: TensorSpec, value: Any, model: Model) -> None:
    """Refuses lists that are not nested as deep as a tensor has dimensions: they would be read as another shape. An empty list is
    an empty tensor of any rank."""
    rank, part = 0, value
    while isinstance(part, list):
        rank += 1
        if not part:
            return
        part = part[0]
    declared = len(spec.dims)
    if rank < declared or (spec.variadic_at is None and rank > declared):
        raise InvalidInputError(
            f"{model.signature.owner}: {spec.name!r} is nested {rank} lists deep, expected {declared}: {spec.describe()}"
        )


def _utf8(data: bytes, label: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{label} is not UTF-8: {error}") from None


def _shown(value: Any) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown[:80]}{'...' if len(shown) > 80 else ''}"


def encode_run(model: Model, arrays: Sequence[Array]) -> RunAnswer:
    """Returns the answer to a request: the value that the workflow returned; the outputs by name, or in a list; a file by itself.

    Raises:
        InvalidInputError: If a BYTES output is not UTF-8.
    """
    if model.signature.outputs.is_file:
        data = bytes(arrays[0][()])
        return RunAnswer(content_type_of(data), data)
    return RunAnswer(media_types.JSON, encode_run_json(model, arrays))


def encode_run_json(model: Model, arrays: Sequence[Array]) -> bytes:
    """Returns an answer as JSON, with files as base64; numbers that JSON cannot carry become null. Errors: see `encode_run`."""
    outputs = model.signature.outputs
    values = [_json_value(spec, array) for spec, array in zip(outputs.tensors, arrays, strict=True)]
    whole: Any = dict(zip(outputs.names, values, strict=True)) if outputs.kind is OutputKind.FIELDS else values
    return orjson.dumps(values[0] if outputs.kind is OutputKind.SINGLE else whole, option=orjson.OPT_SERIALIZE_NUMPY)


def _json_value(spec: TensorSpec, array: Array) -> Any:
    if isinstance(spec, ValueSpec):
        data = bytes(array[()])
        match spec.kind:
            case ContentKind.JSON:
                return orjson.Fragment(data)
            case ContentKind.TEXT:
                return data.decode()
            case _:
                return base64.b64encode(data).decode()
    if spec.dtype is DType.BYTES:
        flat = np.empty(array.size, object)
        flat[:] = texts(spec.name, array)
        return flat.reshape(array.shape).tolist()
    if spec.dtype in (DType.BF16, DType.FP16):
        return array.astype(np.float32)[()]
    if array.dtype.char in _LONG_LONG:  # the same numbers under another name, which orjson does not know
        array = array.view(_LONG_LONG[array.dtype.char])
    return np.ascontiguousarray(array) if array.ndim else array[()]


_LONG_LONG = {"q": np.int64, "Q": np.uint64}
