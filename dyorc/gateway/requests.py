"""A request for inference, whatever protocol it came by, checked against its model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dyorc.arrays import Array
from dyorc.authoring.signature import Signature, StaticValue
from dyorc.errors import InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.outputs import WantedOutput

_RESERVED = frozenset(
    {"binary_data_output", "explain", "headers", "priority", "sequence_end", "sequence_id", "sequence_start", "timeout"}
)
_HIGHEST_PRIORITY = 2**31
_MAX_TIMEOUT_US = 2**50


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """A checked request.

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


def make_request(
    model: Model, request_id: str, given: Mapping[str, Array], parameters: Mapping[str, Any], outputs: Sequence[WantedOutput]
) -> InferRequest:
    """Checks what a client sent.

    Args:
        given: Its inputs, by name.
        parameters: The protocol's, and values of the model's inputs that are no tensors.

    Raises:
        InvalidInputError: If it does not fit the model; names what, what was expected, and what came.
    """
    signature = model.signature
    _refuse_unknown(given, signature)
    tensors, statics = signature.bind((), {**given, **_static_parameters(parameters, model)})
    if swapped := [spec.name for spec, value in zip(signature.inputs, tensors, strict=True) if not isinstance(value, np.ndarray)]:
        raise InvalidInputError(f"{signature.owner}: {swapped[0]!r} is a tensor; it belongs into 'inputs', not into 'parameters'")
    model.check(tensors, statics)
    return InferRequest(
        request_id=request_id,
        arrays=tensors,
        statics=statics,
        outputs=outputs,
        timeout_s=_timeout_s(parameters),
        priority=_priority(parameters),
        is_explained=_is_explained(parameters),
    )


def _refuse_unknown(given: Iterable[str], signature: Signature) -> None:
    names = signature.input_group.names
    for name in given:
        if name in names:
            continue
        if name in signature.names():
            raise InvalidInputError(f"{signature.owner}: {name!r} is no tensor; it belongs into 'parameters', not into 'inputs'")
        raise InvalidInputError(f"{signature.owner} has no input {name!r}; expected {list(names)}")


def _static_parameters(parameters: Mapping[str, Any], model: Model) -> dict[str, Any]:
    known = {spec.name for spec in model.signature.statics}
    given = {name: value for name, value in parameters.items() if name in known}
    for name, value in parameters.items():
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise InvalidInputError(
                f"parameter {name!r} is a number of {value.bit_length()} bits, expected at most 64, with its sign"
            )
    unknown = [name for name in parameters if name not in known and name not in _RESERVED and not name.startswith("triton_")]
    if unknown:
        raise InvalidInputError(f"model {model.name!r} has no parameter {unknown[0]!r}; expected one of {sorted(known)}")
    return given


def _timeout_s(parameters: Mapping[str, Any]) -> float | None:
    """The protocol's timeout, which is in microseconds; 0 stands for none."""
    timeout = parameters.get("timeout", 0)
    if not isinstance(timeout, int) or isinstance(timeout, bool) or not 0 <= timeout <= _MAX_TIMEOUT_US:
        raise InvalidInputError(f"parameter 'timeout' is {timeout!r}, expected microseconds, at most {_MAX_TIMEOUT_US}")
    return timeout / 1e6 if timeout else None


def _priority(parameters: Mapping[str, Any]) -> int:
    """The protocol counts from 1, the highest, downwards; 0, the default, comes after all of them."""
    priority = parameters.get("priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority < _HIGHEST_PRIORITY:
        raise InvalidInputError(f"parameter 'priority' is {priority!r}, expected a number from 0 to {_HIGHEST_PRIORITY - 1}")
    return _HIGHEST_PRIORITY - priority if priority else 0


def _is_explained(parameters: Mapping[str, Any]) -> bool:
    is_explained = parameters.get("explain", False)
    if not isinstance(is_explained, bool):
        raise InvalidInputError(f"parameter 'explain' is {is_explained!r}, expected a boolean")
    return is_explained
