# pyright: basic, reportAttributeAccessIssue=false
# Generated messages have no types.
"""`ModelInferRequest` to `InferRequest`: the model's inputs as arrays, from raw bytes, lists of numbers or client memory."""

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from dyorc.errors import InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.grpc.contents import values_of
from dyorc.gateway.grpc.inputs import GrpcInputs
from dyorc.gateway.grpc.wire import split
from dyorc.gateway.outputs import WantedOutput, all_outputs, wanted_output
from dyorc.gateway.parameters import flag
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.requests import InferRequest, make_request
from dyorc.protocol.inference_pb2 import ModelInferRequest
from dyorc.protocol.parameter_names import EMPTY_FINAL
from dyorc.system.thread_offload import INLINE_BYTES, ThreadOffload

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
    found: Any, raws: Sequence[memoryview], model: Model, memory: RequestMemory, off_loop: ThreadOffload
) -> tuple[InferRequest, bool]:
    """Checks a request.

    Args:
        found: A `ModelInferRequest` whose raw bytes are in `raws`.
        memory: Takes inputs that are large or in client memory.
        off_loop: Copies and converts inputs if they are large together.

    Returns:
        The request, and whether a streamed answer ends with an empty last response.

    Raises:
        InvalidInputError: If it is malformed or does not fit the model. The message says what is wrong, what was expected and
            what came.
        UnsupportedError: If it belongs to a sequence.
        DyOrcError: See `RequestMemory.room`, `span` and `fetch`.
    """
    _check_number(found.inputs, "inputs")
    inputs = GrpcInputs(found.inputs, raws, memory)
    if inputs.num_bytes > INLINE_BYTES:
        given = await off_loop.run(inputs.arrays)
    else:
        given = inputs.arrays()
    parameters = values_of(found.parameters) if found.parameters else {}
    has_empty_final = flag(parameters, EMPTY_FINAL)
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
