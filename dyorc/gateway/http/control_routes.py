"""Everything but inference. These routes use FastAPI, because they are called rarely and it describes them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from dyorc.errors import AuthenticationError, DyOrcError, InvalidInputError
from dyorc.gateway.catalog import Model
from dyorc.gateway.codec.http_errors import error_body, http_error_body, retry_headers, status_of
from dyorc.gateway.http import control_models
from dyorc.gateway.http.authentication import key_in
from dyorc.gateway.http.client_memory_routes import add_cuda_memory_routes, add_system_memory_routes
from dyorc.gateway.http.live_routes import add_live_routes
from dyorc.gateway.http.metrics_server import add_metrics_route
from dyorc.gateway.http.middleware import allowed_methods, ids_of, prefix_of, tenant_of
from dyorc.gateway.http.openapi import describe, json_body
from dyorc.gateway.http.page_routes import add_docs_routes, add_ui_routes
from dyorc.gateway.http.record_routes import add_record_routes
from dyorc.gateway.http.repository_routes import add_repository_routes
from dyorc.gateway.http.request_bodies import read_json
from dyorc.gateway.http.run_description import with_runs
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.live_feed import LiveFeed
from dyorc.gateway.log_control import TRACE_SETTINGS, refuse_changes
from dyorc.gateway.metrics import Metrics
from dyorc.gateway.model_metadata import model_config, model_statistics, server_metadata
from dyorc.gateway.readiness import require_ready
from dyorc.gateway.request_records import Records
from dyorc.gateway.service import InferenceService
from dyorc.protocol import api_paths, media_types
from dyorc.version import version

_log = structlog.get_logger("dyorc.gateway")


def control_app(
    service: InferenceService, jobs: Jobs | None, live: LiveFeed | None, records: Records | None, metrics: Metrics | None
) -> FastAPI:
    """Returns the routes for metadata, health, statistics, settings and clients' shared memory, and the description of all
    routes."""
    # /docs is our own route. OpenTelemetry's current provider is there for programs; FastAPI would send it spans, too.
    no_spans: Any = {"telemetry": {"tracing": False, "metrics": False, "logs": False}}
    app = FastAPI(
        title="DyOrc", version=version(), docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, **no_spans
    )
    app.openapi = lambda: describe(app)
    add_error_handlers(app)
    add_server_routes(app, service, jobs)
    add_model_routes(app, service)
    add_repository_routes(app, service)
    add_settings_routes(app, service)
    add_scaling_routes(app, service)
    add_system_memory_routes(app, service.clients, service.server_view)
    add_cuda_memory_routes(app, service.clients, service.server_view)
    if metrics is not None:
        add_metrics_route(app, metrics)
    if live is not None:
        add_live_routes(app, service, live)
        add_ui_routes(app)
    if records is not None:
        add_record_routes(app, records)
    add_docs_routes(app)

    @app.get("/openapi.json", include_in_schema=False)
    async def description(request: Request) -> Response:
        prefix = prefix_of(request.scope)
        servers = {"servers": [{"url": prefix}]} if prefix else {}
        try:  # the description needs no key, but what is served is shown only to who may use it
            tenant = service.access.tenant_of(key_in(request.scope["headers"]))
        except AuthenticationError:
            return JSONResponse(describe(app) | servers)
        models = [model for name, model in sorted(service.catalog.models.items()) if tenant.may_use(name)]
        return JSONResponse(with_runs(describe(app), models) | servers)

    return app


def add_server_routes(app: FastAPI, service: InferenceService, jobs: Jobs | None) -> None:
    """Adds ``/``, ``/v2``, ``/v2/health/(live|ready)``, ``/v2/models`` and ``/status``."""
    if jobs is not None:
        service.server_view.add_report_part("jobs", jobs.report)

    def names(request: Request) -> list[str]:
        tenant = tenant_of(request.scope)
        return sorted(name for name in service.catalog.models if tenant.may_use(name))

    @app.get("/", response_model=control_models.Entrance, tags=["server"])
    async def entrance(request: Request) -> dict[str, Any]:
        """Names of all models, and where to read on; a browser gets the live page. Not part of the protocol."""
        prefix = prefix_of(request.scope)
        return {"models": names(request), "docs": f"{prefix}/docs", "status": f"{prefix}{api_paths.STATUS}"}

    @app.get(api_paths.SERVER, response_model=control_models.ServerMetadata, tags=["server"])
    async def metadata() -> dict[str, Any]:
        """Name, version and the protocol extensions that the server speaks."""
        return server_metadata(service.clients)

    @app.get(api_paths.LIVE, response_model=control_models.Live, tags=["health"])
    async def live() -> dict[str, bool]:
        """Whether the server answers at all."""
        return {"live": True}

    @app.get(api_paths.READY, response_model=control_models.Ready, tags=["health"])
    @app.get(api_paths.ALSO_READY, include_in_schema=False)
    async def ready() -> dict[str, bool]:
        """Whether every program has a replica; 503 until then."""
        require_ready(service.server_view.status)
        return {"ready": True}

    @app.get(api_paths.MODELS, response_model=control_models.ModelNames, tags=["models"])
    async def models(request: Request) -> dict[str, list[str]]:
        """Names of all models. Not part of the protocol."""
        return {"models": names(request)}

    @app.get(api_paths.STATUS, tags=["server"])
    async def status() -> dict[str, Any]:
        """The server's current state: replicas, queues and costs of each program, guesses, and jobs. Not part of the protocol."""
        return await service.server_view.report()


_MODEL = f"{api_paths.MODELS}/{{name}}"
_VERSION = f"{_MODEL}/versions/{{version}}"


def add_model_routes(app: FastAPI, service: InferenceService) -> None:
    """Adds ``/v2/models/stats`` and ``/v2/models/{name}[/versions/{version}][/(ready|config|stats)]``."""

    def find(request: Request, name: str, version: str | None) -> Model:
        return service.model(tenant_of(request.scope), name, version)

    async def statistics_of(models: Sequence[Model]) -> dict[str, Any]:
        counts = await service.server_view.statistics([model.tally for model in models])
        return {"model_stats": [model_statistics(model.key, tally) for model, tally in zip(models, counts, strict=True)]}

    # First, so that "stats" is not taken for the name of a model.
    @app.get(api_paths.STATISTICS, response_model=control_models.AllStatistics, tags=["models"])
    async def all_statistics(request: Request) -> dict[str, Any]:
        """Counts and times of all models."""
        tenant = tenant_of(request.scope)
        return await statistics_of(service.catalog.of_tenant(tenant.may_use))

    @app.get(_MODEL, response_model=control_models.ModelMetadata, tags=["models"])
    @app.get(_VERSION, response_model=control_models.ModelMetadata, tags=["models"])
    async def metadata(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
        """Inputs and outputs of a model. Shapes are those of one item."""
        return find(request, name, version).metadata(list(service.catalog.versions[name]))

    @app.get(f"{_MODEL}/{api_paths.MODEL_READY}", response_model=control_models.ModelReady, tags=["health"])
    @app.get(f"{_VERSION}/{api_paths.MODEL_READY}", response_model=control_models.ModelReady, tags=["health"])
    async def ready(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
        """Whether every program that the model may call has a replica; 503 until then."""
        require_ready(service.server_view.status, find(request, name, version))
        return {"name": name, "ready": True}

    @app.get(f"{_MODEL}/{api_paths.MODEL_CONFIG}", tags=["models"])
    @app.get(f"{_VERSION}/{api_paths.MODEL_CONFIG}", tags=["models"])
    async def config(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
        """The model's configuration, as Triton's `ModelConfig` in JSON."""
        return model_config(find(request, name, version))

    @app.get(f"{_MODEL}/{api_paths.MODEL_STATISTICS}", response_model=control_models.AllStatistics, tags=["models"])
    @app.get(f"{_VERSION}/{api_paths.MODEL_STATISTICS}", response_model=control_models.AllStatistics, tags=["models"])
    async def statistics(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
        """Counts and times of a model: a program's calls, a workflow's requests. Without a version, of each of its versions."""
        model = find(request, name, version)
        return await statistics_of([model] if version is not None else list(service.catalog.versions[name].values()))


_SETTINGS_BODY = json_body({"type": "object"})


def add_settings_routes(app: FastAPI, service: InferenceService) -> None:
    """Adds ``/v2[/models/{name}]/trace/setting`` and ``/v2/logging``."""

    @app.get("/v2/trace/setting", response_model=control_models.TraceSettings, tags=["settings"])
    @app.get(f"{_MODEL}/trace/setting", response_model=control_models.TraceSettings, tags=["settings"])
    @app.get(
        f"{_VERSION}/trace/setting",
        response_model=control_models.TraceSettings,
        tags=["settings"],
    )
    async def trace(request: Request, name: str | None = None, version: str | None = None) -> dict[str, Any]:
        """How requests are traced."""
        if name is not None:
            service.model(tenant_of(request.scope), name, version)
        return TRACE_SETTINGS

    @app.post("/v2/trace/setting", response_model=control_models.TraceSettings, openapi_extra=_SETTINGS_BODY, tags=["settings"])
    @app.post(
        f"{_MODEL}/trace/setting",
        response_model=control_models.TraceSettings,
        openapi_extra=_SETTINGS_BODY,
        tags=["settings"],
    )
    @app.post(
        f"{_VERSION}/trace/setting", response_model=control_models.TraceSettings, openapi_extra=_SETTINGS_BODY, tags=["settings"]
    )
    async def set_trace(request: Request, name: str | None = None, version: str | None = None) -> dict[str, Any]:
        """Changes nothing. Answers 501 if the request asks for a setting other than the current one."""
        if name is not None:
            service.model(tenant_of(request.scope), name, version)
        refuse_changes(await read_json(request, dict[str, Any]), TRACE_SETTINGS)
        return TRACE_SETTINGS

    @app.get("/v2/logging", response_model=control_models.LogSettings, tags=["settings"])
    async def logging() -> dict[str, Any]:
        """What is logged."""
        return service.server_view.logs.settings()

    @app.post("/v2/logging", response_model=control_models.LogSettings, openapi_extra=_SETTINGS_BODY, tags=["settings"])
    async def set_logging(request: Request) -> dict[str, Any]:
        """Changes what is logged, in all processes of the server; `log_requests` is which requests get a separate line: off,
        errors, slow or all. Needs a key that may manage."""
        tenant_of(request.scope).check_managing()
        await service.server_view.set_logs(await read_json(request, dict[str, Any]))
        return service.server_view.logs.settings()


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _ScaleRequest(msgspec.Struct, forbid_unknown_fields=True):
    num_warm: _Count | None = None
    num_parked: _Count | None = None


_NUMBER = {"type": "integer", "minimum": 0, "nullable": True}
_SCALE_BODY = json_body({"type": "object", "properties": {"num_warm": _NUMBER, "num_parked": _NUMBER}})


def add_scaling_routes(app: FastAPI, service: InferenceService) -> None:
    """Adds ``/scaling[/{program}]``."""

    @app.get(api_paths.SCALING, tags=["scaling"])
    async def scaling() -> dict[str, Any]:
        """How many replicas each program has, how many are wanted and why, and the last decisions."""
        return await service.server_view.scaling()

    @app.post(f"{api_paths.SCALING}/{{program}}", openapi_extra=_SCALE_BODY, tags=["scaling"])
    async def scale(request: Request, program: str) -> dict[str, Any]:
        """Fixes how many replicas of a program take batches (`num_warm`) and how many processes wait (`num_parked`). The forecast
        decides again on a number that is null or left out. Needs a key that may manage."""
        tenant_of(request.scope).check_managing()
        wanted = await read_json(request, _ScaleRequest)
        await service.server_view.scale(program, wanted.num_warm, wanted.num_parked)
        return await service.server_view.scaling()


def add_error_handlers(app: FastAPI) -> None:
    """Answers errors that routes raise, and requests that FastAPI refuses, in the form that all errors share."""

    async def on_dyorc(request: Request, error: Exception) -> Response:
        assert isinstance(error, DyOrcError)
        headers = {name.decode(): value.decode() for name, value in retry_headers(error)}
        return _answer(error_body(error, ids_of(request.scope)), status_of(error), headers)

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problems = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()[:3])
        return await on_dyorc(request, InvalidInputError(f"the request is malformed: {problems}"))

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
