"""``POST /run/NAME`` in the description of the HTTP API: each model with the JSON Schemas of its parameters and its answer."""

from collections.abc import Iterable, Mapping
from typing import Any

from dyorc.authoring.signature import OutputKind, StaticSpec
from dyorc.authoring.spec import TensorSpec, ValueSpec
from dyorc.authoring.values import ContentKind
from dyorc.core.tensor import FLOATS, DType
from dyorc.gateway.catalog import Model
from dyorc.protocol import media_types
from dyorc.protocol.api_paths import run_path

_STATIC_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_ANY_FILE = "application/octet-stream"
_FORM = "multipart/form-data"


def with_runs(description: Mapping[str, Any], models: Iterable[Model]) -> dict[str, Any]:
    """Returns an API's description with a path for each of `models`."""
    paths = dict(description["paths"])
    components = dict(description["components"])
    schemas = components["schemas"] = dict(components["schemas"])
    for model in models:
        paths[run_path(model.name)] = {"post": _operation(model, schemas)}
    return {**description, "paths": paths, "components": components}


def parameters_schema(model: Model) -> dict[str, Any]:
    """Returns the JSON Schema of a request's JSON: an object with a key for each parameter. Its definitions are in ``$defs``."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    definitions: dict[str, Any] = {}
    for spec in model.signature.parameters:
        if isinstance(spec, StaticSpec):
            properties[spec.name] = {"type": _STATIC_TYPES[spec.type]}
            if (default := spec.described()["default"]) is None:
                required.append(spec.name)
            else:
                properties[spec.name]["default"] = default
        elif isinstance(spec, TensorSpec):
            properties[spec.name] = _schema(spec, definitions)
            if not isinstance(spec, ValueSpec) or spec.default is None:
                required.append(spec.name)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return schema | ({"$defs": definitions} if definitions else {})


def answer_schema(model: Model) -> dict[str, Any]:
    """Returns the JSON Schema of an answer, or of one part if the model answers in parts."""
    outputs = model.signature.outputs
    definitions: dict[str, Any] = {}
    schemas = [_schema(spec, definitions) for spec in outputs.tensors]
    match outputs.kind:
        case OutputKind.SINGLE:
            schema = schemas[0]
        case OutputKind.TUPLE:
            schema = {"type": "array", "prefixItems": schemas, "minItems": len(schemas), "maxItems": len(schemas)}
        case OutputKind.FIELDS:
            schema = {
                "type": "object",
                "properties": dict(zip(outputs.names, schemas, strict=True)),
                "required": list(outputs.names),
            }
    return schema | ({"$defs": definitions} if definitions else {})


def _schema(spec: TensorSpec, definitions: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a value or tensor; adds its definitions."""
    if isinstance(spec, ValueSpec):
        schema = dict(spec.schema)
        definitions |= schema.pop("$defs", {})
        return schema
    if spec.dtype is DType.BYTES:
        item: dict[str, Any] = {"type": "string"}
    elif spec.dtype is DType.BOOL:
        item = {"type": "boolean"}
    else:
        item = {"type": "number" if spec.dtype in FLOATS else "integer"}
    if spec.variadic_at is not None:
        return {"description": f"{spec.dtype} {spec.describe()}, nested lists"}
    for size in reversed(spec.wire_shape):
        item = {"type": "array", "items": item} | ({} if size == -1 else {"minItems": size, "maxItems": size})
    return item | {"description": f"{spec.dtype} {spec.describe()}"}


def _operation(model: Model, schemas: dict[str, Any]) -> dict[str, Any]:
    signature = model.signature
    parameters = _hoisted(parameters_schema(model), model.name, schemas)
    files = [spec for spec in signature.inputs if isinstance(spec, ValueSpec) and spec.is_file]
    content: dict[str, Any] = {media_types.JSON: {"schema": parameters}}
    if files:
        binary = {spec.name: {"type": "string", "format": "binary"} for spec in files}
        content[_FORM] = {"schema": {**parameters, "properties": parameters["properties"] | binary}}
    if len(files) == 1:
        kind = "image/*" if files[0].kind is ContentKind.IMAGE else _ANY_FILE
        content[kind] = {"schema": {"type": "string", "format": "binary"}}
    return {
        "tags": ["run"],
        "summary": f"Run {model.name}",
        "operationId": f"run_{model.name}",
        "requestBody": {"required": bool(parameters["required"]), "content": content},
        "responses": {"200": _answer(model, schemas)} | {"default": _ERROR},
    }


_ERROR = {"description": "An error", "content": {media_types.JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}


def _answer(model: Model, schemas: dict[str, Any]) -> dict[str, Any]:
    if model.signature.outputs.is_file and not model.is_streaming:
        return {"description": "The file", "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}
    schema = _hoisted(answer_schema(model), model.name, schemas)
    events = {media_types.EVENTS: {"schema": {"type": "string"}}}
    if model.is_streaming:
        return {
            "description": "All parts; one event for each as it is there, with `Accept: text/event-stream`",
            "content": {media_types.JSON: {"schema": {"type": "array", "items": schema}}} | events,
        }
    return {"description": "The answer", "content": {media_types.JSON: {"schema": schema}} | events}


def _hoisted(schema: dict[str, Any], prefix: str, schemas: dict[str, Any]) -> dict[str, Any]:
    """Returns a schema whose definitions are among the components of the description, under names of their own."""
    definitions = schema.pop("$defs", {})
    for name, definition in definitions.items():
        schemas[f"{prefix}.{name}"] = _renamed(definition, prefix)
    return _renamed(schema, prefix)


def _renamed(schema: Any, prefix: str) -> Any:
    if isinstance(schema, dict):
        return {
            key: value.replace("#/$defs/", f"#/components/schemas/{prefix}.")
            if key == "$ref" and isinstance(value, str)
            else _renamed(value, prefix)
            for key, value in schema.items()
        }
    return [_renamed(each, prefix) for each in schema] if isinstance(schema, list) else schema
