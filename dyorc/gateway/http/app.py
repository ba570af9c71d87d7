"""The HTTP application: the inference route in front, everything else on FastAPI."""

from collections.abc import Awaitable, Callable
from importlib.metadata import version as package_version
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from dyorc.errors import DyOrcError, NotReadyError
from dyorc.gateway.catalog import Catalog, Model
from dyorc.gateway.client_memory import ClientMemory
from dyorc.gateway.http.client_memory_routes import add_cuda_memory_routes, add_system_memory_routes
from dyorc.gateway.http.errors import error_json, retry_headers, status_of
from dyorc.gateway.http.inference import InferenceRoute
from dyorc.gateway.service import InferenceService
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.orchestrator.status import ProgramState, StatusBoard

_log = structlog.get_logger("dyorc.gateway")


class Gateway:
    """The ASGI application.

    Args:
        service: Runs requests.
    """

    def __init__(self, service: InferenceService) -> None:
        self._inference = InferenceRoute(service)
        self._control = _control_app(service.catalog, service.orchestrator, service.clients)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        match = self._inference.match(scope["path"]) if scope["type"] == "http" else None
        if match is None:
            await self._control(scope, receive, send)
        elif scope["method"] == "POST":
            await self._inference(scope, receive, send, *match)
        else:
            await JSONResponse(_http_error("Method Not Allowed"), 405, {"Allow": "POST"})(scope, receive, send)


def _control_app(catalog: Catalog, orchestrator: Orchestrator, client_memory: ClientMemory) -> FastAPI:
    """Metadata, health, and what clients share."""
    status = orchestrator.status
    app = FastAPI(title="DyOrc", version=package_version("dyorc"), redoc_url=None)
    _add_error_handlers(app)
    add_system_memory_routes(app, client_memory)
    add_cuda_memory_routes(app, client_memory)
    extensions = ["binary_tensor_data", *(["system_shared_memory"] if client_memory.is_allowed else [])]

    @app.get("/v2")
    async def server_metadata() -> dict[str, Any]:
        """Name, version and the protocol extensions that the server speaks."""
        return {"name": "dyorc", "version": package_version("dyorc"), "extensions": extensions}

    @app.get("/v2/health/live")
    async def live() -> dict[str, bool]:
        """Whether the server answers at all."""
        return {"live": True}

    @app.get("/v2/health/ready")
    async def ready() -> dict[str, bool]:
        """Whether every program has a replica; 503 until then."""
        _require_ready(status, tuple(status.programs))
        return {"ready": True}

    @app.get("/status")
    async def report() -> dict[str, Any]:
        """What is going on: replicas, queues and costs of each program, and how guessing goes. Not part of the protocol."""
        return orchestrator.report()

    @app.get("/v2/models")
    async def models() -> dict[str, list[str]]:
        """Names of all models. Not part of the protocol."""
        return {"models": sorted(catalog.models)}

    @app.get("/v2/models/{name}")
    @app.get("/v2/models/{name}/versions/{version}")
    async def model_metadata(name: str, version: str | None = None) -> dict[str, Any]:
        """Inputs and outputs of a model."""
        return catalog.model(name, version).metadata()

    @app.get("/v2/models/{name}/ready")
    @app.get("/v2/models/{name}/versions/{version}/ready")
    async def model_ready(name: str, version: str | None = None) -> dict[str, Any]:
        """Whether every program that the model may call has a replica; 503 until then."""
        model: Model = catalog.model(name, version)
        _require_ready(status, tuple(program.name for program in model.programs))
        return {"name": name, "ready": True}

    return app


def _http_error(detail: Any) -> dict[str, Any]:
    """An error of HTTP's own: no such route, or not with this verb."""
    return {"error": str(detail), "code": "http", "retryable": False}


def _require_ready(status: StatusBoard, names: tuple[str, ...]) -> None:
    waiting = [status.programs[name] for name in names if status.programs[name].state is not ProgramState.READY]
    if waiting:
        text = "; ".join(f"program {one.name!r} is {one.state.value}{': ' + one.error if one.error else ''}" for one in waiting)
        raise NotReadyError(f"not ready: {text}")


def _add_error_handlers(app: FastAPI) -> None:
    async def on_dyorc(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, DyOrcError)
        headers = {name.decode(): value.decode() for name, value in retry_headers(error)}
        return JSONResponse(error_json(error), status_of(error), headers)

    async def on_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return JSONResponse(_http_error(error.detail), error.status_code, error.headers)

    async def on_crash(request: Request, error: Exception) -> JSONResponse:
        _log.error("request_crashed", path=request.url.path, exc_info=error)
        return JSONResponse(error_json(error), 500)

    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[JSONResponse]]] = {
        DyOrcError: on_dyorc,
        HTTPException: on_http,
        Exception: on_crash,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
