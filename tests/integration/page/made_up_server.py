"""The page's real routes, over HTTP, with made-up data behind them.

`python -m tests.integration.page.made_up_server` shows it in a browser.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, cast

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from dyorc.config import GatewayConfig
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.http.middleware import without_trailing_slash
from dyorc.gateway.http.page_routes import add_ui_routes
from tests.integration.page import made_up


class MadeUpServer:
    """An ASGI application.

    Attributes:
        key: What requests for data have to carry; empty: nothing.
        is_silent: Whether streams of events end at once, as if the server were gone.
        num_refused: Requests without the key.
    """

    def __init__(self, key: str = "") -> None:
        self.url = ""
        self.key = key
        self.is_silent = False
        self.num_refused = 0
        self._app = FastAPI(redirect_slashes=False)
        add_ui_routes(self._app)
        self._add_routes(self._app)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers one request."""
        scope = without_trailing_slash(scope)
        headers = dict(scope["headers"])
        if self.key and not scope["path"].startswith("/ui") and headers.get(b"authorization") != f"Bearer {self.key}".encode():
            self.num_refused += 1
            body = {"error": "an API key is needed", "code": "authentication", "retryable": False}
            await JSONResponse(body, 401)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _add_routes(self, app: FastAPI) -> None:
        def always(path: str, value: Any) -> None:
            @app.get(path)
            async def found() -> Any:
                return value

        always("/graph", made_up.graph())
        always("/scaling", made_up.SCALING)
        always("/v1/jobs", made_up.JOBS)
        always("/v2/models", {"models": [made_up.WORKFLOW]})
        always(f"/v2/models/{made_up.WORKFLOW}", made_up.MODEL)
        always(f"/v2/models/{made_up.WORKFLOW}/config", {"model_transaction_policy": {"decoupled": False}})

        @app.get("/events")
        async def events() -> Response:
            return StreamingResponse(self._events(), media_type="text/event-stream")

        @app.get("/history")
        async def history(request: Request) -> Any:
            return Response(msgspec.json.encode(made_up.history(dict(request.query_params))), media_type="application/json")

        @app.get("/requests")
        async def requests(request: Request) -> Any:
            return Response(msgspec.json.encode(made_up.requests(dict(request.query_params))), media_type="application/json")

        @app.get("/requests/{request_id}")
        async def detail(request_id: str) -> Any:
            found = made_up.detail(request_id)
            return (
                JSONResponse({"error": "not kept", "code": "unknown_request", "retryable": False}, 404)
                if found is None
                else found
            )

    async def _events(self) -> AsyncGenerator[bytes]:
        while not self.is_silent:
            yield b"event: live\ndata: " + msgspec.json.encode(made_up.live()) + b"\n\n"
            await asyncio.sleep(0.2)

    @contextlib.contextmanager
    def running(self, port: int = 0) -> Generator["MadeUpServer"]:
        """Serves it on a thread."""
        started = threading.Event()
        over: list[Callable[[], None]] = []

        async def serve() -> None:
            end, loop = asyncio.Event(), asyncio.get_running_loop()
            over.append(lambda: loop.call_soon_threadsafe(end.set) and None)
            async with HttpServer(cast(Gateway, self), GatewayConfig(port=port, drain_timeout_s=0.1), None) as server:
                self.url = server.url
                started.set()
                await end.wait()
                self.is_silent = True

        # A runner also closes a connection that a browser opens while the server stops.
        thread = threading.Thread(target=asyncio.run, args=[serve()])
        thread.start()
        started.wait()
        try:
            yield self
        finally:
            over[0]()
            thread.join()


if __name__ == "__main__":
    with MadeUpServer(os.environ.get("KEY", "")).running(int(sys.argv[1]) if len(sys.argv) > 1 else 8400) as shown:
        print(f"{shown.url}/ui/")
        threading.Event().wait()
