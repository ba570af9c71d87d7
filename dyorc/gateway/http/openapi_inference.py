"""The inference routes in the description of the API. They are not FastAPI routes, so they are described by hand."""

from typing import Any

from dyorc.core.tensor import DType
from dyorc.protocol import media_types
from dyorc.protocol.api_paths import GENERATE, GENERATE_STREAM, INFER, INFER_STREAM, MODELS
from dyorc.protocol.header_names import JSON_LENGTH, TIMEOUT

ERROR = {"$ref": "#/components/schemas/Error"}


def _object(properties: dict[str, Any], required: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def _closed(properties: dict[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    """Returns an object without other properties."""
    return _object(properties, required, additionalProperties=False)


_TEXT = {"type": "string"}
_SHAPE = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_DATATYPE = {"type": "string", "enum": [dtype.value for dtype in DType]}
_PARAMETERS = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
    "description": "`timeout` (microseconds), `priority` (1: the highest), `explain`, `binary_data_output`, and the model's own",
}
_TENSOR = {"name": _TEXT, "shape": _SHAPE, "datatype": _DATATYPE, "parameters": {"type": "object"}}
_DATA = {"type": "array", "description": "Nested or flat; missing if the bytes follow the JSON"}
_BYTES = {"type": "string", "format": "binary"}

SCHEMAS: dict[str, Any] = {
    "Error": _closed(
        {"error": _TEXT, "code": _TEXT, "retryable": {"type": "boolean"}, "request_id": _TEXT, "trace_id": _TEXT},
        ("error", "code", "retryable"),
    ),
    "InferRequest": _closed(
        {
            "id": _TEXT,
            "parameters": _PARAMETERS,
            "inputs": {"type": "array", "items": _closed(_TENSOR | {"data": _DATA}, ("name", "shape", "datatype"))},
            "outputs": {"type": "array", "items": _closed({"name": _TEXT, "parameters": {"type": "object"}}, ("name",))},
        },
        ("inputs",),
    ),
    "InferResponse": _object(
        {
            "model_name": _TEXT,
            "model_version": _TEXT,
            "id": _TEXT,
            "parameters": {"type": "object"},
            "outputs": {"type": "array", "items": _object(_TENSOR | {"data": _DATA}, ("name", "shape", "datatype"))},
        },
        ("model_name", "model_version", "outputs"),
    ),
    "GenerateRequest": _object(
        {"id": _TEXT, "parameters": {"type": "object"}},
        description="Inputs and parameters of the model by name, as single values or lists",
    ),
    "GenerateResponse": _object(
        {"model_name": _TEXT, "model_version": _TEXT, "id": _TEXT},
        ("model_name", "model_version"),
        description="Outputs of the model by name; outputs of one element are single values",
    ),
}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _header(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


_LENGTH = {"type": "integer", "minimum": 0}
_JSON_LENGTH = _header(JSON_LENGTH.title(), _LENGTH, "Length of the JSON; 0: the body is the only input's bytes")
_COMMON = [
    _header(TIMEOUT.title(), {"type": "number", "minimum": 0}, "Seconds; decimal, without exponent"),
    _header("Content-Encoding", {"type": "string", "enum": ["gzip", "deflate", "identity"]}, "How the body is compressed"),
]
_ACCEPT_ENCODING = _header("Accept-Encoding", _TEXT, "gzip, deflate, identity; with or without q-values")
_PATH = [{"name": "name", "in": "path", "required": True, "schema": _TEXT, "description": "The model's"}]
_VERSION = [{"name": "version", "in": "path", "required": True, "schema": _TEXT, "description": "Always 1"}]

_INFER_BODY = {media_types.JSON: {"schema": _ref("InferRequest")}, media_types.TENSORS: {"schema": _BYTES}}
_GENERATE_BODY = {media_types.JSON: {"schema": _ref("GenerateRequest")}}
_ANSWER_HEADERS = {
    "Content-Encoding": {"schema": _TEXT},
    "Vary": {"schema": _TEXT},
}
_INFER_ANSWER = {
    "description": "The outputs",
    "headers": _ANSWER_HEADERS | {JSON_LENGTH.title(): {"schema": _LENGTH}},
    "content": {media_types.JSON: {"schema": _ref("InferResponse")}, media_types.TENSORS: {"schema": _BYTES}},
}
_EVENTS = {f"{media_types.EVENTS}; charset=utf-8": {"schema": _TEXT}}


def _operation(summary: str, parameters: list[Any], body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "tags": ["infer"],
        "summary": summary,
        "parameters": parameters,
        "requestBody": {"required": True, "content": body},
        "responses": {"200": answer},
    }


_ACTIONS = {
    INFER: _operation("Run a model", [*_COMMON, _JSON_LENGTH, _ACCEPT_ENCODING], _INFER_BODY, _INFER_ANSWER),
    INFER_STREAM: _operation(
        "Run a model that answers in parts",
        [*_COMMON, _JSON_LENGTH],
        _INFER_BODY,
        {
            "description": "Events whose data is one part as JSON, or at the end an error; frames if the client accepts them",
            "content": _EVENTS | {media_types.FRAMES: {"schema": _BYTES}},
        },
    ),
    GENERATE: _operation(
        "Run a model on plain JSON values",
        [*_COMMON, _ACCEPT_ENCODING],
        _GENERATE_BODY,
        {
            "description": "The outputs",
            "headers": _ANSWER_HEADERS,
            "content": {media_types.JSON: {"schema": _ref("GenerateResponse")}},
        },
    ),
    GENERATE_STREAM: _operation(
        "Run a model that answers in parts on plain JSON values",
        _COMMON,
        _GENERATE_BODY,
        {"description": "The data of each event is one part, or at the end an error", "content": _EVENTS},
    ),
}


def inference_paths() -> dict[str, Any]:
    """Returns the paths of all inference routes."""
    paths: dict[str, Any] = {}
    for action, operation in _ACTIONS.items():
        for place, more in (("", []), ("/versions/{version}", _VERSION)):
            found = operation | {
                "parameters": [*_PATH, *more, *operation["parameters"]],
                "responses": dict(operation["responses"]),
                "operationId": f"{action}{'_of_version' if more else ''}",
            }
            paths[f"{MODELS}/{{name}}{place}/{action}"] = {"post": found}
    return paths
