"""Routes of the model repository extension: the index, and loading and unloading versions while the server runs."""

from typing import Any

import msgspec
from fastapi import FastAPI, Request

from dyorc.gateway.http.control_models import IndexEntry
from dyorc.gateway.http.middleware import tenant_of
from dyorc.gateway.http.openapi import json_body
from dyorc.gateway.http.request_bodies import read_json
from dyorc.gateway.service import InferenceService
from dyorc.protocol.api_paths import DEPLOYMENTS, REPOSITORY, REPOSITORY_INDEX
from dyorc.protocol.deployment_changes import Deploy, Rollback, Undeploy


class _IndexRequest(msgspec.Struct):
    ready: bool = False


class _Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target: str = ""
    version: str = ""
    group: str = ""
    share: float | None = None
    shadow: float = 0.0
    sticky: str | None = None
    rules: dict[str, Any] | None = None
    fresh: bool = False
    allow_incompatible: bool = False
    after_replay: int = 0
    max_differences: int = 0


class _LoadRequest(msgspec.Struct):
    parameters: _Load = _Load()


class _Unload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: str | None = None
    unload_dependents: bool = False


class _UnloadRequest(msgspec.Struct):
    parameters: _Unload = _Unload()


_BODY = json_body({"type": "object", "properties": {"ready": {"type": "boolean"}}})
_TEXT, _FLAG, _SHARE = {"type": "string"}, {"type": "boolean"}, {"type": "number", "minimum": 0, "maximum": 1}
_COUNT = {"type": "integer", "minimum": 0}
_TRAFFIC = {"share": _SHARE, "shadow": _SHARE, "sticky": _TEXT, "rules": {"type": "object"}}
_REPLAY = {"after_replay": _COUNT, "max_differences": _COUNT}
_LOAD = {"target": _TEXT, "version": _TEXT, "group": _TEXT, **_TRAFFIC, "fresh": _FLAG, "allow_incompatible": _FLAG, **_REPLAY}
_UNLOAD = {"version": _TEXT, "unload_dependents": _FLAG}
_ORDER = {
    "target": _TEXT, "model": _TEXT, "version": _TEXT, "group": _TEXT, **_TRAFFIC, "is_fresh": _FLAG,
    "is_incompatible_allowed": _FLAG, **_REPLAY,
}  # fmt: skip


def _parameters(properties: dict[str, Any]) -> dict[str, Any]:
    return json_body({"type": "object", "properties": {"parameters": {"type": "object", "properties": properties}}})


_LOAD_BODY, _UNLOAD_BODY = _parameters(_LOAD), _parameters(_UNLOAD)
_ORDER_BODY = json_body({"type": "object", "properties": _ORDER})


def add_repository_routes(app: FastAPI, service: InferenceService) -> None:
    """Adds ``/v2/repository[/{repository}]/(index|models/{name}/(load|unload))``, and ``/deployments[/{name}/rollback]``."""

    @app.post(REPOSITORY_INDEX, response_model=list[IndexEntry], openapi_extra=_BODY, tags=["repository"])
    @app.post(f"{REPOSITORY}/{{repository}}/index", response_model=list[IndexEntry], openapi_extra=_BODY, tags=["repository"])
    async def index(request: Request, repository: str = "") -> list[dict[str, Any]]:
        """All versions of all models and their states; with `ready`, only models that can be served now."""
        body = await read_json(request, _IndexRequest)
        return service.repository_index(tenant_of(request.scope), only_ready=body.ready)

    @app.post(f"{REPOSITORY}/models/{{name}}/load", openapi_extra=_LOAD_BODY, tags=["repository"])
    @app.post(f"{REPOSITORY}/{{repository}}/models/{{name}}/load", openapi_extra=_LOAD_BODY, tags=["repository"])
    async def load(request: Request, name: str, repository: str = "") -> dict[str, Any]:
        """Loads a version of a model, and answers once requests get it. Needs a key that may manage.

        The version is loaded from `target`, by default from where the one that is served came from, and gets a `share` of the
        requests that name no version; with all of them (1), it takes the place of the default.
        """
        deployments = service.managed(tenant_of(request.scope))
        parameters = (await read_json(request, _LoadRequest)).parameters
        change = Deploy(
            target=parameters.target, model=name, version=parameters.version, group=parameters.group, share=parameters.share,
            shadow=parameters.shadow, sticky=parameters.sticky, rules=parameters.rules,
            is_fresh=parameters.fresh, is_incompatible_allowed=parameters.allow_incompatible,
            after_replay=parameters.after_replay, max_differences=parameters.max_differences,
        )  # fmt: skip
        return await deployments.change(change)

    @app.post(f"{REPOSITORY}/models/{{name}}/unload", openapi_extra=_UNLOAD_BODY, tags=["repository"])
    @app.post(f"{REPOSITORY}/{{repository}}/models/{{name}}/unload", openapi_extra=_UNLOAD_BODY, tags=["repository"])
    async def unload(request: Request, name: str, repository: str = "") -> dict[str, Any]:
        """Takes a version of a model, or without one all of them, out of service. Earlier requests are answered. Needs a key that
        may manage."""
        deployments = service.managed(tenant_of(request.scope))
        parameters = (await read_json(request, _UnloadRequest)).parameters
        return await deployments.change(Undeploy(name, parameters.version))

    @app.get(DEPLOYMENTS, tags=["repository"])
    async def deployments(request: Request) -> dict[str, Any]:
        """All versions, where they came from, which programs they share, and what they did with requests. Needs a key that may
        manage."""
        report = service.managed(tenant_of(request.scope)).report()
        counts = await service.versions.counts()
        for name, history in report.items():
            for version, details in history["versions"].items():
                if (counted := counts.get(name, {}).get(version)) is not None:
                    details["traffic"] = counted.report()
        return report

    @app.post(DEPLOYMENTS, openapi_extra=_ORDER_BODY, tags=["repository"])
    async def deploy(request: Request) -> dict[str, Any]:
        """Loads a target; the same as `load`, for clients that do not know the model's name. Needs a key that may manage."""
        deployments = service.managed(tenant_of(request.scope))
        return await deployments.change(await read_json(request, Deploy))

    @app.post(f"{DEPLOYMENTS}/{{name}}/rollback", tags=["repository"])
    async def rollback(request: Request, name: str) -> dict[str, Any]:
        """Undoes the last change of a model's versions. Needs a key that may manage."""
        return await service.managed(tenant_of(request.scope)).change(Rollback(name))
