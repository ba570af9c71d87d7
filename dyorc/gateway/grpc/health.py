# pyright: basic, reportAttributeAccessIssue=false
# grpcio and generated messages have no types.
"""gRPC's own services: health, for load balancers and Kubernetes, and reflection, for tools such as grpcurl.

Health needs no key, since load balancers have none; reflection does. Service "" and the inference service are SERVING when every
program has a replica; "liveness" is SERVING as long as the server answers.
"""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION
from grpc_reflection.v1alpha.reflection import aio as reflection

from dyorc.errors import DyOrcError
from dyorc.gateway.grpc.call_context import tenant_of
from dyorc.gateway.grpc.grpc_errors import refuse
from dyorc.gateway.grpc.inference_calls import EOF, OpenStreams
from dyorc.gateway.request_ids import ids_in_metadata
from dyorc.gateway.service import InferenceService
from dyorc.models.status import StatusBoard
from dyorc.protocol.inference_pb2 import DESCRIPTOR

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

_LIVENESS = "liveness"
_LOOK_AGAIN_S = 5.0


class Health:
    """Answers `grpc.health.v1.Health`.

    Args:
        status: Which programs are ready.
        streams: Signals that the server stops; then nothing is SERVING.
        services: Names of the services.
    """

    def __init__(self, status: StatusBoard, streams: OpenStreams, services: frozenset[str]) -> None:
        self._status = status
        self._streams = streams
        self._services = services | {"", _LIVENESS}

    async def check(self, message: bytes, context: Any) -> bytes:
        service = await _service_in(message, context)
        if service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"unknown service {service[:200]!r}")
        return self._answer(service)

    async def watch(self, messages: Any, context: Any) -> None:
        """Sends the state of a service, now and at every change."""
        service = await _service_in(await context.read(), context)
        sent = b""
        while True:
            answer = self._answer(service)
            if answer != sent:
                await context.write(answer)
                sent = answer
            if self._streams.is_stopping:
                return
            await self._streams.unless_stopped(self._status.wait_for_change(_LOOK_AGAIN_S))

    def _answer(self, service: str) -> bytes:
        kinds = health_pb2.HealthCheckResponse
        if service not in self._services:
            return kinds(status=kinds.SERVICE_UNKNOWN).SerializeToString()
        is_serving = not self._streams.is_stopping and (service == _LIVENESS or self._status.is_ready)
        return kinds(status=kinds.SERVING if is_serving else kinds.NOT_SERVING).SerializeToString()


async def _service_in(message: Any, context: Any) -> str:
    try:
        return health_pb2.HealthCheckRequest.FromString(b"" if message is EOF else message).service
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is not a HealthCheckRequest")
        raise


class Reflection:
    """Answers `grpc.reflection.v1alpha.ServerReflection`.

    Args:
        service: Decides who may ask.
        streams: Signals that the server stops, which ends all streams.
        services: Names of the services.
    """

    def __init__(self, service: InferenceService, streams: OpenStreams, services: tuple[str, ...]) -> None:
        self._service = service
        self._streams = streams
        pools: Any = _Pools()
        self._servicer: Any = reflection.ReflectionServicer((*services, REFLECTION), pool=pools)

    async def info(self, messages: Any, context: Any) -> None:
        """Answers the questions of one stream, in order."""
        try:
            tenant_of(self._service.access, context)
        except DyOrcError as error:
            await refuse(context, error, "ServerReflectionInfo", ids_in_metadata(context))
        try:
            async for answer in self._servicer.ServerReflectionInfo(self._questions(context), context):
                await context.write(answer.SerializeToString())
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is not a ServerReflectionRequest")

    async def _questions(self, context: Any) -> AsyncIterator[Any]:
        while True:
            message = await self._streams.unless_stopped(context.read())
            if message is None or message is EOF:
                return
            yield reflection_pb2.ServerReflectionRequest.FromString(message)


class _Pools:
    """The descriptors of all services. The protocol's are in a separate pool, since other packages define it too."""

    def __init__(self) -> None:
        self._pools = (DESCRIPTOR.pool, descriptor_pool.Default())

    def __getattr__(self, name: str) -> Any:
        def find(key: Any) -> Any:
            for pool in self._pools[:-1]:
                try:
                    return getattr(pool, name)(key)
                except KeyError:
                    continue
            return getattr(self._pools[-1], name)(key)

        return find
