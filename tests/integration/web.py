"""The HTTP server with a small application in place of the gateway, and a client that says exactly what it sends."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send

from dyorc.config import GatewayConfig
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.http.inference_answers import write, write_body
from dyorc.gateway.shedding import LoopLag, Shedding
from tests.deadlines import TIMEOUT_S


@dataclass
class App:
    """``/echo`` answers with the body; ``/large/N`` with N bytes; ``/early`` before the body is read; ``/hang`` never; ``/parts``
    in parts of unknown length.

    Attributes:
        events: What has happened: "begun", "lost" and "done", in order.
    """

    events: list[str] = field(default_factory=list[str])
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        self.events.append("begun")
        path: str = scope["path"]
        body = b"early" if path == "/early" else await _body(receive)
        match path.split("/")[1:]:
            case ["large", size]:
                body = bytes(int(size))
            case ["hang"]:
                scope["dyorc.connection"].on_lost(self._on_lost)
                await self.release.wait()
            case _:
                pass
        if path == "/parts":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await write_body(send, b"one", more_body=True)
            await write_body(send, b"two", more_body=False)
        else:
            await write(send, 200, [], [body])
        self.events.append("done")

    def _on_lost(self) -> None:
        self.events.append("lost")
        self.release.set()


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


@dataclass
class Answer:
    """An answer as it came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The body of an error."""
        found = json.loads(self.body)
        assert set(found) == {"error", "code", "retryable", "request_id"}
        assert self.headers["x-request-id"] == found["request_id"]
        return found


@dataclass
class Raw:
    """A connection of a client that need not behave."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Sends exactly this.

        Raises:
            ConnectionError: If the server has closed the connection.
        """
        try:
            self.writer.write(data)
        except RuntimeError as error:  # what uvloop calls it
            raise ConnectionResetError(str(error)) from None
        await self.writer.drain()

    async def read(self) -> Answer:
        """Returns the next answer."""
        async with asyncio.timeout(TIMEOUT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
            return Answer(int(first.split()[1]), headers, body)

    async def ask(self, path: str = "/echo", body: bytes = b"") -> Answer:
        """Sends a correct request, and returns its answer."""
        await self.send(request(path, body))
        return await self.read()

    async def closed(self) -> bytes:
        """Waits until the server closes the connection, and returns what it has sent by then."""
        found = b""
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                while piece := await self.reader.read(2**16):
                    found += piece
        return found

    async def close(self) -> None:
        """Closes it."""
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
            await self.writer.wait_closed()


def request(path: str = "/echo", body: bytes = b"", *headers: str) -> bytes:
    """Returns a request as it is sent."""
    lines = [f"POST {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Web:
    """A running server, and connections to it."""

    url: str
    app: App
    context: ssl.SSLContext | None
    server: HttpServer
    opened: list[Raw] = field(default_factory=list[Raw])

    async def connect(self, limit: int = 2**16) -> Raw:
        """Opens a connection, which is closed at the end; its reader takes in twice `limit` bytes ahead."""
        place = urlsplit(self.url)
        found = Raw(*await asyncio.open_connection(place.hostname, place.port, ssl=self.context, limit=limit))
        self.opened.append(found)
        return found


@contextlib.asynccontextmanager
async def web(context: ssl.SSLContext | None = None, **settings: Any) -> AsyncGenerator[Web]:
    """Serves `App` with these settings of the gateway; with a `context`, clients speak TLS."""
    app = App()
    config = GatewayConfig(port=0, drain_timeout_s=1, **settings)
    async with HttpServer(cast(Gateway, app), config, Shedding(LoopLag())) as server:
        found = Web(server.url, app, context, server)
        try:
            yield found
        finally:
            app.release.set()
            for one in found.opened:
                await one.close()
