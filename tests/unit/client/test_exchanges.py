"""Requests and answers that nobody waits for are given up."""

import math
from collections.abc import Iterator

import httpx
import pytest

from dyorc.client.effects import Read, Reply, Send
from dyorc.client.exchanges import HttpExchange, clock_s
from dyorc.client.http import ServerEndpoint
from dyorc.client.transport_pools import TransportPool
from dyorc.errors import DeadlineError
from dyorc.protocol.inference_request import PreparedRequest
from tests.deadlines import TIMEOUT_S


class _Stream(httpx.SyncByteStream):
    def __init__(self) -> None:
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield b"one"
        yield b"two"

    def close(self) -> None:
        self.is_closed = True


class _Transport:
    """Answers without a network."""

    def __init__(self, stream: httpx.SyncByteStream, status: int = 200) -> None:
        self._answer = httpx.Response(status, stream=stream)
        self.is_aborted = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._answer

    def abort(self) -> None:
        self.is_aborted = True


def _exchange(transport: _Transport) -> HttpExchange:
    return HttpExchange(TransportPool(lambda: transport, 1), CONNECTION)


CONNECTION = ServerEndpoint.to("http://server", None, 1000)
STREAMED = Send(PreparedRequest("GET", "/x"), math.inf, is_streamed=True)


@pytest.mark.parametrize("num_read", [0, 1, 3])
def test_closing_an_exchange_closes_its_connection_unless_the_answer_was_read_to_its_end(num_read: int) -> None:
    transport = _Transport(_Stream())
    exchange = _exchange(transport)
    assert isinstance(exchange.perform(STREAMED), Reply)
    assert [exchange.perform(Read(math.inf)) for _ in range(num_read)] == [b"one", b"two", b""][:num_read]
    assert not transport.is_aborted
    exchange.close()
    assert transport.is_aborted == (num_read < 3)


class _Interruption(BaseException):
    """What a signal handler raises."""


class _Interrupted(httpx.SyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        yield b"one"
        raise _Interruption


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_transport_that_was_interrupted_is_not_used_again(is_streamed: bool) -> None:
    made: list[_Transport] = []

    def make() -> _Transport:
        made.append(_Transport(_Interrupted() if len(made) == 0 else _Stream()))
        return made[-1]

    pool = TransportPool(make, 1)
    exchange = HttpExchange(pool, CONNECTION)
    request = Send(PreparedRequest("GET", "/x"), math.inf, is_streamed)
    with pytest.raises(_Interruption):
        assert [exchange.perform(effect) for effect in (request, Read(math.inf), Read(math.inf))]
    exchange.close()
    assert made[0].is_aborted
    assert (
        bytes(HttpExchange(pool, CONNECTION).perform(Send(PreparedRequest("GET", "/x"), clock_s() + TIMEOUT_S)).content)
        == b"onetwo"
    )
    assert len(made) == 2


def test_the_body_of_an_error_is_read_even_if_a_stream_was_asked_for() -> None:
    stream = _Stream()
    reply = _exchange(_Transport(stream, 500)).perform(STREAMED)
    assert (reply.status, bytes(reply.content)) == (500, b"onetwo")
    assert stream.is_closed


def test_a_request_with_no_time_left_is_not_sent() -> None:
    outcome = _exchange(_Transport(_Stream())).perform(Send(PreparedRequest("GET", "/x"), 0.0))
    assert isinstance(outcome.error, DeadlineError)
    assert not outcome.was_sent
