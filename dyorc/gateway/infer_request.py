"""A request for inference over any protocol, checked against its model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dyorc.authoring.signature import Signature, StaticValue, expectation
from dyorc.core.arrays import Array
from dyorc.core.reserved_names import is_of_requests
from dyorc.errors import InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.request_outputs import WantedOutput
from dyorc.gateway.request_parameters import check_parameters, flag, priority_of, timeout_s_of
from dyorc.protocol.parameter_names import EXPLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """A checked request.

    Attributes:
        arrays: Inputs in the order of the model's signature.
        outputs: Which outputs to send, and how.
        timeout_s: The caller's limit; None if it set none.
        priority: 1 is the highest; 0 means none, and comes last.
        is_explained: Whether the answer comes with the request's trace.
    """

    request_id: str
    arrays: Sequence[Array]
    statics: tuple[StaticValue, ...]
    outputs: Sequence[WantedOutput]
    timeout_s: float | None
    priority: int
    is_explained: bool


def make_request(
    model: Model, request_id: str, inputs: Mapping[str, Array], parameters: Mapping[str, Any], outputs: Sequence[WantedOutput]
) -> InferRequest:
    """Checks what a client sent.

    Args:
        inputs: By name.
        parameters: The protocol's, and values of the model's static parameters.

    Raises:
        InvalidInputError: If it does not fit the model; says what was expected, and what came.
        UnsupportedError: If the request belongs to a sequence.
    """
    signature = model.signature
    _refuse_unknown(inputs, signature)
    tensors, statics = signature.bind((), {**inputs, **_static_parameters(parameters, model)})
    if swapped := [spec.name for spec, value in zip(signature.inputs, tensors, strict=True) if not isinstance(value, np.ndarray)]:
        raise InvalidInputError(f"{signature.owner}: {swapped[0]!r} is a tensor; it belongs in 'inputs', not in 'parameters'")
    model.check(tensors, statics)
    return InferRequest(
        request_id=request_id,
        arrays=tensors,
        statics=statics,
        outputs=outputs,
        timeout_s=timeout_s_of(parameters),
        priority=priority_of(parameters),
        is_explained=flag(parameters, EXPLAIN),
    )


def _refuse_unknown(inputs: Iterable[str], signature: Signature) -> None:
    names = signature.input_group.names
    for name in inputs:
        if name in names:
            continue
        if name in signature.names():
            raise InvalidInputError(f"{signature.owner}: {name!r} is not a tensor; it belongs in 'parameters', not in 'inputs'")
        raise InvalidInputError(f"{signature.owner} has no input {name!r}; {expectation(signature.inputs)}")


def _static_parameters(parameters: Mapping[str, Any], model: Model) -> dict[str, Any]:
    known = {spec.name for spec in model.signature.statics}
    check_parameters(parameters, {spec.name for spec in model.signature.statics if spec.type is float})
    values = {name: value for name, value in parameters.items() if name in known}
    unknown = [name for name in parameters if name not in known and not is_of_requests(name)]
    if unknown:
        inputs = f", or an input, of {list(names)}" if (names := model.signature.input_group.names) else ""
        raise InvalidInputError(f"model {model.name!r} has no parameter {unknown[0]!r}; expected one of {sorted(known)}{inputs}")
    return values
