"""Bodies of inference requests: the Open Inference Protocol v2 with its binary tensor and system shared memory extensions.

Source: kserve/open-inference-protocol, inference_rest.md; triton-inference-server/server, docs/protocol/extension_binary_data.md.
A body is JSON; with the binary extension, JSON of a given length and then the raw tensors, in the order in which the JSON lists
them. Responses have the same form; `json_outputs` makes them.
"""

from typing import Any

import msgspec

from dyorc.errors import InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.codec.json_inputs import Input, read_inputs
from dyorc.gateway.codec.json_outputs import AnswerForm, Output, wanted_outputs
from dyorc.gateway.codec.raw_body import read_raw_input
from dyorc.gateway.infer_request import InferRequest, make_request
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.request_parameters import flag
from dyorc.protocol.parameter_names import BINARY_DATA_OUTPUT
from dyorc.protocol.wire_errors import reason_of_json


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    inputs: list[Input]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[Output] | None = None


class _RequestOfJob(_Request, forbid_unknown_fields=False):
    """The same in the JSON of a job, whose fields were checked when it came in."""


_decoder = msgspec.json.Decoder(_Request)
_job_decoder = msgspec.json.Decoder(_RequestOfJob)


def decode_request(
    body: bytes | memoryview,
    json_bytes: int | None,
    model: Model,
    memory: RequestMemory,
    form: AnswerForm = AnswerForm.AS_ASKED,
    *,
    is_job: bool = False,
) -> InferRequest:
    """Reads a request's body.

    Args:
        json_bytes: Length of the JSON, from ``Inference-Header-Content-Length``; None if all of the body is JSON, 0 if it is
            nothing but the bytes of the only input.
        memory: Receives copies of inputs in client memory, and keeps regions open until outputs have been written to them.
        form: What the answer can carry.
        is_job: Whether the JSON also has the fields of a job.

    Raises:
        InvalidInputError: If it is malformed or does not fit the model. The message says what is wrong, what was expected and
            what came.
        UnsupportedError: If it belongs to a sequence.
        DyOrcError: As in `read_inputs`, for inputs and outputs in client memory.
    """
    view = memoryview(body)
    if json_bytes == 0:
        wanted = wanted_outputs(None, True, model, memory, form)
        return make_request(model, "", read_raw_input(view, model), {}, wanted)
    if json_bytes is None:
        json_bytes = len(view)
    if not 0 <= json_bytes <= len(view):
        raise InvalidInputError(f"Inference-Header-Content-Length is {json_bytes}, the body has {len(view)} bytes")
    try:
        request = (_job_decoder if is_job else _decoder).decode(view[:json_bytes])
    except RecursionError as error:
        raise InvalidInputError("the request's JSON is nested too deeply") from error
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"the request's {reason_of_json(error)}{_advice(error, view, model)}") from error
    inputs = read_inputs(request.inputs, view[json_bytes:], memory)
    is_binary = flag(request.parameters, BINARY_DATA_OUTPUT, form is AnswerForm.BINARY)
    outputs = wanted_outputs(request.outputs, is_binary, model, memory, form)
    return make_request(model, request.id, inputs, request.parameters, outputs)


def _advice(error: Exception, body: memoryview, model: Model) -> str:
    """Returns where a request belongs that has a model's inputs for fields; nothing for other errors."""
    if "unknown field" not in str(error) or b'"inputs"' in bytes(body):
        return ""
    return f"; expected 'inputs', a list of tensors; inputs as fields go to /v2/models/{model.name}/generate"
