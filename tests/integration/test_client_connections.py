"""How the client's connections read, from a real socket."""

import asyncio
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from dyorc.client.exchanges import clock_s
from dyorc.client.http import AnswerBody
from dyorc.client.http_transports import async_transport, transport
from tests.scripted_server import ScriptedServer, answer, scripted_server

BODY = np.random.default_rng(5).bytes(32 * 2**20)
HTTPX_PIECE_BYTES = 2**16


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as found:
        found.on("/large", answer(200, BODY))
        found.on("/small", answer(200, b"few"))
        yield found


def _pieces(url: str) -> list[bytes]:
    pool = transport(False, None)
    try:
        response = pool.handle_request(httpx.Request("GET", url, extensions={"timeout": {"read": 60.0}}))
        return list(response.iter_raw())
    finally:
        pool.abort()


async def _pieces_on_loop(url: str) -> list[bytes]:
    pool = async_transport(False, None)
    try:
        response = await pool.handle_async_request(httpx.Request("GET", url, extensions={"timeout": {"read": 60.0}}))
        return [piece async for piece in response.aiter_raw()]
    finally:
        await pool.abort()


async def _read(url: str, *, is_async: bool) -> list[bytes]:
    return await _pieces_on_loop(url) if is_async else await asyncio.to_thread(_pieces, url)


@pytest.mark.parametrize("is_async", [False, True])
async def test_large_answers_come_in_larger_pieces_than_httpx_reads(server: ScriptedServer, is_async: bool) -> None:
    pieces = await _read(f"{server.url}/large", is_async=is_async)
    assert b"".join(pieces) == BODY
    assert max(map(len, pieces)) > HTTPX_PIECE_BYTES
    assert await _read(f"{server.url}/small", is_async=is_async) == [b"few"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_errors_are_those_of_httpx(server: ScriptedServer, is_async: bool) -> None:
    url = server.url.replace("127.0.0.1", "127.0.0.1.invalid")
    with pytest.raises(httpx.ConnectError):
        await _read(f"{url}/large", is_async=is_async)


@pytest.mark.parametrize("num_announced", [9, 10])
def test_an_answer_that_is_announced_as_too_long_is_refused_before_it_comes(num_announced: int) -> None:
    response = httpx.Response(200, headers={"content-length": str(num_announced)})
    if num_announced > 9:
        with pytest.raises(Exception, match="longer than the 9 bytes"):
            AnswerBody(response, 9, float("inf"), clock_s)
        return
    body = AnswerBody(response, 9, float("inf"), clock_s)
    body.feed(b"12345")
    body.feed(b"6789")
    assert bytes(body.reply().content) == b"123456789"


def test_an_answer_of_known_length_is_received_into_one_piece_of_memory() -> None:
    body = AnswerBody(httpx.Response(200, headers={"content-length": "6"}), 100, float("inf"), clock_s)
    body.feed(b"123")
    first = np.frombuffer(body.reply().content, np.uint8)
    body.feed(b"456")
    assert first.tobytes() == b"123456"
