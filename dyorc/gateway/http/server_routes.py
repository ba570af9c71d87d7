"""Routes about the server as a whole: what it is, whether it is alive, and what it is doing."""

from typing import Any

from fastapi import FastAPI, Request

from dyorc.gateway.http.control_models import Entrance, Live, ModelNames, Ready, ServerMetadata
from dyorc.gateway.http.front import tenant_of
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.readiness import require_ready
from dyorc.gateway.server_metadata import server_metadata
from dyorc.gateway.service import InferenceService
from dyorc.protocol.api_paths import LIVE, MODELS, READY, SERVER, STATUS


def add_server_routes(app: FastAPI, service: InferenceService, jobs: Jobs | None) -> None:
    """Adds ``/``, ``/v2``, ``/v2/health/(live|ready)``, ``/v2/models`` and ``/status``."""
    if jobs is not None:
        service.server_view.also_report("jobs", jobs.report)

    def names(request: Request) -> list[str]:
        tenant = tenant_of(request.scope)
        return sorted(name for name in service.catalog.models if tenant.may_use(name))

    @app.get("/", response_model=Entrance, tags=["server"])
    async def entrance(request: Request) -> dict[str, Any]:
        """Names of all models, and where to read on; a browser gets the live page. Not part of the protocol."""
        return {"models": names(request), "docs": "/docs", "status": STATUS}

    @app.get(SERVER, response_model=ServerMetadata, tags=["server"])
    async def metadata() -> dict[str, Any]:
        """Name, version and the protocol extensions that the server speaks."""
        return server_metadata(service.clients)

    @app.get(LIVE, response_model=Live, tags=["health"])
    async def live() -> dict[str, bool]:
        """Whether the server answers at all."""
        return {"live": True}

    @app.get(READY, response_model=Ready, tags=["health"])
    async def ready() -> dict[str, bool]:
        """Whether every program has a replica; 503 until then."""
        require_ready(service.server_view.status)
        return {"ready": True}

    @app.get(MODELS, response_model=ModelNames, tags=["models"])
    async def models(request: Request) -> dict[str, list[str]]:
        """Names of all models. Not part of the protocol."""
        return {"models": names(request)}

    @app.get(STATUS, tags=["server"])
    async def status() -> dict[str, Any]:
        """The server's current state: replicas, queues and costs of each program, guesses, and jobs. Not part of the protocol."""
        return await service.server_view.report()
