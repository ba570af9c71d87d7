"""Bodies of inference requests: the Open Inference Protocol v2 with its binary tensor and system shared memory extensions.

Source: kserve/open-inference-protocol, inference_rest.md; triton-inference-server/server, docs/protocol/extension_binary_data.md.
A body is JSON; with the binary extension, JSON of a given length and then the raw tensors in the order of the list that names
them. Responses, which are built in the same way, are made by `protocol_outputs`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from dyorc.arrays import Array
from dyorc.authoring.signature import Signature, StaticValue
from dyorc.errors import InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.protocol_inputs import Input, read_inputs
from dyorc.gateway.protocol_outputs import Output, WantedOutput, wanted_outputs
from dyorc.gateway.request_memory import RequestMemory

_RESERVED = frozenset(
    {"binary_data_output", "explain", "headers", "priority", "sequence_end", "sequence_id", "sequence_start", "timeout"}
)
_HIGHEST_PRIORITY = 2**31
_MAX_TIMEOUT_US = 2**50


class _Request(msgspec.Struct):
    inputs: list[Input]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[Output] | None = None


_decoder = msgspec.json.Decoder(_Request)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """A request, checked against its model.

    Attributes:
        arrays: Inputs in the order of the model's signature.
        outputs: Which outputs to send, and how.
        timeout_s: The caller's limit; None if it named none.
        priority: Larger goes first.
        is_explained: Whether the answer comes with the request's story.
    """

    request_id: str
    arrays: Sequence[Array]
    statics: tuple[StaticValue, ...]
    outputs: Sequence[WantedOutput]
    timeout_s: float | None
    priority: int
    is_explained: bool


def decode_request(body: bytes | memoryview, json_bytes: int | None, model: Model, memory: RequestMemory) -> InferRequest:
    """Reads a request's body.

    Args:
        json_bytes: Length of the JSON, from ``Inference-Header-Content-Length``; None if all of the body is JSON.
        memory: Where inputs in client memory are copied to, and which keeps regions open until outputs are in them.

    Raises:
        InvalidInputError: If it is malformed or does not fit the model; names what, what was expected, and what came.
        DyOrcError: As `read_inputs`, for inputs and outputs in client memory.
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
    given = read_inputs(request.inputs, view[json_bytes:], memory)
    signature = model.signature
    _refuse_unknown(given, signature)
    tensors, statics = signature.bind((), given | _static_parameters(request, model))
    if swapped := [spec.name for spec, value in zip(signature.inputs, tensors, strict=True) if not isinstance(value, np.ndarray)]:
        raise InvalidInputError(f"{signature.owner}: {swapped[0]!r} is a tensor; it belongs into 'inputs', not into 'parameters'")
    model.check(tensors, statics)
    is_binary = bool(request.parameters.get("binary_data_output", False))
    return InferRequest(
        request_id=request.id,
        arrays=tensors,
        statics=statics,
        outputs=wanted_outputs(request.outputs, is_binary, model, memory),
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
