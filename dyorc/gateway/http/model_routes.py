"""Routes about single models: metadata, readiness, configuration, statistics."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request

from dyorc.gateway.catalog import Model
from dyorc.gateway.http.control_models import AllStatistics, ModelMetadata, ModelReady
from dyorc.gateway.http.front import tenant_of
from dyorc.gateway.model_config import model_config
from dyorc.gateway.model_statistics import model_statistics
from dyorc.gateway.readiness import require_ready
from dyorc.gateway.service import InferenceService
from dyorc.protocol.api_paths import MODEL_CONFIG, MODEL_READY, MODEL_STATISTICS, MODELS, STATISTICS

_MODEL = f"{MODELS}/{{name}}"
_VERSION = f"{_MODEL}/versions/{{version}}"


def add_model_routes(app: FastAPI, service: InferenceService) -> None:
    """Adds ``/v2/models/stats`` and ``/v2/models/{name}[/versions/{version}][/(ready|config|stats)]``."""

    def find(request: Request, name: str, version: str | None) -> Model:
        return service.model(tenant_of(request.scope), name, version)

    async def statistics_of(models: Sequence[Model]) -> dict[str, Any]:
        found = await service.server_view.statistics([model.tally for model in models])
        return {"model_stats": [model_statistics(model.key, one) for model, one in zip(models, found, strict=True)]}

    # First, so that "stats" is not taken for the name of a model.
    @app.get(STATISTICS, response_model=AllStatistics, tags=["models"])
    async def all_statistics(request: Request) -> dict[str, Any]:
        """Counts and times of all models."""
        tenant = tenant_of(request.scope)
        return await statistics_of(service.catalog.of_tenant(tenant.may_use))

    @app.get(_MODEL, response_model=ModelMetadata, tags=["models"])
    @app.get(_VERSION, response_model=ModelMetadata, tags=["models"])
    async def metadata(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
        """Inputs and outputs of a model. Shapes are those of one item."""
        return find(request, name, version).metadata(list(service.catalog.versions[name]))

    @app.get(f"{_MODEL}/{MODEL_READY}", response_model=ModelReady, tags=["health"])
    @app.get(f"{_VERSION}/{MODEL_READY}", response_model=ModelReady, tags=["health"])
    async def ready(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
        """Whether every program that the model may call has a replica; 503 until then."""
        require_ready(service.server_view.status, find(request, name, version))
        return {"name": name, "ready": True}

    @app.get(f"{_MODEL}/{MODEL_CONFIG}", tags=["models"])
    @app.get(f"{_VERSION}/{MODEL_CONFIG}", tags=["models"])
    async def config(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
        """The model's configuration, as Triton's `ModelConfig` in JSON."""
        return model_config(find(request, name, version))

    @app.get(f"{_MODEL}/{MODEL_STATISTICS}", response_model=AllStatistics, tags=["models"])
    @app.get(f"{_VERSION}/{MODEL_STATISTICS}", response_model=AllStatistics, tags=["models"])
    async def statistics(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
        """Counts and times of a model: a program's calls, a workflow's requests. Without a version, of each of its versions."""
        found = find(request, name, version)
        return await statistics_of([found] if version is not None else list(service.catalog.versions[name].values()))
