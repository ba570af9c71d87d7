"""The routes of the shared memory extensions, for system memory and for CUDA memory.

Clients such as perf_analyzer unregister all regions of both kinds before they begin, so both must answer.
"""

from enum import Enum
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Request, Response

from dyorc.errors import InvalidInputError
from dyorc.gateway.client_device_memory import DeviceRegion, decode_handle
from dyorc.gateway.client_memory import ClientMemory, MemoryRegion
from dyorc.gateway.http.control_models import CudaRegion, Region
from dyorc.gateway.http.openapi import json_body
from dyorc.gateway.http.request_bodies import read_json
from dyorc.gateway.server_view import ServerView

_SYSTEM = "/v2/systemsharedmemory"
_CUDA = "/v2/cudasharedmemory"


class _Registration(msgspec.Struct):
    key: str | msgspec.UnsetType = msgspec.UNSET
    byte_size: int | msgspec.UnsetType = msgspec.UNSET
    offset: int = 0


_BODY = json_body(
    {
        "type": "object",
        "properties": {"key": {"type": "string"}, "byte_size": {"type": "integer"}, "offset": {"type": "integer"}},
        "required": ["key", "byte_size"],
    }
)
_TAGS: list[str | Enum] = ["shared memory"]


def add_system_memory_routes(app: FastAPI, memory: ClientMemory, server_view: ServerView) -> None:
    """Adds ``/v2/systemsharedmemory[/region/{name}]/(status|register|unregister)``."""

    @app.get(f"{_SYSTEM}/status", response_model=list[Region], tags=_TAGS)
    @app.get(f"{_SYSTEM}/region/{{name}}/status", response_model=list[Region], tags=_TAGS)
    async def status(name: str | None = None) -> list[dict[str, Any]]:
        """Lists the registered regions of clients' memory."""
        return memory.status(MemoryRegion, name)

    @app.post(f"{_SYSTEM}/register", response_class=Response, openapi_extra=_BODY, tags=_TAGS)
    @app.post(f"{_SYSTEM}/region/{{name}}/register", response_class=Response, openapi_extra=_BODY, tags=_TAGS)
    async def register(request: Request, name: str | None = None) -> Response:
        """Registers a part of an object in the client's shared memory under a name."""
        memory.check_allowed()
        if name is None:
            raise InvalidInputError("'region name' is necessary to register system shared memory region")
        wanted = await read_json(request, _Registration)
        if wanted.key is msgspec.UNSET:
            raise InvalidInputError("Shared memory register request has no 'key' field")
        if wanted.byte_size is msgspec.UNSET:
            raise InvalidInputError("Shared memory register request has no 'byte_size' field")
        await server_view.register(name, wanted.key, wanted.offset, wanted.byte_size)
        return Response()

    @app.post(f"{_SYSTEM}/unregister", response_class=Response, tags=_TAGS)
    @app.post(f"{_SYSTEM}/region/{{name}}/unregister", response_class=Response, tags=_TAGS)
    async def unregister(name: str | None = None) -> Response:
        """Unregisters one region, or all of them."""
        await server_view.unregister(MemoryRegion, name)
        return Response()


class _RawHandle(msgspec.Struct):
    b64: str


class _CudaRegistration(msgspec.Struct):
    raw_handle: _RawHandle | msgspec.UnsetType = msgspec.UNSET
    device_id: Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET
    byte_size: int | msgspec.UnsetType = msgspec.UNSET


_CUDA_BODY = json_body(
    {
        "type": "object",
        "properties": {
            "raw_handle": {"type": "object", "properties": {"b64": {"type": "string"}}, "required": ["b64"]},
            "device_id": {"type": "integer", "minimum": 0},
            "byte_size": {"type": "integer"},
        },
        "required": ["raw_handle", "device_id", "byte_size"],
    }
)


def add_cuda_memory_routes(app: FastAPI, memory: ClientMemory, server_view: ServerView) -> None:
    """Adds ``/v2/cudasharedmemory[/region/{name}]/(status|register|unregister)``."""

    @app.get(f"{_CUDA}/status", response_model=list[CudaRegion], tags=_TAGS)
    @app.get(f"{_CUDA}/region/{{name}}/status", response_model=list[CudaRegion], tags=_TAGS)
    async def cuda_status(name: str | None = None) -> list[dict[str, Any]]:
        """Lists the registered regions of clients' memory on GPUs."""
        return memory.status(DeviceRegion, name)

    @app.post(f"{_CUDA}/register", response_class=Response, openapi_extra=_CUDA_BODY, tags=_TAGS)
    @app.post(f"{_CUDA}/region/{{name}}/register", response_class=Response, openapi_extra=_CUDA_BODY, tags=_TAGS)
    async def cuda_register(request: Request, name: str | None = None) -> Response:
        """Registers memory of a GPU that the client shares under a name. Refused where the server sees no GPU."""
        memory.check_allowed()
        if name is None:
            raise InvalidInputError("'region name' is necessary to register cuda shared memory region")
        wanted = await read_json(request, _CudaRegistration)
        if wanted.raw_handle is msgspec.UNSET:
            raise InvalidInputError("Shared memory register request has no 'raw_handle' field")
        if wanted.byte_size is msgspec.UNSET:
            raise InvalidInputError("Shared memory register request has no 'byte_size' field")
        if wanted.device_id is msgspec.UNSET:
            raise InvalidInputError("Shared memory register request has no 'device_id' field")
        await server_view.register_device(name, decode_handle(wanted.raw_handle.b64), wanted.device_id, wanted.byte_size)
        return Response()

    @app.post(f"{_CUDA}/unregister", response_class=Response, tags=_TAGS)
    @app.post(f"{_CUDA}/region/{{name}}/unregister", response_class=Response, tags=_TAGS)
    async def cuda_unregister(name: str | None = None) -> Response:
        """Unregisters one region of a GPU, or all of them."""
        await server_view.unregister(DeviceRegion, name)
        return Response()
