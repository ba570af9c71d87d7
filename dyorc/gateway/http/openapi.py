"""The description of the HTTP API (OpenAPI 3.1): FastAPI's routes, the inference routes (described by hand), and all errors."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from dyorc.core.tensor import DType
from dyorc.protocol import media_types
from dyorc.protocol.api_paths import GENERATE, GENERATE_STREAM, INFER, INFER_STREAM, MODELS, SERVER
from dyorc.protocol.header_names import API_KEY, JSON_LENGTH, RETRY_AFTER, TIMEOUT

_VERBS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")

_EVERYWHERE = {
    400: "the request is malformed, or does not fit the model",
    401: "no API key, or an unknown one",
    403: "the key's tenant may not do this",
    404: "no such route, model, version, region, job or record of a request",
    405: "the route does not accept this method",
    413: "the body is too large",
    500: "a program, the workflow's code, or the server failed",
    501: "the server or the model does not support this",
    503: "no room now, or not ready; `Retry-After` says when to come back",
}
_WORKING = {
    408: "the body came too slowly",
    409: "the request contradicts an earlier one, or comes too early",
    429: "the tenant has used up its share",
    499: "the client went away",
    504: "the deadline passed",
}
_RETRY_AFTER = {RETRY_AFTER.title(): {"schema": {"type": "integer"}, "description": "Seconds"}}


def json_body(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns what to give a FastAPI route as `openapi_extra` if it reads its JSON body itself."""
    return {"requestBody": {"required": False, "content": {media_types.JSON: {"schema": schema}}}}


def describe(app: FastAPI) -> dict[str, Any]:
    """Returns the description of an app's routes together with the inference routes. It is made once."""
    if app.openapi_schema is None:
        description = get_openapi(title=app.title, version=app.version, routes=app.routes, summary="Serves dynamic workflows")
        description["paths"] |= inference_paths()
        components = description.setdefault("components", {})
        components.setdefault("schemas", {}).update(SCHEMAS)
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "api_key": {"type": "apiKey", "in": "header", "name": API_KEY},
        }
        description["security"] = [{}, {"bearer": []}, {"api_key": []}]
        for path, operation in _operations(description):
            _add_errors(operation, _EVERYWHERE if path.startswith(SERVER) and "infer" not in operation.get("tags", ()) else _ALL)
        app.openapi_schema = description
    return app.openapi_schema


_ALL = _EVERYWHERE | _WORKING


def _operations(description: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in description["paths"].items():
        for verb in _VERBS:
            if verb in item:
                yield path, item[verb]


def _add_errors(operation: dict[str, Any], texts: dict[int, str]) -> None:
    """Gives every error the same form, including FastAPI's own for invalid requests."""
    responses = operation["responses"]
    responses.pop("422", None)
    for status, text in texts.items():
        answer: dict[str, Any] = {"description": text, "content": {media_types.JSON: {"schema": ERROR}}}
        if status in (429, 503):
            answer["headers"] = _RETRY_AFTER
        responses.setdefault(str(status), answer)


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
    paths: dict[str, Any] = {}
    for action, operation in _ACTIONS.items():
        for place, more in (("", []), ("/versions/{version}", _VERSION)):
            operation_of_path = operation | {
                "parameters": [*_PATH, *more, *operation["parameters"]],
                "responses": dict(operation["responses"]),
                "operationId": f"{action}{'_of_version' if more else ''}",
            }
            paths[f"{MODELS}/{{name}}{place}/{action}"] = {"post": operation_of_path}
    return paths
