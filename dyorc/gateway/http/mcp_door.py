"""``/mcp``: workflows as tools of the Model Context Protocol, by its official SDK. The only module that imports that.

It keeps no sessions: each message is a request of its own, so any process of the server may answer it (decision 0110). A client
that closes a call's connection cancels its request. For the event loop's thread.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Any, Self

import mcp_types as mcp
import msgspec
import structlog
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from dyorc.authoring.values import content_type_of
from dyorc.core.arrays import Array
from dyorc.errors import DyOrcError, PermissionDeniedError, RequestCancelledError, UnknownModelError
from dyorc.gateway.catalog import Model
from dyorc.gateway.codec.http_errors import status_of
from dyorc.gateway.codec.run_values import RunBody, decode_run, encode_run_json
from dyorc.gateway.http.disconnects import CancelledWithClient
from dyorc.gateway.http.heads import read_head
from dyorc.gateway.http.mcp_tools import encode_arguments, is_wrapped, tool_schemas
from dyorc.gateway.http.middleware import EXCHANGE, arrival_of, ids_of, tenant_of
from dyorc.gateway.infer_request import InferRequest
from dyorc.gateway.origins import note_written
from dyorc.gateway.service import InferenceService
from dyorc.protocol import media_types
from dyorc.telemetry.record import Origin
from dyorc.version import version

_log = structlog.get_logger("dyorc.gateway")
_decoder = msgspec.json.Decoder()


class McpDoor:
    """The ASGI application at ``/mcp``. Enter it before it gets requests.

    Args:
        service: Runs requests. A tenant sees and calls the workflows that its key may use.
    """

    def __init__(self, service: InferenceService) -> None:
        self._service = service
        server: Server[Any] = Server("dyorc", version=version(), on_list_tools=self._list_tools, on_call_tool=self._call_tool)
        server.middleware.clear()  # its spans: requests have their own
        self._manager = StreamableHTTPSessionManager(
            server, stateless=True, max_request_body_size=service.config.max_request_bytes
        )
        self._running: contextlib.AbstractAsyncContextManager[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = self._manager.run()
        await self._running.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.__aexit__(kind, error, trace)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (refusal := self._refusal(scope)) is not None:
            await refusal(scope, receive, send)
            return
        with contextlib.suppress(RequestCancelledError), CancelledWithClient(scope, asyncio.current_task()):
            await self._manager.handle_request(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        """Returns the answer to a request that the SDK does not get; None if it does.

        A page of the web may not call tools unless `gateway.cors_origins` names it: it can lead its visitor's browser here by a
        name of its own (DNS rebinding). And without sessions there is nothing to listen to or to end.
        """
        if scope["method"] != "POST":
            return PlainTextResponse("expected POST: there are no sessions", 405, {"allow": "POST"})
        allowed = self._service.config.cors_origins
        origin = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"), None)
        if origin is not None and "*" not in allowed and origin not in allowed:
            return PlainTextResponse(f"origin {origin!r} may not use this server; gateway.cors_origins names others", 403)
        return None

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListToolsResult:
        assert context.request is not None
        tenant = tenant_of(context.request.scope)
        models = sorted(self._service.catalog.models.items())
        return mcp.ListToolsResult(
            tools=[_tool(model) for name, model in models if not model.is_program and tenant.may_use(name)]
        )

    async def _call_tool(self, context: ServerRequestContext[Any], params: mcp.CallToolRequestParams) -> mcp.CallToolResult:
        """Answers a call. Errors of ours are results, which the caller's language model reads and may learn from."""
        assert context.request is not None
        scope: Scope = context.request.scope
        try:
            model = self._model(scope, params.name)
            with self._service.admission.admit(tenant_of(scope), read_head(scope["headers"]).announced_bytes or 0) as ticket:
                ticket.arrived_ns, ticket.sender = scope.get("dyorc.arrived_ns"), scope[EXCHANGE]
                return await _Call(self._service, model, context, ticket).run(params.arguments or {})
        except DyOrcError as error:
            ids = ids_of(scope)
            self._service.origins.record_refusal(arrival_of(scope), error, lambda: params.name, tenant_of(scope).name)
            if status_of(error) >= 500:
                _log.warning("request_failed", model=params.name, error=str(error), **ids.facts)
            return _failure(str(error))
        except MCPError:
            raise
        except Exception as error:
            _log.exception("request_crashed", model=params.name, **ids_of(scope).facts)
            self._service.origins.record_refusal(arrival_of(scope), error, lambda: params.name, tenant_of(scope).name)
            return _failure("internal error")

    def _model(self, scope: Scope, name: str) -> Model:
        try:
            model = self._service.model(tenant_of(scope), name, None, scope["headers"])
        except (UnknownModelError, PermissionDeniedError):
            model = None
        if model is None or model.is_program:
            raise MCPError(mcp.INVALID_PARAMS, f"unknown tool {name!r}")
        return model


class _Call:
    """One call of a tool."""

    def __init__(self, service: InferenceService, model: Model, context: ServerRequestContext[Any], ticket: Any) -> None:
        self._service = service
        self._model = model
        self._context = context
        self._ticket = ticket

    async def run(self, arguments: dict[str, Any]) -> mcp.CallToolResult:
        """Runs the workflow on arguments by name, and returns its answer."""
        body = encode_arguments(arguments)
        service, model = self._service, self._model
        assert self._context.request is not None
        head = read_head(self._context.request.scope["headers"])
        with service.memory() as memory:

            def decode() -> InferRequest:
                return decode_run(RunBody(body, media_types.JSON), model, memory, head.request_id)

            request = await service.decoded(len(body), decode)
            origin = self._origin(request, len(body), service.origins.traced(head.caller))
            run = service.stream if model.is_streaming else service.infer
            answer = run(
                self._ticket, model, request, memory,
                timeout_s=head.timeout_s, priority=head.priority, origin=origin, take=self._block,
            )  # fmt: skip
            blocks = await self._parts(answer) if isinstance(answer, AsyncGenerator) else [await answer]
        note_written(origin)
        return _result(model, blocks)

    def _origin(self, request: InferRequest, num_bytes: int, traced: Any) -> Origin | None:
        assert self._context.request is not None
        arrival = arrival_of(self._context.request.scope, num_bytes=num_bytes).traced_as(traced)
        origin = self._service.origins.of(request, arrival)
        if origin is not None:
            origin.attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": self._model.name}
        return origin

    def _block(self, arrays: list[Array]) -> mcp.ContentBlock:
        """Returns an answer, or a part of one, as content: a file as it is, all else as the text of its JSON."""
        if self._model.signature.outputs.is_file:
            return _file_content(bytes(arrays[0][()]), self._model.name)
        return mcp.TextContent(text=encode_run_json(self._model, arrays).decode())

    async def _parts(self, parts: Any) -> list[mcp.ContentBlock]:
        """Returns all parts of an answer, and reports each as progress as it comes."""
        blocks: list[mcp.ContentBlock] = []
        async with contextlib.aclosing(parts):
            async for ready in parts:
                for block in ready:
                    blocks.append(block)
                    message = block.text if isinstance(block, mcp.TextContent) else None
                    await self._context.session.report_progress(len(blocks), None, message)
        return blocks


def _tool(model: Model) -> mcp.Tool:
    schemas = tool_schemas(model)
    return mcp.Tool(
        name=model.name,
        description=model.offer.description or None,
        input_schema=schemas.arguments,
        output_schema=schemas.answer,
    )


def _result(model: Model, blocks: Sequence[mcp.ContentBlock]) -> mcp.CallToolResult:
    if model.signature.outputs.is_file:
        return mcp.CallToolResult(content=list(blocks))
    values = [_decoder.decode(block.text) for block in blocks if isinstance(block, mcp.TextContent)]
    value = values if model.is_streaming else values[0]
    return mcp.CallToolResult(content=list(blocks), structured_content={"result": value} if is_wrapped(model) else value)


def _file_content(data: bytes, name: str) -> mcp.ContentBlock:
    kind, text = content_type_of(data), base64.b64encode(data).decode()
    if kind.startswith("image/"):
        return mcp.ImageContent(data=text, mime_type=kind)
    if kind.startswith("audio/"):
        return mcp.AudioContent(data=text, mime_type=kind)
    return mcp.EmbeddedResource(resource=mcp.BlobResourceContents(uri=f"dyorc://answers/{name}", mime_type=kind, blob=text))


def _failure(text: str) -> mcp.CallToolResult:
    return mcp.CallToolResult(content=[mcp.TextContent(text=text)], is_error=True)
