"""Routes of the model repository extension. The models are those that the server was started with; none can be loaded or
unloaded."""

from typing import Any

import msgspec
from fastapi import FastAPI, Request

from dyorc.errors import UnsupportedError
from dyorc.gateway.http.control_models import IndexEntry
from dyorc.gateway.http.front import tenant_of
from dyorc.gateway.http.json_bodies import read_json
from dyorc.gateway.http.openapi import json_body
from dyorc.gateway.readiness import repository_index
from dyorc.gateway.service import InferenceService
from dyorc.protocol.routes import REPOSITORY, REPOSITORY_INDEX


class _IndexRequest(msgspec.Struct):
    ready: bool = False


_decoder = msgspec.json.Decoder(_IndexRequest)
_BODY = json_body({"type": "object", "properties": {"ready": {"type": "boolean"}}})


def add_repository_routes(app: FastAPI, service: InferenceService) -> None:
    """Adds ``/v2/repository[/{repository}]/(index|models/{name}/(load|unload))``."""

    @app.post(REPOSITORY_INDEX, response_model=list[IndexEntry], openapi_extra=_BODY, tags=["repository"])
    @app.post(f"{REPOSITORY}/{{repository}}/index", response_model=list[IndexEntry], openapi_extra=_BODY, tags=["repository"])
    async def index(request: Request, repository: str = "") -> list[dict[str, Any]]:
        """All models and their states; with `ready`, only those that can be served now."""
        asked = await read_json(request, _decoder)
        status = service.whole.status
        return repository_index(service.catalog, status, tenant_of(request.scope), only_ready=asked.ready)

    @app.post(f"{REPOSITORY}/models/{{name}}/load", tags=["repository"])
    @app.post(f"{REPOSITORY}/{{repository}}/models/{{name}}/load", tags=["repository"])
    @app.post(f"{REPOSITORY}/models/{{name}}/unload", tags=["repository"])
    @app.post(f"{REPOSITORY}/{{repository}}/models/{{name}}/unload", tags=["repository"])
    async def control(request: Request, name: str, repository: str = "") -> None:
        """Refuses: models cannot be loaded or unloaded."""
        service.model(tenant_of(request.scope), name)
        raise UnsupportedError(
            "explicit model load / unload is not allowed: the models are those that the server was started with"
        )
