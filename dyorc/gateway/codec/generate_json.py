"""The generate extension: inputs and outputs as plain JSON fields with their names.

Source: triton-inference-server/server, docs/protocol/extension_generate.md, and GenerateRequestClass in src/http_server.cc. A
field that is not an input is a parameter; fields in "parameters" count as if they stood outside.
"""

import math
from collections.abc import Sequence
from typing import Any

from dyorc.authoring.spec import TensorSpec
from dyorc.core.arrays import Array
from dyorc.core.tensor import DType
from dyorc.errors import InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.codec.json_inputs import Input, read_inputs
from dyorc.gateway.codec.json_objects import read_object
from dyorc.gateway.codec.json_outputs import AnswerForm, texts, wanted_outputs
from dyorc.gateway.codec.json_pieces import json_parts
from dyorc.gateway.infer_request import InferRequest, make_request
from dyorc.gateway.request_memory import RequestMemory
from dyorc.protocol.parameter_names import EXPLAIN

_MAX_DEPTH = 32
"""How deeply an input's value may be nested; no tensor has more dimensions."""


def decode_generate(body: bytes | memoryview, model: Model, memory: RequestMemory) -> InferRequest:
    """Reads a request; an empty body counts as an object without fields.

    Raises:
        InvalidInputError: If it is malformed or does not fit the model. The message says what is wrong, what was expected and
            what came.
    """
    fields = _fields_of(body)
    request_id = fields.pop("id", "")
    if not isinstance(request_id, str):
        raise InvalidInputError(f"'id' is {request_id!r}, expected a string")
    specs = {spec.name: spec for spec in model.signature.inputs}
    tensors = [as_input(specs[name], value) for name, value in fields.items() if name in specs]
    parameters = {name: value for name, value in fields.items() if name not in specs}
    for name, value in parameters.items():
        if not isinstance(value, str | int | float | bool):
            shown = str(value)[:40]
            raise InvalidInputError(
                f"{name!r} is not an input of model {model.name!r}; as a parameter it is {shown!r},"
                " expected a string, number or boolean"
            )
    inputs = read_inputs(tensors, memoryview(b""), memory)
    return make_request(model, request_id, inputs, parameters, wanted_outputs(None, False, model, memory, AnswerForm.JSON))


def _fields_of(body: bytes | memoryview) -> dict[str, Any]:
    fields = read_object(body) if len(body) else {}
    nested = fields.pop("parameters", {})
    if not isinstance(nested, dict):
        raise InvalidInputError("'parameters' is not an object")
    if twice := sorted(fields.keys() & nested.keys()):
        raise InvalidInputError(f"{twice[0]!r} was given twice, inside and outside of 'parameters'")
    return fields | nested


def as_input(spec: TensorSpec, value: Any) -> Input:
    data = value if isinstance(value, list) else [value]
    return Input(name=spec.name, shape=_shape_of(spec, data, is_scalar=data is not value), datatype=spec.dtype, data=data)


def _shape_of(spec: TensorSpec, data: list[Any], *, is_scalar: bool) -> list[int]:
    """Returns the shape of an input: as nested lists show it, or else with the innermost free dimension taking the rest."""
    own = [] if is_scalar else _sizes_of(data)
    declared = spec.wire_shape
    if own == [0] and len(declared) > 1:
        return [0, *(max(size, 0) for size in declared[1:])]
    if len(own) == len(declared) or len(own) > 1:
        return own
    num_items = math.prod(own)
    fixed = math.prod(size for size in declared if size != -1)
    rest, odd = divmod(num_items, fixed) if fixed else (0, num_items)
    if odd or (-1 not in declared and num_items != fixed):
        raise InvalidInputError(f"input {spec.name!r} has {num_items} elements, which do not fit its shape {spec.describe()}")
    shape = list(declared)
    for at in reversed(range(len(shape))):
        if shape[at] == -1:
            shape[at], rest = rest, 1
    return shape


def _sizes_of(data: list[Any]) -> list[int]:
    sizes: list[int] = []
    nested: Any = data
    while isinstance(nested, list) and len(sizes) < _MAX_DEPTH:
        sizes.append(len(nested))
        nested = nested[0] if nested else None
    return sizes


def encode_generate(
    model: Model, request: InferRequest, arrays: Sequence[Array], story: Sequence[dict[str, Any]] | None = None
) -> list[bytes]:
    """Returns a response in parts: each output by its name, as a flat list, or as a single value if it has one element.

    Raises:
        InvalidInputError: If a BYTES output is not UTF-8.
    """
    response: dict[str, Any] = {}
    for output in request.outputs:
        name = model.signature.outputs.names[output.at]
        array = output.array(arrays)
        is_bytes = model.signature.outputs.tensors[output.at].dtype is DType.BYTES
        flat = texts(name, array) if is_bytes else array.reshape(-1)
        response[name] = flat[0] if array.size == 1 else flat
    if story is not None:
        response["parameters"] = {EXPLAIN: story}
    response |= {"model_name": model.name, "model_version": model.version} | (
        {"id": request.request_id} if request.request_id else {}
    )
    return json_parts(response)
