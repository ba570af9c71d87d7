# pyright: basic, reportAttributeAccessIssue=false
# Generated messages have no types.
"""The calls of the shared memory extensions, for system memory and for CUDA memory, of which no region can ever be registered.

Clients such as perf_analyzer unregister all regions of both kinds before they begin, so both must answer.
"""

from typing import Any

from dyorc.errors import ConflictError, InvalidInputError, UnknownRegionError
from dyorc.gateway.client_memory import ClientMemory
from dyorc.gateway.tenants import Tenant
from dyorc.gateway.whole import ServerView
from dyorc.protocol import inference_pb2 as pb


class ClientMemoryCalls:
    """Answers these calls.

    Args:
        clients: The memory that clients share.
        server_view: Registers it with all processes of the server.
    """

    def __init__(self, clients: ClientMemory, server_view: ServerView) -> None:
        self._clients = clients
        self._server_view = server_view

    def status(self, request: Any, tenant: Tenant) -> Any:
        found = pb.SystemSharedMemoryStatusResponse()
        for region in self._clients.status(request.name or None):
            entry = found.regions[region["name"]]
            entry.name, entry.key = region["name"], region["key"]
            entry.offset, entry.byte_size = region["offset"], region["byte_size"]
        return found

    async def register(self, request: Any, tenant: Tenant) -> Any:
        self._clients.check_allowed()
        if not request.name:
            raise InvalidInputError("'region name' is necessary to register system shared memory region")
        if any(region["name"] == request.name for region in self._clients.status()):
            raise ConflictError(f"shared memory region '{request.name}' already in manager")
        await self._server_view.register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    async def unregister(self, request: Any, tenant: Tenant) -> Any:
        await self._server_view.unregister(request.name or None)
        return pb.SystemSharedMemoryUnregisterResponse()

    def cuda_status(self, request: Any, tenant: Tenant) -> Any:
        self._clients.check_allowed()
        if request.name:
            raise UnknownRegionError(f"Unable to find cuda shared memory region: '{request.name}'")
        return pb.CudaSharedMemoryStatusResponse()

    def cuda_register(self, request: Any, tenant: Tenant) -> Any:
        self._clients.check_allowed()
        raise InvalidInputError(f"failed to register CUDA shared memory region: '{request.name}', GPUs not supported")

    def cuda_unregister(self, request: Any, tenant: Tenant) -> Any:
        self._clients.check_allowed()
        return pb.CudaSharedMemoryUnregisterResponse()
