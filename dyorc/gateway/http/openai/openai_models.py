"""Which of the served models take part in OpenAI's API: the ones with a parameter of a type of `dyorc.openai`."""

from collections.abc import Collection
from typing import Any, NamedTuple

from dyorc.authoring.signature import OutputKind, StaticSpec
from dyorc.authoring.spec import TensorSpec, ValueSpec
from dyorc.core.arrays import Array, element_of_bytes
from dyorc.gateway.catalog import Model
from dyorc.openai import ROLE

CHAT, COMPLETION, EMBEDDING, TOKEN_EMBEDDING, RERANK = "chat", "completion", "embedding", "token_embedding", "rerank"


class Part(NamedTuple):
    """How a model takes part.

    Attributes:
        role: Which requests it takes.
        parameter: As which parameter.
        fields: Names of the fields that the parameter's type declares.
    """

    role: str
    parameter: str
    fields: Collection[str]


def part_of(model: Model) -> Part | None:
    """Returns how a model takes part.

    None if it does not: it has no parameter of such a type, others without a default, or several outputs.
    """
    part: Part | None = None
    for spec in model.signature.parameters:
        role = spec.schema.get(ROLE) if isinstance(spec, ValueSpec) else None
        if isinstance(spec, ValueSpec) and role is not None and part is None:
            part = Part(role, spec.name, spec.schema.get("properties", ()))
        elif isinstance(spec, StaticSpec):
            if spec.described()["default"] is None:
                return None
        elif not isinstance(spec, ValueSpec) or spec.default is None:
            return None
    return part if model.signature.outputs.kind is OutputKind.SINGLE else None


def request_array(request: Any) -> Array:
    """Returns a request as the input of a workflow."""
    return element_of_bytes(request.model_dump_json(exclude_unset=True).encode())


def output_of(model: Model) -> TensorSpec:
    """Returns the only output of a model that takes part."""
    return model.signature.outputs.tensors[0]
