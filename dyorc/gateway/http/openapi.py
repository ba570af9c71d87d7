"""The description of the HTTP API (OpenAPI 3.1): FastAPI's routes, the inference routes, and all errors."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from dyorc.gateway.http.openapi_inference import ERROR, SCHEMAS, inference_paths
from dyorc.protocol import media_types
from dyorc.protocol.api_paths import SERVER
from dyorc.protocol.header_names import API_KEY, RETRY_AFTER

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
        found = get_openapi(title=app.title, version=app.version, routes=app.routes, summary="Serves dynamic workflows")
        found["paths"] |= inference_paths()
        components = found.setdefault("components", {})
        components.setdefault("schemas", {}).update(SCHEMAS)
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "api_key": {"type": "apiKey", "in": "header", "name": API_KEY},
        }
        found["security"] = [{}, {"bearer": []}, {"api_key": []}]
        for path, operation in _operations(found):
            _add_errors(operation, _EVERYWHERE if path.startswith(SERVER) and "infer" not in operation.get("tags", ()) else _ALL)
        app.openapi_schema = found
    return app.openapi_schema


_ALL = _EVERYWHERE | _WORKING


def _operations(found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in found["paths"].items():
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
