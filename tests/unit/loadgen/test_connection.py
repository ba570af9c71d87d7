"""HTTP answers are read however they come."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from loadgen.targets.base import RequestFailedError
from loadgen.targets.connection import Connection, Reply
from loadgen.targets.failures import http_failure
from loadgen.targets.layout import http_post
from tests.deadlines import TIMEOUT_S

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nInference-Header-Content-Length: 3\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"


class Transport(asyncio.Transport):
    """Remembers what was written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed


def exchange(act: Callable[[Connection], None]) -> tuple[Reply | BaseException, Connection]:
    """Returns what comes of one request, when `act` has played the server."""

    async def play() -> tuple[Reply | BaseException, Connection]:
        connection = Connection(lambda _: None)
        connection.connection_made(Transport())
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        connection.send(b"request", answer)
        act(connection)
        return (await asyncio.gather(asyncio.wait_for(answer, TIMEOUT_S), return_exceptions=True))[0], connection

    return asyncio.run(play())


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
@pytest.mark.parametrize(("answer", "json_bytes"), [(PLAIN, 3), (CHUNKED, -1), (b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, 3)])
def test_an_answer_may_come_in_any_pieces(answer: bytes, json_bytes: int, step: int) -> None:
    def feed(connection: Connection) -> None:
        for at in range(0, len(answer), step):
            connection.data_received(answer[at : at + step])

    found, connection = exchange(feed)
    assert found == (200, json_bytes, b"hello")
    assert connection.is_open


def test_a_connection_is_used_again_unless_the_server_closes_it() -> None:
    _, kept = exchange(lambda connection: connection.data_received(PLAIN))
    assert kept.is_open
    closing = PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    found, closed = exchange(lambda connection: connection.data_received(closing))
    assert found == (200, 3, b"hello")
    assert not closed.is_open


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    def feed(connection: Connection) -> None:
        connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nhel")
        connection.data_received(b"lo")
        connection.connection_lost(None)

    assert exchange(feed)[0] == (200, -1, b"hello")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "without an answer"),
        (PLAIN[:-2], "in the middle of its answer"),
        (CHUNKED[:-7], "in the middle of its answer"),
    ],
)
def test_a_closed_connection_fails(data: bytes, text: str) -> None:
    def feed(connection: Connection) -> None:
        if data:
            connection.data_received(data)
        connection.connection_lost(None)

    found, _ = exchange(feed)
    assert isinstance(found, RequestFailedError)
    assert text in str(found)


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH\r\n", b"\x00" * 100, b"HTTP/1.1 two hundred\r\n\r\n"])
def test_an_answer_that_is_not_http_fails(data: bytes) -> None:
    found, connection = exchange(lambda connection: connection.data_received(data))

    assert isinstance(found, RequestFailedError)
    assert "not HTTP/1.1" in str(found)
    assert not connection.is_open


@pytest.mark.parametrize("more", [PLAIN, b"rubbish"])
def test_unrequested_bytes_end_the_connection(more: bytes) -> None:
    found, connection = exchange(lambda connection: connection.data_received(PLAIN + more))
    assert found == (200, 3, b"hello")
    assert not connection.is_open

    def late(connection: Connection) -> None:
        connection.data_received(PLAIN)
        connection.data_received(more)

    assert not exchange(late)[1].is_open


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (
            503,
            b'{"error":"request 17 is too much","code":"overloaded","retryable":true}',
            "HTTP 503: overloaded: request # is too much",
        ),
        (500, b'{"error":"request 17 failed"}', "HTTP 500: request # failed"),
        (502, b"<html>\n<b>bad  gateway</b>", "HTTP 502: <html> <b>bad gateway</b>"),
        (400, b'{"error":"x1 is FP64, expected FP32, 3 times"}', "HTTP 400: x# is FP64, expected FP32, # times"),
        (404, b"", "HTTP 404"),
        (500, b"x" * 100_000, "HTTP 500: " + "x" * 200),
        (500, b"\xff\xfe", "HTTP 500: \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_errors_are_short_and_alike(status: int, body: bytes, text: str) -> None:
    assert str(http_failure(status, body)) == text


def test_a_request_is_complete() -> None:
    found = http_post("http://user@host:80/base/", "/v2/x", [("Content-Type", "a/b")], {"X-Key": "k"}, b"body")

    head, _, body = found.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /base/v2/x HTTP/1.1",
        b"host: host:80",
        b"content-type: a/b",
        b"x-key: k",
        b"content-length: 4",
    ]
    assert body == b"body"
