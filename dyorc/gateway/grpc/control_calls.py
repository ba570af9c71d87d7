# pyright: basic, reportAttributeAccessIssue=false
# Generated messages have no types.
"""The calls about the server, its models and clients' memory: everything but inference.

They say in protobuf what HTTP says in JSON, as functions of a message and a tenant. A function that asks other processes of the
server is asynchronous.
"""

from typing import Any

import msgspec
from google.protobuf.json_format import ParseDict

from dyorc.errors import ConflictError, InvalidInputError, UnknownModelError, UnsupportedError
from dyorc.gateway.catalog import Model
from dyorc.gateway.client_device_memory import DeviceRegion, check_handle
from dyorc.gateway.client_memory import ClientMemory, MemoryRegion
from dyorc.gateway.log_control import TRACE_SETTINGS, refuse_changes
from dyorc.gateway.model_metadata import model_config, model_statistics, server_metadata
from dyorc.gateway.readiness import is_ready
from dyorc.gateway.server_view import ServerView
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import Tenant
from dyorc.protocol import inference_pb2 as pb
from dyorc.protocol.deployment_changes import Deploy, Undeploy

_FIELDS_OF_PARAMETERS = {"fresh": "is_fresh", "allow_incompatible": "is_incompatible_allowed"}


class ControlCalls:
    """Answers the calls about the server and its models.

    Args:
        service: The server's models and what runs them.
    """

    def __init__(self, service: InferenceService) -> None:
        self._service = service
        self._status = service.server_view.status

    def server_live(self, request: Any, tenant: Tenant) -> Any:
        return pb.ServerLiveResponse(live=True)

    def server_ready(self, request: Any, tenant: Tenant) -> Any:
        return pb.ServerReadyResponse(ready=self._status.is_ready)

    def model_ready(self, request: Any, tenant: Tenant) -> Any:
        """Returns whether a model is ready. An unknown model is not, as with Triton."""
        try:
            model = self._service.model(tenant, request.name, request.version or None)
        except UnknownModelError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=is_ready(self._status, model))

    def server_metadata(self, request: Any, tenant: Tenant) -> Any:
        return ParseDict(server_metadata(self._service.clients), pb.ServerMetadataResponse())

    def model_metadata(self, request: Any, tenant: Tenant) -> Any:
        versions = list(self._service.catalog.versions.get(request.name, ()))
        return ParseDict(self._model(request, tenant).metadata(versions), pb.ModelMetadataResponse())

    def model_config(self, request: Any, tenant: Tenant) -> Any:
        return ParseDict({"config": model_config(self._model(request, tenant))}, pb.ModelConfigResponse())

    async def model_statistics(self, request: Any, tenant: Tenant) -> Any:
        """Returns statistics of one model, or of all that the tenant may use."""
        if request.name:
            named_model = self._model(request, tenant)
            models = [named_model] if request.version else list(self._service.catalog.versions[named_model.name].values())
        else:
            models = self._service.catalog.of_tenant(tenant.may_use)
        counts = await self._service.server_view.statistics([model.tally for model in models])
        stats = [model_statistics(model.key, tally) for model, tally in zip(models, counts, strict=True)]
        return ParseDict({"model_stats": stats}, pb.ModelStatisticsResponse())

    def repository_index(self, request: Any, tenant: Tenant) -> Any:
        """Returns the models that the tenant may use. Repositories have no names here."""
        if request.repository_name:
            raise UnsupportedError(f"unknown repository {request.repository_name!r}; leave repository_name empty")
        index = self._service.repository_index(tenant, only_ready=request.ready)
        return ParseDict({"models": index}, pb.RepositoryIndexResponse())

    async def repository_model_load(self, request: Any, tenant: Tenant) -> Any:
        """Loads a version of a model. The parameters are those of HTTP; a share comes as text."""
        deployments = self._service.managed(tenant)
        parameters = {_FIELDS_OF_PARAMETERS.get(name, name): _value_of(value) for name, value in request.parameters.items()}
        try:
            change = msgspec.convert({**parameters, "model": request.model_name}, Deploy, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidInputError(f"the parameters do not say what to load: {error}") from error
        await deployments.change(change)
        return pb.RepositoryModelLoadResponse()

    async def repository_model_unload(self, request: Any, tenant: Tenant) -> Any:
        """Takes the version that the parameters name, or the whole model, out of service."""
        deployments = self._service.managed(tenant)
        parameters = {name: _value_of(value) for name, value in request.parameters.items()}
        await deployments.change(Undeploy(request.model_name, parameters.get("version")))
        return pb.RepositoryModelUnloadResponse()

    def trace_setting(self, request: Any, tenant: Tenant) -> Any:
        """Returns the settings of one model or of all. They can be set only to their current values, or reset."""
        if request.model_name:
            self._service.model(tenant, request.model_name)
        changes = {name: list(setting.value) for name, setting in request.settings.items() if setting.value}
        settings = {name: value if isinstance(value, list) else [value] for name, value in TRACE_SETTINGS.items()}
        refuse_changes(changes, settings)
        return ParseDict({"settings": {name: {"value": value} for name, value in settings.items()}}, pb.TraceSettingResponse())

    async def log_settings(self, request: Any, tenant: Tenant) -> Any:
        """Changes the named settings, and returns all. A change needs a key that may manage."""
        changes = {name: _value_of(setting) for name, setting in request.settings.items()}
        server_view = self._service.server_view
        if changes:
            tenant.check_managing()
            await server_view.set_logs(changes)
        kinds = {bool: "bool_param", int: "uint32_param", str: "string_param"}
        settings = {name: {kinds[type(value)]: value} for name, value in server_view.logs.settings().items()}
        return ParseDict({"settings": settings}, pb.LogSettingsResponse())

    def _model(self, request: Any, tenant: Tenant) -> Model:
        return self._service.model(tenant, request.name, request.version or None)


def _value_of(setting: Any) -> Any:
    kind = setting.WhichOneof("parameter_choice")
    return None if kind is None else getattr(setting, kind)


class ClientMemoryCalls:
    """Answers the calls of the shared memory extensions, for system memory and for CUDA memory.

    Clients such as perf_analyzer unregister all regions of both kinds before they begin, so both must answer.

    Args:
        clients: The memory that clients share.
        server_view: Registers it with all processes of the server.
    """

    def __init__(self, clients: ClientMemory, server_view: ServerView) -> None:
        self._clients = clients
        self._server_view = server_view

    def status(self, request: Any, tenant: Tenant) -> Any:
        response = pb.SystemSharedMemoryStatusResponse()
        for region in self._clients.status(MemoryRegion, request.name or None):
            entry = response.regions[region["name"]]
            entry.name, entry.key = region["name"], region["key"]
            entry.offset, entry.byte_size = region["offset"], region["byte_size"]
        return response

    async def register(self, request: Any, tenant: Tenant) -> Any:
        self._check_new(request.name, "system")
        await self._server_view.register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    async def unregister(self, request: Any, tenant: Tenant) -> Any:
        await self._server_view.unregister(MemoryRegion, request.name or None)
        return pb.SystemSharedMemoryUnregisterResponse()

    def cuda_status(self, request: Any, tenant: Tenant) -> Any:
        response = pb.CudaSharedMemoryStatusResponse()
        for region in self._clients.status(DeviceRegion, request.name or None):
            entry = response.regions[region["name"]]
            entry.name, entry.device_id, entry.byte_size = region["name"], region["device_id"], region["byte_size"]
        return response

    async def cuda_register(self, request: Any, tenant: Tenant) -> Any:
        self._check_new(request.name, "cuda")
        if request.device_id < 0:
            raise InvalidInputError(f"device_id is {request.device_id}, expected a number of at least 0")
        handle = check_handle(request.raw_handle)
        await self._server_view.register_device(request.name, handle, request.device_id, request.byte_size)
        return pb.CudaSharedMemoryRegisterResponse()

    async def cuda_unregister(self, request: Any, tenant: Tenant) -> Any:
        await self._server_view.unregister(DeviceRegion, request.name or None)
        return pb.CudaSharedMemoryUnregisterResponse()

    def _check_new(self, name: str, kind: str) -> None:
        self._clients.check_allowed()
        if not name:
            raise InvalidInputError(f"'region name' is necessary to register {kind} shared memory region")
        if self._clients.holds(name):
            raise ConflictError(f"shared memory region '{name}' already in manager")
