"""Workflows as tools: the JSON Schemas of their arguments and answers, as the Model Context Protocol wants them. Without I/O."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from dyorc.authoring.signature import OutputKind
from dyorc.authoring.spec import ValueSpec
from dyorc.core.nested_values import odd_numbers
from dyorc.errors import InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.http.run_description import answer_schema, parameters_schema


class ToolSchemas(NamedTuple):
    """The JSON Schemas of a tool. The answer's is None where it is a file, which is no structured content."""

    arguments: dict[str, Any]
    answer: dict[str, Any] | None


def encode_arguments(arguments: Mapping[str, Any]) -> bytes:
    """Returns the arguments of a call as JSON.

    Raises:
        InvalidInputError: If one is NaN or infinity, which the SDK reads although JSON does not have them; names the
            argument. They would become null.
    """
    for name, value in arguments.items():
        for number in odd_numbers(value):
            raise InvalidInputError(f"argument {name!r} holds {number}, expected a number that JSON has")
    return msgspec.json.encode(arguments)


def tool_schemas(model: Model) -> ToolSchemas:
    """Returns the schemas of a workflow."""
    arguments = parameters_schema(model)
    if model.signature.outputs.is_file:
        return ToolSchemas(arguments, None)
    answer = answer_schema(model)
    if not is_wrapped(model):
        return ToolSchemas(arguments, answer)
    definitions = answer.pop("$defs", None)
    value = {"type": "array", "items": answer} if model.is_streaming else answer
    wrapped = {"type": "object", "properties": {"result": value}, "required": ["result"]}
    return ToolSchemas(arguments, wrapped if definitions is None else wrapped | {"$defs": definitions})


def is_wrapped(model: Model) -> bool:
    """Returns whether the structured content is an object with the answer as its ``result``: the protocol wants an object."""
    outputs = model.signature.outputs
    spec = outputs.tensors[0] if outputs.kind is OutputKind.SINGLE else None
    is_object = outputs.kind is OutputKind.FIELDS or (isinstance(spec, ValueSpec) and spec.schema.get("type") == "object")
    return model.is_streaming or not is_object
