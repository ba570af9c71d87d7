"""`AsgiExchange`: paths below others, the loss of the client, and answers on their way out."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from dyorc.config import GatewayConfig
from dyorc.gateway.http.asgi_exchange import AsgiExchange
from dyorc.gateway.http.cors import Cors
from dyorc.protocol.header_names import Header
from tests.deadlines import wait_until_async


class Server:
    """A server with one request: its messages go in, and those of the answer come out."""

    def __init__(
        self, path: str = "/", root: str = "", headers: Sequence[Header] = (), cors: Cors | None = None, version: str = "1.1"
    ) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        scope = {
            "type": "http", "method": "POST", "path": path, "root_path": root, "headers": list(headers), "http_version": version,
            "query_string": b"",
        }  # fmt: skip
        self.exchange = AsgiExchange(scope, self.messages.get, self._send, cors)

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    def body(self, *parts: bytes) -> None:
        """Sends the body."""
        for number, part in enumerate(parts, 1):
            self.messages.put_nowait({"type": "http.request", "body": part, "more_body": number < len(parts)})

    def leave(self) -> None:
        """Closes the connection."""
        self.messages.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        """That of the answer."""
        return self.sent[0]["status"]

    @property
    def headers(self) -> dict[bytes, bytes]:
        """Those of the answer."""
        return dict(self.sent[0]["headers"])


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": memoryview(b"yes")})


@pytest.mark.parametrize(
    ("path", "root", "inner"),
    [
        ("/v2/models", "", "/v2/models"),
        ("/models/v2", "/models", "/v2"),
        ("/models/", "/models", "/"),
        ("/models", "/models", "/"),
        ("/v2/v2/v2", "/v2", "/v2/v2"),
        ("/v2", "/models", "/v2"),  # some servers leave it out of the path
        ("/modelsv2", "/models", "/modelsv2"),
        ("/a/b/v2", "/a/b/", "/v2"),
    ],
)
def test_the_path_below_another(path: str, root: str, inner: str) -> None:
    async def check() -> None:
        seen: list[Scope] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            seen.append(scope)
            await _answer(scope, receive, send)

        server = Server(path, root)
        await server.exchange.run(app)
        assert server.exchange.path == inner
        assert (seen[0]["path"], seen[0]["root_path"]) == (inner, "")

    asyncio.run(check())


def test_parts_of_a_body_come_in_order_also_while_the_client_is_watched() -> None:
    async def check() -> None:
        lost: list[str] = []
        server = Server()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            server.exchange.on_lost(lambda: lost.append("lost"))
            await asyncio.sleep(0)
            server.body(b"a", b"b", b"c")
            parts = [(await receive())["body"] for _ in range(3)]
            assert parts == [b"a", b"b", b"c"]
            waiting = asyncio.ensure_future(receive())
            await asyncio.sleep(0)
            assert not lost
            server.leave()
            assert (await waiting)["type"] == "http.disconnect"
            assert (await receive())["type"] == "http.disconnect"
            await _answer(scope, receive, send)

        await server.exchange.run(app)
        assert lost == ["lost"]

    asyncio.run(check())


@pytest.mark.parametrize("parts", [(), (b"",), (b"part", b"rest")])
def test_a_loss_before_the_body_was_asked_for(parts: tuple[bytes, ...]) -> None:
    async def check() -> None:
        server, is_lost = Server(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            server.exchange.on_lost(is_lost.set)
            server.body(*parts)
            server.leave()
            if len(parts) > 1:  # more than one part is not read ahead
                assert (await receive())["body"] == parts[0]
                assert (await receive())["body"] == parts[1]
            await asyncio.wait_for(is_lost.wait(), 10)
            called: list[int] = []
            server.exchange.on_lost(lambda: called.append(1))
            assert called == [1]
            await _answer(scope, receive, send)

        await server.exchange.run(app)

    asyncio.run(check())


def test_a_discarded_callback_is_not_called() -> None:
    async def check() -> None:
        called: list[int] = []
        server = Server()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            def note() -> None:
                called.append(1)

            server.exchange.on_lost(note)
            server.exchange.discard(note)
            server.body(b"")
            await receive()
            server.leave()
            await receive()
            await _answer(scope, receive, send)

        await server.exchange.run(app)
        assert not called

    asyncio.run(check())


def test_a_crash_is_answered_and_after_the_head_passed_on() -> None:
    async def check() -> None:
        async def crash(scope: Scope, receive: Receive, send: Send) -> None:
            raise ValueError("oh")

        server = Server()
        await server.exchange.run(crash)
        assert server.status == 500
        assert b"request_id" in server.sent[1]["body"]
        assert server.headers[b"x-request-id"]

        async def crash_late(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise ValueError("oh")

        with pytest.raises(ValueError, match="oh"):
            await Server().exchange.run(crash_late)

    asyncio.run(check())


@pytest.mark.parametrize("length", [b"-1", b"ten", b"9" * 40, "²".encode()])
def test_a_length_that_is_none_is_refused(length: bytes) -> None:
    server = Server(headers=[(b"content-length", length)])
    asyncio.run(server.exchange.run(_answer))
    assert server.status == 400
    assert b"expected a number of bytes" in server.sent[1]["body"]


def test_headers_of_answers() -> None:
    origins = Cors.of(GatewayConfig(cors_origins=("https://a.example",)))
    sent = [(b"origin", b"https://a.example"), (b"x-request-id", b"mine")]
    server = Server(headers=sent, cors=origins)
    asyncio.run(server.exchange.run(_answer))
    assert server.headers[b"cache-control"] == b"no-store"
    assert server.headers[b"x-request-id"] == b"mine"
    assert server.headers[b"access-control-allow-origin"] == b"https://a.example"
    assert server.sent[1]["body"] == b"yes"
    assert server.exchange.is_answered

    foreign = Server(headers=sent)
    foreign.exchange.is_foreign = True
    asyncio.run(foreign.exchange.run(_answer))
    assert foreign.headers == {b"connection": b"close"}

    second = Server(version="2")
    asyncio.run(second.exchange.run(_answer))
    assert b"connection" not in second.headers


@pytest.mark.parametrize(("status", "is_read", "closes"), [(413, False, True), (413, True, False), (404, False, False)])
def test_the_connection_ends_if_the_rest_of_a_body_is_too_large(status: int, is_read: bool, closes: bool) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body"})

    server = Server()
    server.body(b"one", *([] if is_read else [b"another"]))
    asyncio.run(server.exchange.run(app))
    assert (b"connection" in server.headers) is closes


@pytest.mark.parametrize("leaves", [True, False])
def test_an_answer_ends_after_the_body_that_it_refused(leaves: bool) -> None:
    """Servers close the connection at the end of the answer; a client that still sends would then lose the answer."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": b"too large"})

    async def check() -> None:
        server = Server()
        server.messages.put_nowait({"type": "http.request", "body": b"one", "more_body": True})
        answering = asyncio.create_task(server.exchange.run(app))
        await wait_until_async(lambda: server.messages.empty() and len(server.sent) == 2, "the answer is sent")
        assert server.sent[1] == {"type": "http.response.body", "body": b"too large", "more_body": True}
        assert not answering.done()
        if leaves:
            server.leave()
        else:
            server.body(b"two")
        await answering
        assert server.sent[2:] == [{"type": "http.response.body", "body": b""}]
        assert server.exchange.is_answered

    asyncio.run(check())


def test_watching_ends_with_the_request() -> None:
    async def check() -> None:
        server = Server()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            server.exchange.on_lost(lambda: None)
            await _answer(scope, receive, send)

        await server.exchange.run(app)
        await asyncio.sleep(0)
        tasks: set[Any] = asyncio.all_tasks() - {asyncio.current_task()}
        assert not tasks

    asyncio.run(check())
