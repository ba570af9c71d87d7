"""Outputs of inference requests: which are wanted in which form, and responses with them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson

from dyorc.arrays import Array, dtype_of
from dyorc.errors import ClientMemoryError, InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.client_memory import Span
from dyorc.gateway.protocol_inputs import NO_JSON_FORM, span_of
from dyorc.gateway.request_memory import RequestMemory
from dyorc.tensor import DType
from dyorc.transport.codec import encode_bytes


class Output(msgspec.Struct):
    """An output that is asked for, as a request's JSON has it."""

    name: str
    parameters: dict[str, Any] = {}


class WantedOutput(NamedTuple):
    """An output to send.

    Attributes:
        at: Its position in the model's signature.
        is_binary: Whether as raw bytes.
        span: Where in client memory to put it instead of sending it; None if it is sent.
    """

    at: int
    is_binary: bool
    span: Span | None = None


def wanted_outputs(asked: Sequence[Output] | None, by_default: bool, model: Model, memory: RequestMemory) -> list[WantedOutput]:
    """The outputs to send.

    Args:
        asked: What the request asks for; None stands for all.
        by_default: Whether as raw bytes if an output does not say.

    Raises:
        InvalidInputError: If there is no such output, or not in this form.
        ClientError: As `RequestMemory.span`.
    """
    tensors = model.signature.outputs.tensors
    if asked is None:
        wanted = [WantedOutput(at, by_default) for at in range(len(tensors))]
    else:
        wanted = [_wanted_output(output, by_default, model, memory) for output in asked]
    for at, is_binary, span in wanted:
        if tensors[at].dtype in NO_JSON_FORM and not is_binary and span is None:
            raise InvalidInputError(
                f"output {tensors[at].name!r} is {tensors[at].dtype}, which JSON cannot carry; ask for binary data"
            )
    return wanted


def _wanted_output(output: Output, by_default: bool, model: Model, memory: RequestMemory) -> WantedOutput:
    names = model.signature.outputs.names
    if output.name not in names:
        raise InvalidInputError(f"model {model.name!r} has no output {output.name!r}; it has {list(names)}")
    span = span_of(output.parameters, "output", output.name, memory)
    if span is not None:
        for other in ("classification", "binary_data"):
            if output.parameters.get(other, False):
                raise InvalidInputError(f"Output can't set both 'shared_memory_region' and '{other}' (output {output.name!r})")
    return WantedOutput(names.index(output.name), bool(output.parameters.get("binary_data", by_default)), span)


def encode_response(
    model: Model,
    request_id: str,
    wanted: Sequence[WantedOutput],
    arrays: Sequence[Array],
    story: Sequence[dict[str, Any]] | None = None,
) -> tuple[list[bytes | memoryview], int | None]:
    """A response's body, in parts, and the length of its JSON if raw tensors follow it. Outputs for client memory are put there.

    Numbers that JSON cannot carry (NaN, infinity) become null; ask for binary data to get them.

    Raises:
        InvalidInputError: If a BYTES output is no UTF-8 and was not asked for as raw bytes, or a client cut its memory short.
        ClientMemoryError: If an output does not fit where it should go.
    """
    outputs: list[dict[str, Any]] = []
    raw: list[bytes | memoryview] = []
    has_binary = False
    for at, is_binary, span in wanted:
        array = np.asarray(arrays[at], order="C")
        dtype = dtype_of(array)
        output: dict[str, Any] = {"name": model.signature.outputs.names[at], "datatype": dtype, "shape": array.shape}
        if span is not None:
            output["parameters"] = _put(array, dtype, span, output["name"])
        elif is_binary:
            part = encode_bytes(array) if dtype is DType.BYTES else array.tobytes()
            output["parameters"] = {"binary_data_size": len(part)}
            raw.append(part)
            has_binary = True
        else:
            output["data"] = _texts(output["name"], array) if dtype is DType.BYTES else array.reshape(-1)
        outputs.append(output)
    response: dict[str, Any] = {"model_name": model.name, "model_version": "1", "outputs": outputs}
    if request_id:
        response["id"] = request_id
    if story is not None:
        response["parameters"] = {"explain": story}
    head = orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY)
    return [head, *raw], len(head) if has_binary else None


def _put(array: Array, dtype: DType, span: Span, name: str) -> dict[str, Any]:
    """Copies an output to client memory; gives the parameters that say where it is, and how long."""
    raw = memoryview(encode_bytes(array)) if dtype is DType.BYTES else array.reshape(-1).view(np.uint8).data
    if len(raw) > span.num_bytes:
        raise ClientMemoryError(
            f"shared memory size specified with the request for output '{name}' ({span.num_bytes} bytes) should be at least "
            f"{len(raw)} bytes to hold the results"
        )
    span.region.write(raw, span.offset)
    place = {"shared_memory_region": span.region.name, "shared_memory_byte_size": len(raw)}
    return place | ({"shared_memory_offset": span.offset} if span.offset else {})


def _texts(name: str, array: Array) -> list[str]:
    try:
        return [bytes(item).decode() for item in array.reshape(-1).tolist()]
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"output {name!r} holds bytes that are no UTF-8; ask for binary data") from error
