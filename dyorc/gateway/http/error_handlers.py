"""Errors of the FastAPI routes, in the form that all errors share."""

from collections.abc import Awaitable, Callable

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from dyorc.errors import DyOrcError, InvalidInputError
from dyorc.gateway.codec.http_errors import error_body, http_error_body, retry_headers, status_of
from dyorc.gateway.http.front import allowed_methods, ids_of
from dyorc.protocol import media_types

_log = structlog.get_logger("dyorc.gateway")


def add_error_handlers(app: FastAPI) -> None:
    """Answers whatever the routes raise, and whatever FastAPI finds wrong with a request."""

    async def on_dyorc(request: Request, error: Exception) -> Response:
        assert isinstance(error, DyOrcError)
        headers = {name.decode(): value.decode() for name, value in retry_headers(error)}
        return _answer(error_body(error, ids_of(request.scope)), status_of(error), headers)

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        found = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
        return await on_dyorc(request, InvalidInputError(f"the request is malformed: {found}"))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(allowed_methods(app.routes, request.scope))
        return _answer(http_error_body(str(error.detail), ids_of(request.scope)), error.status_code, headers)

    async def on_crash(request: Request, error: Exception) -> Response:
        ids = ids_of(request.scope)
        _log.error("request_crashed", path=request.url.path, exc_info=error, **ids.facts)
        return _answer(error_body(error, ids), 500)

    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
        DyOrcError: on_dyorc,
        RequestValidationError: on_invalid,
        HTTPException: on_http,
        Exception: on_crash,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _answer(body: bytes, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_types.JSON)
