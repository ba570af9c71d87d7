# pyright: basic
# grpcio ships no types.
"""Maps calls to functions. Messages are passed as bytes, so that a malformed one raises our error and not gRPC's."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from dyorc.errors import InvalidInputError
from dyorc.gateway.grpc.call_context import tenant_of
from dyorc.gateway.grpc.control_calls import ClientMemoryCalls, ControlCalls
from dyorc.gateway.grpc.direct_calls import DirectModelInfer
from dyorc.gateway.grpc.grpc_errors import refuse
from dyorc.gateway.grpc.health import HEALTH, REFLECTION, Health, Reflection
from dyorc.gateway.grpc.inference_calls import ModelInfer, ModelStreamInfer, OpenStreams
from dyorc.gateway.request_ids import ids_in_metadata
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import ANONYMOUS, Tenant
from dyorc.protocol import inference_pb2 as pb
from dyorc.protocol.api_paths import GRPC_SERVICE, grpc_path

_OPEN_CALLS = frozenset({"ServerLive", "ServerReady"})
"""Calls that need no key, as load balancers use them; gRPC's health service needs none either."""


class Method(NamedTuple):
    """The function that answers a call.

    Attributes:
        handle: Takes a message and the call's context and returns the answer; for a stream, reads and writes by the context.
        is_timed: Whether its first argument is the time when the call was accepted.
        direct: Answers some of its calls without a task; None: none.
    """

    handle: Callable[..., Awaitable[Any]]
    is_streaming: bool
    is_timed: bool = False
    direct: DirectModelInfer | None = None


def all_methods(service: InferenceService, streams: OpenStreams, direct: DirectModelInfer | None = None) -> dict[str, Method]:
    """Returns the methods by path: the protocol's, and gRPC's own.

    Args:
        direct: Answers calls of `ModelInfer` without a task, for a server that can; None: none.
    """
    unary: dict[str, Any] = {name: _unary(service, name, answer) for name, answer in _answers(service).items()}
    methods = {grpc_path(name): Method(handle, is_streaming=False) for name, handle in unary.items()}
    methods[grpc_path("ModelInfer")] = Method(
        ModelInfer(service, None if direct is None else direct.templates).answer, is_streaming=False, is_timed=True, direct=direct
    )
    methods[grpc_path("ModelStreamInfer")] = Method(ModelStreamInfer(service, streams).__call__, is_streaming=True)
    health = Health(service.server_view.status, streams, frozenset({GRPC_SERVICE}))
    methods[f"/{HEALTH}/Check"] = Method(health.check, is_streaming=False)
    methods[f"/{HEALTH}/Watch"] = Method(health.watch, is_streaming=True)
    reflection = Reflection(service, streams, (GRPC_SERVICE, HEALTH))
    methods[f"/{REFLECTION}/ServerReflectionInfo"] = Method(reflection.info, is_streaming=True)
    return methods


def _answers(service: InferenceService) -> dict[str, Callable[[Any, Tenant], Any]]:
    control = ControlCalls(service)
    memory = ClientMemoryCalls(service.clients, service.server_view)
    return {
        "ServerLive": control.server_live,
        "ServerReady": control.server_ready,
        "ModelReady": control.model_ready,
        "ServerMetadata": control.server_metadata,
        "ModelMetadata": control.model_metadata,
        "ModelConfig": control.model_config,
        "ModelStatistics": control.model_statistics,
        "RepositoryIndex": control.repository_index,
        "RepositoryModelLoad": control.repository_model_load,
        "RepositoryModelUnload": control.repository_model_unload,
        "TraceSetting": control.trace_setting,
        "LogSettings": control.log_settings,
        "SystemSharedMemoryStatus": memory.status,
        "SystemSharedMemoryRegister": memory.register,
        "SystemSharedMemoryUnregister": memory.unregister,
        "CudaSharedMemoryStatus": memory.cuda_status,
        "CudaSharedMemoryRegister": memory.cuda_register,
        "CudaSharedMemoryUnregister": memory.cuda_unregister,
    }


def _unary(
    service: InferenceService, name: str, answer: Callable[[Any, Tenant], Any]
) -> Callable[[bytes, Any], Awaitable[bytes]]:
    parse = getattr(pb, f"{name}Request").FromString

    async def handle(message: bytes, context: Any) -> bytes:
        try:
            tenant = ANONYMOUS if name in _OPEN_CALLS else tenant_of(service.access, context)
            if "SharedMemory" in name:  # all tenants share its names
                tenant.check_common(name)
            try:
                request = parse(message)
            except DecodeError as error:
                raise InvalidInputError(f"the request is not a {name}Request: {error}") from None
            response = answer(request, tenant)
            if isawaitable(response):
                response = await response
            return response.SerializeToString()
        except Exception as error:
            await refuse(context, error, name, ids_in_metadata(context))

    return handle
