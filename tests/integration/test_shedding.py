"""Requests that cannot be answered in time are refused at once, over real connections."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from tests.integration.web import Raw, Web, request, web

USES_UVLOOP = True

SOON = "Request-Timeout: 0.1"
LATER = "Request-Timeout: 60"


@pytest.fixture
async def found() -> AsyncIterator[Web]:
    async with web() as found:
        yield found


async def behind(found: Web, stall_s: float, *requests: bytes) -> list[Raw]:
    """Opens connections whose requests come while the loop is busy; the kernel has what they send before the server can read
    it.
    """
    place = urlsplit(found.url)
    sockets = [socket.create_connection((place.hostname, place.port)) for _ in requests]
    for one, data in zip(sockets, requests, strict=True):
        one.sendall(data)
    time.sleep(stall_s)  # noqa: ASYNC251 (that is the point)
    clients = [Raw(*await asyncio.open_connection(sock=one)) for one in sockets]
    found.opened += clients
    return clients


async def test_time_counts_from_when_the_first_byte_came_and_not_from_when_it_is_read(found: Web) -> None:
    late, patient = await behind(found, 0.3, request("/echo", b"half", SOON)[:-2], request("/echo", b"", LATER))
    answer = await late.read()
    assert (answer.status, answer.error["code"], answer.error["retryable"]) == (504, "deadline", False)
    assert "before it was read" in answer.error["error"]
    assert (await patient.read()).status == 200
    assert found.app.events == ["begun", "done"]  # the other one never was
    await late.send(b"lf" + request(body=b"next"))
    assert (await late.read()).body == b"next"


async def test_requests_behind_a_refused_one_are_answered_in_order(found: Web) -> None:
    pair = request("/echo", b"", SOON) + request(body=b"right")
    (client,) = await behind(found, 0.3, pair * 100)
    statuses = [(await client.read()).status for _ in range(200)]
    assert statuses == [504, 200] * 100
