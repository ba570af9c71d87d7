"""Routes of the live page: the server's state, now and every second, and its history. Not part of the protocol."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.types import Receive, Scope, Send

from dyorc.errors import ClientError, InvalidInputError, RequestCancelledError
from dyorc.gateway.access import Access
from dyorc.gateway.http.authentication import authenticate
from dyorc.gateway.http.disconnects import CancelledWithClient
from dyorc.gateway.http.inference_answers import EVENTS, UNBUFFERED
from dyorc.gateway.http.middleware import tenant_of
from dyorc.gateway.live_feed import LiveFeed
from dyorc.gateway.live_report import Snapshot
from dyorc.gateway.service import InferenceService
from dyorc.protocol import media_types
from dyorc.protocol.api_paths import LIVE_EVENTS, LIVE_GRAPH, LIVE_HISTORY, LIVE_NOW
from dyorc.telemetry.series import MAX_WINDOW_S, NUM_SECONDS

_HEARTBEAT_S = 5.0
_HEARTBEAT = b": still here\n\n"
_NO_STORE = (b"cache-control", b"no-store")


def add_live_routes(app: FastAPI, service: InferenceService, live: LiveFeed) -> None:
    """Adds ``/live``, ``/events``, ``/history`` and ``/graph``."""

    @app.get(LIVE_NOW, tags=["live"])
    async def now(request: Request) -> Response:
        """How the whole server is now: workflows, programs with their replicas, queues and batches, tenants, jobs, processes."""
        snapshot = await live.now()
        body = msgspec.json.encode(snapshot.of_tenant(tenant_of(request.scope)))
        return Response(body, media_type=media_types.JSON, headers={"Cache-Control": "no-store"})

    @app.get(LIVE_EVENTS, tags=["live"], responses={200: {"content": {media_types.EVENTS: {}}}})
    async def events() -> Response:
        """The same every second, as server-sent events of the type `live`."""
        return _Events(service.access, live)

    @app.get(LIVE_HISTORY, tags=["live"])
    async def history(
        request: Request, program: str | None = None, workflow: str | None = None, window_s: str | None = None
    ) -> dict[str, Any]:
        """How a program or workflow was: second by second for up to 600 s, minute by minute for up to a day."""
        name = program or workflow
        if not name or (program and workflow):
            raise InvalidInputError("expected one of the parameters 'program' and 'workflow'")
        service.model(tenant_of(request.scope), name)
        return await live.past("program" if program else "workflow", name, _window_s(window_s))

    @app.get(LIVE_GRAPH, tags=["live"])
    async def graph(request: Request, workflow: str) -> dict[str, Any]:
        """What the workflow's requests do, learned from recorded ones: programs, decisions, and how often each way is taken."""
        service.model(tenant_of(request.scope), workflow)
        return await live.graph(workflow)


def _window_s(text: str | None) -> int:
    if text is None:
        return NUM_SECONDS
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text)):
        raise InvalidInputError(f"window_s is {text[:20]!r}, expected a whole number of seconds, such as {NUM_SECONDS}")
    return min(int(text), MAX_WINDOW_S)


class _Events(Response):
    """Server-sent events, until the client goes, its key is revoked, or the server stops."""

    def __init__(self, access: Access, live: LiveFeed) -> None:
        super().__init__()
        self._access = access
        self._live = live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Writes the events. A client that does not read holds up only this response."""
        with self._live.listening():
            try:
                with CancelledWithClient(scope, asyncio.current_task()):
                    await self._write(scope, send)
            except RequestCancelledError:
                return

    async def _write(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [EVENTS, UNBUFFERED, _NO_STORE]})
        with contextlib.suppress(ClientError):  # its key was revoked
            async with aclosing(self._events(scope)) as events:
                async for event in events:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _events(self, scope: Scope) -> AsyncGenerator[bytes]:
        last: Snapshot | None = None
        while True:
            try:
                async with asyncio.timeout(_HEARTBEAT_S):  # `wait_for` can lose the cancellation when the client goes
                    latest = await self._live.next(last)
            except TimeoutError:
                yield _HEARTBEAT
                continue
            if latest is None:
                return
            tenant = authenticate(self._access, scope)
            yield b"event: live\ndata: " + msgspec.json.encode(latest.of_tenant(tenant)) + b"\n\n"
            last = latest
