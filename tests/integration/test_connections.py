"""Clients that are slow, silent, greedy or gone, on real sockets, with and without TLS: which are disconnected, when, and how."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from dyorc.gateway.http.http_server import HttpServer
from tests.certificates import Authority
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.web import Raw, Web, request, web

USES_UVLOOP = True

QUICK = {"header_timeout_s": 0.3, "body_timeout_s": 0.3, "write_timeout_s": 0.3, "idle_timeout_s": 0.6, "min_bytes_per_s": 1000}
PATIENT = {"header_timeout_s": 1.0, "body_timeout_s": 1.0, "write_timeout_s": 1.0, "idle_timeout_s": 2.0, "min_bytes_per_s": 1000}
"""For clients that are slow, but not too slow, even where the test itself has to wait for a busy machine."""
LARGE = 32 * 2**20

Tls = dict[str, Any]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs the server's certificate."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module", params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, authority: Authority) -> Tls:
    """Returns settings of a server with or without TLS, and how clients talk to it."""
    if request.param == "plain":
        return {}
    server = authority.sign("server")
    context = ssl.create_default_context(cafile=str(authority.own.certificate))
    return {"context": context, "tls_certificate_file": str(server.certificate), "tls_key_file": str(server.key)}


async def serves(found: Web) -> None:
    """Checks that others are served."""
    other = await found.connect()
    assert (await other.ask(body=b"hello")).body == b"hello"


async def test_a_connection_serves_many_requests_and_every_answer_has_the_headers(tls: Tls) -> None:
    async with web(**tls) as found:
        client = await found.connect()
        for size in (0, 5, 100_000):
            answer = await client.ask(body=bytes(size))
            assert (answer.status, len(answer.body)) == (200, size)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert "server" not in answer.headers


async def test_requests_sent_ahead_are_answered_in_order(tls: Tls) -> None:
    async with web(**tls) as found:
        client = await found.connect()
        await client.send(b"".join(request(body=b"%d" % number) for number in range(20)))
        assert [(await client.read()).body for _ in range(20)] == [b"%d" % number for number in range(20)]


async def test_however_many_requests_come_at_once_all_are_answered(tls: Tls) -> None:
    async with web(**tls) as found:
        client = await found.connect()
        small = b"".join(request(body=b"%d" % number) for number in range(1000))
        sending = asyncio.create_task(client.send(small + request(body=bytes(100_000)) + small))
        expected = [b"%d" % number for number in range(1000)]
        assert [(await client.read()).body for _ in range(2001)] == [*expected, bytes(100_000), *expected]
        await sending


@pytest.mark.parametrize(
    ("end", "status"), [(b"\x16garbage\r\n", 400), (b"GET /echo HTTP/1.1\r\n\r\n", 400), (request()[:-2], 408)]
)
async def test_requests_before_a_bad_one_are_answered(tls: Tls, end: bytes, status: int) -> None:
    async with web(**tls, **QUICK) as found:
        client = await found.connect()
        await client.send(request("/hang") + request(body=b"second") + end)
        await wait_until_async(lambda: found.app.events, "the first request is answered")
        await asyncio.sleep(0.7)  # more than a head may take
        found.app.release.set()
        assert [(await client.read()).status for _ in range(3)] == [200, 200, status]
        assert await client.closed() == b""


async def test_a_bad_body_ends_its_request_and_no_other(tls: Tls) -> None:
    bad = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n"
    async with web(**tls) as found:
        client = await found.connect()
        await client.send(request(body=b"first") + bad)
        assert (await client.read()).body == b"first"
        assert (await client.read()).status == 400
        assert await client.closed() == b""


async def test_an_old_client_keeps_its_connection_if_it_asks_for_it(tls: Tls) -> None:
    def old(path: str, *headers: str) -> bytes:
        return request(path, b"", *headers).replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Host: test\r\n", b"")

    async with web(**tls) as found:
        client = await found.connect()
        await client.send(old("/large/3", "Connection: keep-alive") * 2)
        for _ in range(2):
            answer = await client.read()
            assert (answer.status, answer.headers["connection"], answer.body) == (200, "keep-alive", bytes(3))
        await client.send(old("/large/3", "Expect: 100-continue"))
        answer = await client.read()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.closed() == b""


async def test_an_old_client_gets_no_chunks(tls: Tls) -> None:
    async with web(**tls) as found:
        client = await found.connect()
        await client.send(b"GET /parts HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        head, _, body = (await client.closed()).partition(b"\r\n\r\n")
        assert b"connection: close" in head
        assert b"transfer-encoding" not in head
        assert body == b"onetwo"


async def test_a_body_that_nobody_asked_for_is_not_waited_for(tls: Tls) -> None:
    async with web(**tls, **QUICK) as found:
        client = await found.connect()
        await client.send(request("/early", bytes(1000), "Expect: 100-continue")[:-1000])
        answer = await client.read()
        assert (answer.body, answer.headers["connection"]) == (b"early", "close")
        assert await client.closed() == b""


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        (request("/hang"), [100, 200]),  # asked whether it is still there
        (request("/hang").replace(b"HTTP/1.1", b"HTTP/1.0"), [200]),
        (request("/hang") + request(), [200, 200]),
    ],
    ids=["one", "old", "two"],
)
async def test_a_client_that_closes_its_sending_side_gets_its_answers(requests: bytes, expected: list[int]) -> None:
    async with web() as found:
        client = await found.connect()
        await client.send(requests)
        await wait_until_async(lambda: found.app.events, "the first request comes")
        client.writer.write_eof()
        await asyncio.sleep(0.2)
        assert found.app.events == ["begun"]  # and not lost
        found.app.release.set()
        statuses = [int(line.split()[1]) for line in (await client.closed()).split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
        assert [one for one in statuses if one != 100 or 100 in expected] == expected


async def test_half_a_request_before_the_end_is_dropped() -> None:
    async with web() as found:
        client, other = await found.connect(), await found.connect()
        await client.send(request(body=b"whole") + request(body=b"half")[:-2])
        client.writer.write_eof()
        answers = await client.closed()
        assert answers.endswith(b"whole")
        assert answers.count(b"HTTP/1.1 200 OK") == 1
        await other.send(request(body=b"half")[:-2])
        other.writer.write_eof()
        assert await other.closed() == b""
        await wait_until_async(lambda: found.app.events.count("begun") == found.app.events.count("done"), "all have ended")


OFFER = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")


async def test_an_offer_of_another_protocol_is_ignored(tls: Tls) -> None:
    async with web(**tls) as found:
        client = await found.connect()
        await client.send(request("/echo", b"", *OFFER) + request(body=b"next"))
        assert [(await client.read()).body for _ in range(2)] == [b"", b"next"]
        whole = request("/echo", b"in a packet of its own", *OFFER)
        head, body = whole[:-22], whole[-22:]
        await client.send(head)
        await wait_until_async(lambda: len(found.app.events) == 5, "the request begins")
        await client.send(body)
        assert (await client.read()).body == body
        await client.send(whole)
        assert (await client.read()).body == body


@pytest.mark.parametrize("start", [b"P", b"POST /echo HTTP/1.1\r\nX: ", b"\r\n\r\nPOST "])
async def test_a_head_that_does_not_end_is_answered_with_408(tls: Tls, start: bytes) -> None:
    async with web(**tls, **QUICK) as found:
        client = await found.connect()
        await client.ask()
        await client.send(start)
        answer = await client.read()
        assert (answer.status, answer.error["code"]) == (408, "http")
        assert answer.headers["connection"] == "close"
        assert await client.closed() == b""
        await serves(found)


async def test_a_byte_now_and_then_does_not_prolong_a_head(tls: Tls) -> None:
    async with web(**tls, **QUICK) as found:
        client = await found.connect()
        await client.send(b"POST /echo HTTP/1.1\r\nX: ")
        dripping = asyncio.create_task(drip(client, b"x", 0.05))
        assert (await client.read()).status == 408
        dripping.cancel()


async def drip(client: Raw, data: bytes, every_s: float) -> None:
    """Sends `data` again and again, until it cannot."""
    while True:
        await client.send(data)
        await asyncio.sleep(every_s)


@pytest.mark.parametrize("num_bytes_at_once", [0, 1])
async def test_a_body_that_does_not_come_is_answered_with_408(tls: Tls, num_bytes_at_once: int) -> None:
    async with web(**tls, **QUICK) as found:
        client = await found.connect()
        await client.send(request(body=bytes(10_000))[:-9_999])
        dripping = asyncio.create_task(drip(client, bytes(num_bytes_at_once), 0.05))
        answer = await client.read()
        dripping.cancel()
        assert answer.status == 408
        assert "body brought" in answer.error["error"]
        await wait_until_async(lambda: found.app.events == ["begun"] or found.app.events == ["begun", "done"], "the end")
        await serves(found)


async def test_a_body_that_comes_slowly_enough_is_waited_for(tls: Tls) -> None:
    async with web(**tls, **PATIENT) as found:
        client = await found.connect()
        await client.send(request(body=bytes(20_000))[:-20_000])
        for _ in range(20):  # two seconds, at ten times the rate
            await client.send(bytes(1000))
            await asyncio.sleep(0.1)
        assert (await client.read()).status == 200


async def test_an_idle_connection_is_closed_and_nothing_is_sent(tls: Tls) -> None:
    async with web(**tls, **QUICK) as found:
        fresh, used = await found.connect(), await found.connect()
        await used.ask()
        assert await asyncio.gather(fresh.closed(), used.closed()) == [b"", b""]


async def test_a_connection_waits_for_a_long_request(tls: Tls) -> None:
    async with web(**tls, **PATIENT) as found:
        client = await found.connect()
        asking = asyncio.create_task(client.ask("/hang"))
        await asyncio.sleep(2.5)  # more than any of the limits
        found.app.release.set()
        assert (await asking).status == 200
        assert found.app.events == ["begun", "done"]


async def test_a_client_that_does_not_read_is_disconnected_and_the_request_ends(tls: Tls) -> None:
    async with web(**tls, **QUICK) as found:
        client = await found.connect(limit=1024)
        with capture_logs() as logs:
            await client.send(request(f"/large/{LARGE}"))
            await wait_until_async(lambda: found.app.events == ["begun", "done"], "the request ends")
        (line,) = [line for line in logs if line["event"] == "client_cut_off"]
        assert "gateway.write_timeout_s" in line["cause"]
        assert line["peer"].startswith("127.0.0.1:")
        await serves(found)
        assert len(await client.closed()) < LARGE


async def test_the_answer_is_not_done_before_most_of_it_is_read(tls: Tls) -> None:
    async with web(**tls) as found:
        client = await found.connect(limit=1024)
        asking = asyncio.create_task(client.send(request(f"/large/{LARGE}")))
        await serves(found)
        await asyncio.sleep(0.2)
        assert found.app.events == ["begun", "begun", "done"]
        await asking
        assert len((await client.read()).body) == LARGE
        await wait_until_async(lambda: found.app.events == ["begun", "begun", "done", "done"], "the request ends")


async def test_a_client_that_reads_slowly_enough_gets_all(tls: Tls) -> None:
    async with web(**tls, **PATIENT) as found:
        client = await found.connect(limit=64 * 2**10)
        await client.send(request(f"/large/{LARGE}"))
        num_bytes = 0
        for _ in range(12):  # longer than the limit
            num_bytes += len(await client.reader.read(256 * 2**10))
            await asyncio.sleep(0.1)
        while num_bytes < LARGE:
            piece = await client.reader.read(2**20)
            assert piece
            num_bytes += len(piece)


async def test_small_answers_that_nobody_reads_do_not_keep_a_connection(tls: Tls) -> None:
    async with web(**tls, **QUICK) as found:
        client = await found.connect(limit=1024)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.wait_for(drip(client, request("/large/200000"), 0.01), TIMEOUT_S)
        assert found.app.events.count("done") > 0
        await serves(found)


async def test_nothing_more_is_read_while_a_request_waits_for_its_turn(tls: Tls) -> None:
    async with web(**tls) as found:
        client = await found.connect()
        await client.send(request("/hang") + request(body=b"second"))
        await wait_until_async(lambda: found.app.events, "the first request is answered")
        await serves(found)
        connections = found.server.registry.connections
        assert any(one.flow.is_reading_paused for one in connections)
        found.app.release.set()
        await client.read()
        assert (await client.read()).body == b"second"


async def test_requests_of_clients_that_read_no_answers_are_not_collected(tls: Tls) -> None:
    async with web(**tls, **QUICK) as found:
        client = await found.connect(limit=1024)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.wait_for(drip(client, request("/large/10000") * 1000, 0), TIMEOUT_S)
        assert found.app.events.count("begun") < 5000
        await serves(found)


@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize(
    "head",
    [
        b"POST /echo HTTP/1.1\r\n" + b"".join(b"x-%d: %s\r\n" % (number, b"v" * 100) for number in range(100)),
        b"POST /echo HTTP/1.1\r\nx: " + b"v" * 10_000 + b"\r\n",
        b"POST /echo HTTP/1.1\r\n" + b"n" * 10_000 + b": v\r\n",
        b"POST /" + b"u" * 10_000 + b" HTTP/1.1\r\n",
        b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: " + b"v" * 10_000 + b"\r\n",
    ],
    ids=["headers", "value", "name", "target", "trailer"],
)
async def test_a_head_that_is_too_large_is_answered_with_431(tls: Tls, head: bytes, is_at_once: bool) -> None:
    async with web(**tls, max_header_bytes=8192) as found:
        client = await found.connect()
        for part in [head + b"\r\n"] if is_at_once else [head[at : at + 1000] for at in range(0, len(head), 1000)]:
            await client.send(part)
            await asyncio.sleep(0 if is_at_once else 0.01)
        answer = await client.read()
        assert (answer.status, answer.headers["connection"]) == (431, "close")
        assert "8192 bytes" in answer.error["error"]
        await serves(found)


async def test_a_head_without_an_end_is_not_collected(tls: Tls) -> None:
    async with web(**tls, max_header_bytes=8192) as found:
        client = await found.connect()
        await client.send(b"POST /echo HTTP/1.1\r\nx: ")
        for _ in range(12):
            await client.send(b"v" * 1000)
            await asyncio.sleep(0.01)
        assert (await client.read()).status == 431


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01\x00", b"hello\r\n\r\n", b"GET  HTTP/9.9\r\n\r\n"])
async def test_bytes_that_are_not_http_are_answered_with_400(garbage: bytes) -> None:
    async with web() as found:
        client = await found.connect()
        await client.send(garbage)
        answer = await client.read()
        assert (answer.status, answer.error["code"]) == (400, "http")
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_rest_of_a_body_answered_early_is_discarded_but_not_for_ever(tls: Tls) -> None:
    beginnings = [request("/early", bytes(size))[: 1 - size] for size in (10_000, 10**8)]  # before anybody waits for the rest
    async with web(**tls, **PATIENT) as found:
        client, endless = await found.connect(), await found.connect()
        for one, beginning in zip((client, endless), beginnings, strict=True):
            await one.send(beginning)
            assert (await one.read()).body == b"early"
        await client.send(bytes(9_999))
        assert (await client.ask(body=b"next")).body == b"next"
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.wait_for(drip(endless, bytes(1000), 0.01), TIMEOUT_S)


async def test_one_connection_too_many_is_answered_with_503(tls: Tls) -> None:
    async with web(**tls, max_connections=3) as found:
        clients = [await found.connect() for _ in range(3)]
        for client in clients:
            assert (await client.ask()).status == 200
        refused = await found.connect()
        answer = await refused.read()
        assert (answer.status, answer.error["code"], answer.error["retryable"]) == (503, "capacity", True)
        assert answer.headers["retry-after"] == "1"
        await refused.closed()
        await clients[0].close()
        await takes_connections_again(found)


async def takes_connections_again(found: Web) -> None:
    """Returns once a new connection is accepted again."""
    async with asyncio.timeout(TIMEOUT_S):
        while (await (await found.connect()).ask()).status != 200:
            pass


@pytest.mark.parametrize("size", [0, 1_000_000])
@pytest.mark.parametrize("leave", [lambda client: client.writer.transport.abort(), lambda client: client.writer.close()])
async def test_a_lost_connection_is_reported(tls: Tls, leave: Callable[[Raw], object], size: int) -> None:
    async with web(**tls) as found:
        client = await found.connect()
        await client.send(request("/hang", bytes(size)))
        await wait_until_async(lambda: found.app.events, "the request comes")
        await asyncio.sleep(0.05)  # the rest of it, too
        leave(client)
        async with asyncio.timeout(TIMEOUT_S):
            await found.app.release.wait()
        assert found.app.events[:2] == ["begun", "lost"]


async def test_a_handshake_that_does_not_come_times_out(authority: Authority) -> None:
    server = authority.sign("server")
    async with web(tls_certificate_file=str(server.certificate), tls_key_file=str(server.key), **QUICK) as found:
        assert found.url.startswith("https://")
        silent = await found.connect()  # speaks no TLS
        await silent.send(b"\x16")
        assert await silent.closed() == b""


async def test_stopping_does_not_wait_for_clients_that_never_read() -> None:
    async with web() as found:
        client = await found.connect(limit=1024)
        await client.send(request(f"/large/{LARGE}"))
        await wait_until_async(lambda: found.app.events, "the request comes")
        async with asyncio.timeout(TIMEOUT_S):
            await found.server.__aexit__(None, None, None)
        connections = found.server.registry.connections
        await wait_until_async(lambda: not connections, "the connection is gone, though nobody has read")
        assert len(await client.closed()) < LARGE


async def test_mutual_tls_admits_clients_that_the_authority_has_signed(authority: Authority, tmp_path: Path) -> None:
    server, friend = authority.sign("server"), authority.sign("friend")
    stranger = Authority(tmp_path).sign("stranger")
    files = {"tls_certificate_file": str(server.certificate), "tls_key_file": str(server.key)}
    async with web(**files, tls_client_roots_file=str(authority.own.certificate)) as found:
        for who, is_let_in in ((friend, True), (stranger, False), (None, False)):
            context = ssl.create_default_context(cafile=str(authority.own.certificate))
            if who is not None:
                context.load_cert_chain(who.certificate, who.key)
            found.context = context
            if is_let_in:
                await serves(found)
            else:
                with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                    await serves(found)
        assert found.app.events == ["begun", "done"]


@pytest.mark.parametrize("num_turns", range(6))
def test_a_connection_that_comes_while_the_server_stops_is_closed(num_turns: int) -> None:
    """The loop needs a few turns to make a connection of one that the kernel has accepted: it stops after each of them."""

    async def serve(client: socket.socket) -> HttpServer:
        async with web() as found:
            place = urlsplit(found.url)
            client.connect((place.hostname, place.port))
            for _ in range(num_turns):
                await asyncio.sleep(0)
        return found.server

    with socket.socket() as client:
        server = asyncio.run(serve(client))
        assert not server.registry.connections
        client.settimeout(10)  # the loop has ended: it is closed now, or never
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


async def test_a_request_that_comes_while_the_server_stops_on_an_open_connection_is_answered_and_the_last_there() -> None:
    async with web() as served:
        place = urlsplit(served.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        draining = None
        try:
            for is_last in (False, True):
                writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                assert head.startswith(b"http/1.1 200")
                assert (b"connection: close" in head) == is_last
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                draining = draining or asyncio.create_task(served.server.drain(TIMEOUT_S))
                await asyncio.sleep(0.01)  # now it stops
            assert await reader.read() == b""
            await draining  # and waits for nothing else
        finally:
            writer.close()
