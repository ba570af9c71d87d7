# pyright: basic, reportAttributeAccessIssue=false
# Generated messages have no types.
"""Outputs to `ModelInferResponse`: always raw bytes, one entry per output, empty for outputs that went to client memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from dyorc.core.arrays import Array, dtype_of
from dyorc.core.tensor import DType
from dyorc.gateway.catalog import Model
from dyorc.gateway.copies import join_buffers
from dyorc.gateway.grpc.wire import Buffer, join_raw_outputs, wrap_streamed
from dyorc.gateway.infer_request import InferRequest
from dyorc.gateway.request_ids import Ids
from dyorc.gateway.request_outputs import put_output
from dyorc.protocol.inference_pb2 import ModelInferRequest, ModelInferResponse, ModelStreamInferResponse
from dyorc.protocol.parameter_names import EXPLAIN, FINAL
from dyorc.protocol.raw import encode_bytes

_COPY_LIMIT_BYTES = 64 * 1024
"""Up to this size a copy costs less than a view."""


def encode_response(
    model: Model,
    request: InferRequest,
    arrays: Sequence[Array],
    story: Sequence[Any] | None = None,
    is_final: bool | None = None,
) -> list[Buffer]:
    """Returns a response in parts, which may be views of `arrays`. Writes outputs for client memory there.

    Args:
        story: The steps of the request, if it asked for them.
        is_final: Whether it is the request's last response on a stream; None if not on a stream.

    Raises:
        InvalidInputError: If a client truncated its memory.
        ClientMemoryError: If an output does not fit into its region.
    """
    response = ModelInferResponse(model_name=model.name, model_version=model.version, id=request.request_id)
    names = model.signature.outputs.names
    outputs = response.outputs
    raws: list[Buffer] = []
    for wanted in request.outputs:
        array = wanted.array(arrays)
        dtype = dtype_of(array)
        name = names[wanted.at]
        output = outputs.add(name=name, datatype=dtype, shape=array.shape)
        if wanted.span is None:
            raws.append(_raw(array, dtype))
        else:
            _set_all(output.parameters, put_output(array, dtype, wanted.span, name))
            raws.append(b"")
    if is_final is not None:
        response.parameters[FINAL].bool_param = is_final
    if story is not None:
        response.parameters[EXPLAIN].string_param = orjson.dumps(story).decode()
    return join_raw_outputs(response.SerializeToString(), raws)


def _raw(array: Array, dtype: DType) -> Buffer:
    if dtype is DType.BYTES:
        return encode_bytes(array)
    if array.nbytes <= _COPY_LIMIT_BYTES:
        return array.tobytes()
    return array.reshape(-1).view(np.uint8).data


def _set_all(parameters: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, str):
            parameters[name].string_param = value
        else:
            parameters[name].int64_param = value


def encode_part(
    model: Model, request: InferRequest, arrays: Sequence[Array], story: Sequence[Any] | None, is_final: bool
) -> bytes:
    """Returns a response on a stream. Raises what `encode_response` raises."""
    return join_buffers(wrap_streamed(encode_response(model, request, arrays, story, is_final)))


def encode_empty_final(model: Model, request_id: str, story: Sequence[Any] | None) -> bytes:
    """Returns the message that ends a request's responses on a stream."""
    answer = ModelStreamInferResponse()
    response = answer.infer_response
    response.model_name, response.model_version, response.id = model.name, model.version, request_id
    response.parameters[FINAL].bool_param = True
    if story is not None:
        response.parameters[EXPLAIN].string_param = orjson.dumps(story).decode()
    return answer.SerializeToString()


def encode_stream_error(text: str, request: ModelInferRequest, ids: Ids) -> bytes:
    """Returns the message that reports a failed request on a stream."""
    answer = ModelStreamInferResponse(error_message=text)
    response = answer.infer_response
    response.model_name, response.model_version, response.id = request.model_name, request.model_version, request.id
    response.parameters[FINAL].bool_param = True
    for name, value in ids.facts.items():
        response.parameters[name].string_param = value
    return answer.SerializeToString()
