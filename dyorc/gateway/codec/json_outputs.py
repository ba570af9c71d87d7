"""Responses over HTTP: outputs as JSON, as raw bytes after it, or written to client memory."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec

from dyorc.core.arrays import Array, dtype_of
from dyorc.core.tensor import DType
from dyorc.errors import InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.codec.json_pieces import json_parts, short_json
from dyorc.gateway.copies import PIECE_ITEMS, copy_bytes
from dyorc.gateway.request_inputs import NO_JSON_FORM
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.request_outputs import WantedOutput, all_outputs, put_output, wanted_output
from dyorc.protocol.parameter_names import BINARY_DATA_SIZE, EXPLAIN
from dyorc.protocol.raw import encode_bytes


class AnswerForm(Enum):
    """What an answer can carry."""

    AS_ASKED = "JSON, raw bytes after it, or client memory"
    JSON = "only JSON, even if the request asks for raw bytes"
    BINARY = "JSON with raw bytes after it, unless asked otherwise"


class Output(msgspec.Struct, forbid_unknown_fields=True):
    """A requested output, as the request's JSON describes it."""

    name: str
    parameters: dict[str, Any] = {}


def wanted_outputs(
    requested: Sequence[Output] | None,
    by_default: bool,
    model: Model,
    memory: RequestMemory,
    form: AnswerForm = AnswerForm.AS_ASKED,
) -> list[WantedOutput]:
    """Returns the outputs to send.

    Args:
        requested: The outputs that the request names. By the protocol, None or an empty list means all outputs.
        by_default: Whether to send raw bytes for an output that does not say.
        form: What the answer can carry.

    Raises:
        InvalidInputError: If there is no such output, or it cannot be sent in this form.
        ClientError: See `RequestMemory.span`.
    """
    if not requested:
        wanted = all_outputs(model, is_binary=by_default)
    else:
        wanted = [wanted_output(output.name, output.parameters, by_default, model, memory) for output in requested]
    if form is not AnswerForm.AS_ASKED:
        wanted = [_in_stream(output, form, model) for output in wanted]
    tensors = model.signature.outputs.tensors
    for output in wanted:
        spec = tensors[output.at]
        if spec.dtype in NO_JSON_FORM and not output.is_binary and not output.num_classes and output.span is None:
            raise InvalidInputError(f"output {spec.name!r} is {spec.dtype}, which JSON cannot carry; ask for binary data")
    return wanted


def _in_stream(output: WantedOutput, form: AnswerForm, model: Model) -> WantedOutput:
    if output.span is not None:
        name = model.signature.outputs.names[output.at]
        raise InvalidInputError(f"output {name!r}: streams do not go to shared memory; the next part would overwrite this one")
    return output._replace(is_binary=False) if form is AnswerForm.JSON else output


def encode_response(
    model: Model,
    request_id: str,
    wanted: Sequence[WantedOutput],
    arrays: Sequence[Array],
    story: Sequence[dict[str, Any]] | None = None,
) -> tuple[list[bytes | memoryview], int | None]:
    """Returns a response's body in parts, and the length of its JSON if raw tensors follow. Writes outputs to client memory.

    Numbers that JSON cannot carry (NaN, infinity) become null; ask for binary data to get them.

    Raises:
        InvalidInputError: If a BYTES output that is not wanted as raw bytes is not UTF-8, or if a client truncated its memory.
        ClientMemoryError: If an output does not fit into its region.
    """
    outputs: list[dict[str, Any]] = []
    raw: list[bytes | memoryview] = []
    has_binary = False
    is_short = story is None
    for want in wanted:
        array = want.array(arrays)
        dtype = dtype_of(array)
        output: dict[str, Any] = {"name": model.signature.outputs.names[want.at], "datatype": dtype, "shape": array.shape}
        if want.span is not None:
            output["parameters"] = put_output(array, dtype, want.span, output["name"])
        elif want.is_binary:
            part = encode_bytes(array) if dtype is DType.BYTES else copy_bytes(array)
            output["parameters"] = {BINARY_DATA_SIZE: len(part)}
            raw.append(part)
            has_binary = True
        else:
            output["data"] = texts(output["name"], array) if dtype is DType.BYTES else array.reshape(-1)
            is_short = is_short and array.size <= PIECE_ITEMS
        outputs.append(output)
    response: dict[str, Any] = {"model_name": model.name, "model_version": model.version, "outputs": outputs}
    if request_id:
        response["id"] = request_id
    if story is not None:
        response["parameters"] = {EXPLAIN: story}
    head = [short_json(response)] if is_short else json_parts(response)
    return [*head, *raw], sum(map(len, head)) if has_binary else None


def texts(name: str, array: Array) -> list[str]:
    """Returns the elements of a BYTES output, for JSON.

    Raises:
        InvalidInputError: If one is not UTF-8.
    """
    try:
        return [bytes(item).decode() for item in array.reshape(-1).tolist()]
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"output {name!r} holds bytes that are not UTF-8; declare it `bytes`, or ask "
            "POST /v2/models/NAME/infer for binary data"
        ) from error
