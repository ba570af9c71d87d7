"""The inference route. A plain ASGI function: it is the hot path, and a framework around it would cost more than all it does."""

from typing import Any

import structlog
from starlette.types import Receive, Scope, Send

from dyorc.errors import DyOrcError, InvalidInputError, PayloadTooLargeError, RequestCancelledError
from dyorc.gateway.catalog import Model
from dyorc.gateway.http.disconnects import DisconnectWatch
from dyorc.gateway.http.errors import Header, error_body, retry_headers, status_of
from dyorc.gateway.http.protocol import decode_request
from dyorc.gateway.http.protocol_outputs import encode_response
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import Tenant

_log = structlog.get_logger("dyorc.gateway")

_MAX_LENGTH_DIGITS = 18
"""Of a length in a header; Python refuses to read numbers of thousands of digits."""

_MAX_DRAIN_RATIO = 4
"""Of a body that is too large, up to this many times the limit is read and thrown away, so that the client reads the answer."""


class InferenceRoute:
    """``POST /v2/models/{model}[/versions/{version}]/infer``."""

    def __init__(self, service: InferenceService) -> None:
        self._service = service
        self._config = service.config
        self._watch = DisconnectWatch()

    @staticmethod
    def match(path: str) -> tuple[str, str | None] | None:
        """Model and version, if `path` is this route's."""
        if not path.startswith("/v2/models/") or not path.endswith("/infer"):
            return None
        name, *version = path[len("/v2/models/") : -len("/infer")].rsplit("/versions/", 1)
        return (name, version[0] if version else None) if name else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send, model_name: str, version: str | None) -> None:
        """Answers one request."""
        headers: list[Header] = [(b"content-type", b"application/json")]
        try:
            parts, json_bytes = await self._infer(scope, receive, model_name, version)
            status = 200
            if json_bytes is not None:
                headers = [
                    (b"content-type", b"application/octet-stream"),
                    (b"inference-header-content-length", str(json_bytes).encode()),
                ]
        except DyOrcError as error:
            status = status_of(error)
            headers += retry_headers(error)
            if isinstance(error, PayloadTooLargeError):
                headers.append((b"connection", b"close"))
            if status >= 500:
                _log.warning("request_failed", model=model_name, status=status, error=str(error))
            parts = [error_body(error)]
        except Exception as error:
            _log.exception("request_crashed", model=model_name)
            status, parts = 500, [error_body(error)]
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _infer(self, scope: Scope, receive: Receive, model_name: str, version: str | None) -> Any:
        tenant = self._service.access.tenant_of(None)
        model = self._service.model(tenant, model_name, version)
        json_bytes, announced_bytes = _read_headers(scope)
        limit = self._config.max_request_bytes
        with self._service.admission.admit(tenant, announced_bytes or 0), self._service.memory() as memory:
            room = None
            if announced_bytes is not None and json_bytes is not None and announced_bytes <= limit:
                room = memory.room(announced_bytes, json_bytes)
            if room is None:
                body = await self._read_body(receive, announced_bytes)
            else:
                body = await _read_into(room, receive)
            return await self._run(body, json_bytes, tenant, model, memory, receive)

    async def _run(
        self,
        body: bytes | memoryview,
        json_bytes: int | None,
        tenant: Tenant,
        model: Model,
        memory: RequestMemory,
        receive: Receive,
    ) -> Any:
        request = decode_request(body, json_bytes, model, memory)
        story: list[dict[str, Any]] | None = [] if request.is_explained else None
        with self._watch.watching(receive) as wait:
            return await self._service.infer(
                tenant,
                model,
                request,
                memory,
                story=story,
                started=wait.attach,
                take=lambda arrays: encode_response(model, request.request_id, request.outputs, arrays, story),
            )

    async def _read_body(self, receive: Receive, announced_bytes: int | None) -> bytes:
        limit = self._config.max_request_bytes
        parts: list[bytes] = []
        num_bytes = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestCancelledError("the client went away while it sent its request")
            part: bytes = message.get("body", b"")
            num_bytes += len(part)
            if num_bytes <= limit:
                parts.append(part)
            elif num_bytes > limit * _MAX_DRAIN_RATIO:
                raise _too_large(announced_bytes or num_bytes, limit)
            if not message.get("more_body", False):
                break
        if num_bytes > limit:
            raise _too_large(num_bytes, limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)


async def _read_into(memory: memoryview, receive: Receive) -> memoryview:
    """Reads a body of a known length to where it belongs."""
    at = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestCancelledError("the client went away while it sent its request")
        part: bytes = message.get("body", b"")
        if len(part) > len(memory) - at:
            raise InvalidInputError(f"the body is longer than the {len(memory)} bytes that Content-Length says")
        memory[at : at + len(part)] = part
        at += len(part)
        if not message.get("more_body", False):
            break
    return memory[:at]


def _too_large(num_bytes: int, limit: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f"the request's body has {num_bytes} bytes, the limit is {limit}")


def _read_headers(scope: Scope) -> tuple[int | None, int | None]:
    """Length of the JSON part and of the whole body, as far as the headers tell."""
    json_bytes = announced_bytes = None
    for name, value in scope["headers"]:
        if name == b"inference-header-content-length":
            if not value.isdigit() or len(value) > _MAX_LENGTH_DIGITS:
                shown = value[:_MAX_LENGTH_DIGITS].decode("latin-1")
                raise InvalidInputError(f"Inference-Header-Content-Length is {shown!r}, expected a number of bytes")
            json_bytes = int(value)
        elif name == b"content-length":
            announced_bytes = int(value)
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise InvalidInputError(f"Content-Encoding {value.decode('latin-1')!r} is not supported, expected none")
    return json_bytes, announced_bytes
