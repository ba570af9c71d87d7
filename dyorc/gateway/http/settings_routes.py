"""Routes of the trace and logging extensions. Of traces they only show the settings: others use the server, too. What is logged
may be changed by whoever may manage the server."""

from typing import Any

import msgspec
from fastapi import FastAPI, Request

from dyorc.gateway.http.control_models import LogSettings, TraceSettings
from dyorc.gateway.http.front import tenant_of
from dyorc.gateway.http.json_bodies import read_json
from dyorc.gateway.http.openapi import json_body
from dyorc.gateway.server_settings import TRACE_SETTINGS, refuse_changes
from dyorc.gateway.service import InferenceService
from dyorc.protocol.api_paths import MODELS

_decoder = msgspec.json.Decoder(dict[str, Any])
_BODY = json_body({"type": "object"})


def add_settings_routes(app: FastAPI, service: InferenceService) -> None:
    """Adds ``/v2[/models/{name}]/trace/setting`` and ``/v2/logging``."""

    @app.get("/v2/trace/setting", response_model=TraceSettings, tags=["settings"])
    @app.get(f"{MODELS}/{{name}}/trace/setting", response_model=TraceSettings, tags=["settings"])
    @app.get(f"{MODELS}/{{name}}/versions/{{version}}/trace/setting", response_model=TraceSettings, tags=["settings"])
    async def trace(request: Request, name: str | None = None, version: str | None = None) -> dict[str, Any]:
        """How requests are traced."""
        if name is not None:
            service.model(tenant_of(request.scope), name, version)
        return TRACE_SETTINGS

    @app.post("/v2/trace/setting", response_model=TraceSettings, openapi_extra=_BODY, tags=["settings"])
    @app.post(f"{MODELS}/{{name}}/trace/setting", response_model=TraceSettings, openapi_extra=_BODY, tags=["settings"])
    @app.post(
        f"{MODELS}/{{name}}/versions/{{version}}/trace/setting",
        response_model=TraceSettings,
        openapi_extra=_BODY,
        tags=["settings"],
    )
    async def set_trace(request: Request, name: str | None = None, version: str | None = None) -> dict[str, Any]:
        """Changes nothing. Answers 501 if the request asks for a setting other than the current one."""
        if name is not None:
            service.model(tenant_of(request.scope), name, version)
        refuse_changes(await read_json(request, _decoder), TRACE_SETTINGS)
        return TRACE_SETTINGS

    @app.get("/v2/logging", response_model=LogSettings, tags=["settings"])
    async def logging() -> dict[str, Any]:
        """What is logged."""
        return service.server_view.logs.settings()

    @app.post("/v2/logging", response_model=LogSettings, openapi_extra=_BODY, tags=["settings"])
    async def set_logging(request: Request) -> dict[str, Any]:
        """Changes what is logged, in all processes of the server; `log_requests` is which requests get a line of their own: off,
        errors, slow or all. Needs a key that may manage."""
        tenant_of(request.scope).check_managing()
        await service.server_view.set_logs(await read_json(request, _decoder))
        return service.server_view.logs.settings()
