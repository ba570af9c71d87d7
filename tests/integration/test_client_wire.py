"""Both shells of the client against a server that fails as real servers and proxies do."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dyorc.client import JobState, Retries
from dyorc.client import http_transports as connections  # ALIAS
from dyorc.errors import (
    CapacityError,
    ConflictError,
    DeadlineError,
    DyOrcError,
    ProgramError,
    TransportError,
    UnknownJobError,
    UnknownModelError,
)
from tests import oip
from tests.client_shells import SHELLS, shell
from tests.deadlines import TIMEOUT_S
from tests.scripted_server import (
    STREAM,
    Received,
    ScriptedServer,
    answer,
    binary_answer,
    chunked,
    close,
    error,
    frame,
    json_answer,
    metadata,
    outputs,
    raw,
    scripted_server,
    silence,
)

INFER, STREAMED, JOBS = "/v2/models/m/infer", "/v2/models/m/infer_stream", "/v1/jobs"
MODEL = metadata({"x": ("FP32", [-1])}, {"y": ("FP32", [-1])})
Y = {"y": np.arange(3, dtype=np.float32)}
QUICK = Retries(max_attempts=3, first_backoff_s=0.001, max_backoff_s=0.001)
REPEATING = Retries(max_attempts=3, first_backoff_s=0.001, max_backoff_s=0.001, repeats=True)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """Starts a server that knows a model."""
    with scripted_server() as found:
        found.on("/v2/models/m", json_answer(MODEL))
        yield found


@pytest.fixture(params=SHELLS)
def client(request: pytest.FixtureRequest, server: ScriptedServer) -> Iterator[Any]:
    """Yields each of the two clients, behind one interface."""
    settings = {"retries": QUICK, "api_key": "secret", "timeout_s": TIMEOUT_S, "max_answer_bytes": 100_000}
    with shell(request.param, server.url, **settings) as found:
        yield found


def _part(number: int) -> bytes:
    return frame(*binary_answer({"y": np.full(2, number, np.float32)}))


def test_a_request_is_one_of_the_protocol(server: ScriptedServer, client: Any) -> None:
    server.on(INFER, outputs(Y))
    assert client.infer("m", x=np.ones(2, np.float32), threshold=0.5, timeout_s=7, request_id="r").tolist() == [0, 1, 2]
    request = server.received[-1]
    tensor, content = oip.binary_tensor("x", np.ones(2, np.float32))
    assert request.head == {"id": "r", "inputs": [tensor], "parameters": {"threshold": 0.5, "binary_data_output": True}}
    assert request.body.endswith(content)
    assert 6 < float(request.headers["request-timeout"]) <= 7
    assert request.headers["authorization"] == "Bearer secret"
    assert server.url.endswith(request.headers["host"])
    assert request.headers["accept-encoding"] == "identity"


def test_a_large_request_arrives_and_a_large_answer_can_be_written_to(server: ScriptedServer, client: Any) -> None:
    image = np.random.default_rng(7).random(500_000).astype(np.float32)
    given = {"y": image[:20_000]}
    server.on(INFER, outputs(given), outputs(given, id="longer, so that tensors begin elsewhere"))
    for _ in range(2):
        found = client.infer("m", x=image)
        assert server.received[-1].body.endswith(image.tobytes())
        assert found.tobytes() == given["y"].tobytes()
        assert found.flags.aligned
        found += 1


def test_connections_are_kept(server: ScriptedServer, client: Any) -> None:
    ports: set[int] = set()

    def script(request: Received, connection: socket.socket) -> bool:
        ports.add(connection.getpeername()[1])
        return outputs(Y)(request, connection)

    server.on(INFER, script)
    for _ in range(3):
        client.infer("m", x=[1.0])
    assert len(ports) == 1


def test_a_temporary_refusal_is_retried(server: ScriptedServer, client: Any) -> None:
    server.on(INFER, error(503, "full", "capacity", True), error(429, "slow down", "tenant_limit", True), outputs(Y))
    assert client.infer("m", x=[1.0]).tolist() == [0, 1, 2]
    server.on(INFER, error(503, "full", "capacity", True))
    with pytest.raises(CapacityError, match="full"):
        client.infer("m", x=[1.0])
    assert server.paths().count(INFER) == 6


def test_a_permanent_refusal_is_not_retried(server: ScriptedServer, client: Any) -> None:
    server.on(INFER, error(500, "program 'p' failed: ValueError: no", "program"))
    with pytest.raises(ProgramError, match="program 'p' failed: ValueError: no"):
        client.infer("m", x=[1.0])
    server.on("/v2/models/other", error(404, "unknown model 'other'", "unknown_model"))
    with pytest.raises(UnknownModelError):
        client.infer("other", x=[1.0])
    assert server.paths().count(INFER) == 1


BREAKS: dict[str, Any] = {
    "closed": close,
    "cut in the head": raw(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "cut in the body": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"),
    "no HTTP": raw(b"\x00\x01\x02 what is this\r\n\r\n"),
}


@pytest.mark.parametrize("kind", BREAKS)
def test_after_a_broken_connection_only_repeatable_requests_are_retried(server: ScriptedServer, client: Any, kind: str) -> None:
    server.on(INFER, BREAKS[kind], outputs(Y))
    assert client.infer("m", x=[1.0], retries=REPEATING).tolist() == [0, 1, 2]
    server.on(INFER, BREAKS[kind], outputs(Y))
    with pytest.raises(TransportError, match=r"the connection to http://.* broke") as found:
        client.infer("m", x=[1.0])
    assert found.value.retryable
    assert server.paths().count(INFER) == 3
    server.on("/v2/models", BREAKS[kind], json_answer({"models": ["m"]}))
    assert client.models() == ["m"], "asking twice does no harm"


GARBAGE: dict[str, Any] = {
    "text": answer(200, b"hello"),
    "nothing": answer(200, b""),
    "another object": json_answer({"hello": 1}),
    "a length beyond the body": answer(200, b"{}", {oip.LENGTH_HEADER: "3"}),
    "a length that is none": answer(200, b"{}", {oip.LENGTH_HEADER: "x"}),
    "compressed, but not": answer(200, b"hello", {"Content-Encoding": "gzip"}),
    "redirected": answer(302, b"", {"Location": "/elsewhere"}),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_an_answer_that_cannot_be_read_is_a_transport_error(server: ScriptedServer, client: Any, kind: str) -> None:
    server.on(INFER, GARBAGE[kind])
    with pytest.raises(TransportError) as found:
        client.infer("m", x=[1.0], retries=REPEATING)
    assert not found.value.retryable
    assert server.paths().count(INFER) == 1
    server.on(INFER, outputs(Y))
    assert client.infer("m", x=[1.0]).tolist() == [0, 1, 2], "and the client goes on"


def test_an_answer_that_is_too_long_is_not_taken(server: ScriptedServer, client: Any) -> None:
    head, _ = binary_answer({"y": np.zeros(25_000, np.float32)})
    longest = (100_000 - len(head)) // 4
    server.on(INFER, outputs({"y": np.zeros(longest, np.float32)}), outputs({"y": np.zeros(longest + 1, np.float32)}))
    assert client.infer("m", x=[1.0]).shape == (longest,)
    with pytest.raises(TransportError, match="the answer is longer than the 100000 bytes that the client takes"):
        client.infer("m", x=[1.0])


def test_a_server_that_cannot_be_reached_is_tried_again_and_named(client: Any) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with (
        shell("blocking" if type(client).__name__ == "Client" else "asyncio", url, retries=QUICK) as lonely,
        pytest.raises(TransportError, match=f"cannot connect to {url}"),
    ):
        lonely.infer("m", x=[1.0])
    with shell("asyncio", url) as lonely:
        assert not lonely.is_live()
        with pytest.raises(DeadlineError, match="not ready in time: cannot connect"):
            lonely.wait_until_ready(1.5)


def _dripping(request: Received, connection: socket.socket) -> bool:
    """Sends its answer byte by byte, for ever."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    stop = threading.Event()
    while not stop.wait(0.01):
        connection.sendall(b" ")
    return False


@pytest.mark.parametrize("script", [silence, _dripping])
def test_an_operation_ends_at_its_timeout(server: ScriptedServer, client: Any, script: Any) -> None:
    server.on(INFER, script)
    start_s = time.monotonic()
    with pytest.raises(DeadlineError):
        client.infer("m", x=[1.0], timeout_s=0.3)
    assert time.monotonic() - start_s > 0.25
    assert server.paths().count(INFER) == 1


def test_a_server_that_falls_silent_late_gets_no_extra_time(
    server: ScriptedServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blocking client limits each wait by what is left; the other one has a single limit for all."""
    is_late, limits_s = threading.Event(), list[float]()
    read = connections._Stream.read  # pyright: ignore[reportPrivateUsage]

    def watched(self: Any, max_bytes: int, timeout: float | None = None) -> bytes:
        if is_late.is_set():
            assert timeout is not None
            limits_s.append(timeout)
        return read(self, max_bytes, timeout)

    monkeypatch.setattr(connections._Stream, "read", watched)  # pyright: ignore[reportPrivateUsage]

    def script(request: Received, connection: socket.socket) -> bool:
        threading.Event().wait(0.5)
        is_late.set()
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")(request, connection)
        return silence(request, connection)

    server.on(INFER, script)
    with pytest.raises(DeadlineError):
        client.infer("m", x=[1.0], timeout_s=1.5)
    assert all(limit_s <= 1.0 for limit_s in limits_s), "and not a whole limit after the wait"


def test_retries_stay_within_the_time(server: ScriptedServer, client: Any) -> None:
    server.on(INFER, error(503, "full", "capacity", True, {"Retry-After": "60"}))
    with pytest.raises(CapacityError, match="full") as found:
        client.infer("m", x=[1.0], timeout_s=30)
    assert found.value.retry_after_s == 60
    assert server.paths().count(INFER) == 1


def test_a_connection_that_the_server_closed_meanwhile_is_not_used(server: ScriptedServer, client: Any) -> None:
    closed = threading.Event()

    def script(request: Received, connection: socket.socket) -> bool:
        outputs(Y)(request, connection)
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()
        return False

    server.on(INFER, script)
    for _ in range(3):
        closed.clear()
        assert client.infer("m", x=[1.0], retries=Retries(max_attempts=1)).tolist() == [0, 1, 2]
        assert closed.wait(TIMEOUT_S)


def test_parts_come_as_they_are_sent(server: ScriptedServer, client: Any) -> None:
    go_on = threading.Event()

    def script(request: Received, connection: socket.socket) -> bool:
        connection.sendall(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: {STREAM}\r\n\r\n".encode())
        for number in range(3):
            part = _part(number)
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            assert go_on.wait(TIMEOUT_S)
            go_on.clear()
        connection.sendall(b"0\r\n\r\n")
        return True

    server.on(STREAMED, script)
    found: list[list[float]] = []
    for part in client.stream("m", x=[1.0]):
        found.append(part.tolist())
        go_on.set()
    assert found == [[0.0] * 2, [1.0] * 2, [2.0] * 2]
    assert server.received[-1].headers["accept"] == STREAM
    server.on(INFER, outputs(Y))
    client.infer("m", x=[1.0])


def test_a_stream_that_fails_yields_its_parts_first(server: ScriptedServer, client: Any) -> None:
    failure = frame(b'{"error": "program \'p\' failed: E: late", "code": "program", "retryable": true}')
    cases: dict[str, tuple[Any, type[DyOrcError]]] = {
        "late": (chunked([_part(0) + _part(1)[:5], _part(1)[5:] + failure]), ProgramError),
        "ended within a part": (chunked([_part(0), _part(1), _part(2)[:9]]), TransportError),
        "broke": (chunked([_part(0), _part(1)], is_complete=False), TransportError),
        "8589934590 bytes": (chunked([_part(0), _part(1), b"\xff" * 8]), TransportError),
    }
    for text, (script, kind) in cases.items():
        server.on(STREAMED, script, error(500, "sent again", "internal"))
        found: list[float] = []

        def read(found: list[float] = found) -> None:
            for part in client.stream("m", x=[1.0], retries=REPEATING):
                found.append(part[0])

        with pytest.raises(kind, match=text):
            read()
        assert found == [0, 1]


def test_a_stream_may_be_refused_and_tried_again_before_it_begins(server: ScriptedServer, client: Any) -> None:
    server.on(STREAMED, error(503, "full", "capacity", True), chunked([_part(0)]))
    assert [part.tolist() for part in client.stream("m", x=[1.0])] == [[0.0, 0.0]]
    server.on(STREAMED, chunked([b"data: {}\n\n"], {"Content-Type": "text/event-stream"}))
    server.on(STREAMED, answer(200, b"data: {}\n\n", {"Content-Type": "text/event-stream; charset=utf-8"}))
    with pytest.raises(TransportError, match="answered a stream with 'text/event-stream', expected 'application/vnd"):
        next(client.stream("m", x=[1.0]))


def test_stopping_a_stream_early_closes_its_connection(server: ScriptedServer, client: Any) -> None:
    is_gone = threading.Event()

    def script(request: Received, connection: socket.socket) -> bool:
        chunked([_part(0)], is_complete=False)(request, connection)
        if connection.recv(1) == b"":
            is_gone.set()
        return False

    server.on(STREAMED, script)
    parts = client.stream("m", x=[1.0])
    assert next(parts).tolist() == [0.0, 0.0]
    parts.close()
    assert is_gone.wait(TIMEOUT_S)


def test_a_stream_has_to_end_in_time(server: ScriptedServer, client: Any) -> None:
    def script(request: Received, connection: socket.socket) -> bool:
        chunked([_part(0)], is_complete=False)(request, connection)
        return silence(request, connection)

    server.on(STREAMED, script)
    parts = client.stream("m", x=[1.0], timeout_s=0.5)
    next(parts)
    with pytest.raises(DeadlineError):
        next(parts)


def _job(state: str, **fields: Any) -> dict[str, Any]:
    return {"id": "j1", "model_name": "m", "model_version": "1", "state": state, "created_s": 1.0, "started_s": None,
            "finished_s": None, "expires_s": None, "num_attempts": 1, "error": None, **fields}  # fmt: skip


def test_a_job_from_start_to_end(server: ScriptedServer, client: Any) -> None:
    server.on(JOBS, close, json_answer(_job("queued"), 202))
    server.on(f"{JOBS}/j1", json_answer(_job("running")), json_answer(_job("succeeded", finished_s=2.0)))
    server.on(f"{JOBS}/j1/result", outputs(Y))
    job = client.submit("m", x=[1.0], idempotency_key="mine")
    assert (job.id, job.state) == ("j1", JobState.QUEUED)
    keys = [request.headers["idempotency-key"] for request in server.received if request.path == JOBS]
    assert keys == ["mine", "mine"], "what broke off was sent again"
    assert server.received[-1].head["model_name"] == "m"
    assert job.wait(TIMEOUT_S).state is JobState.SUCCEEDED
    assert job.record.finished_s == 2.0
    assert job.result().tolist() == [0, 1, 2]
    assert job.answer().model_name == "m"


def test_jobs_are_listed_cancelled_and_forgotten(server: ScriptedServer, client: Any) -> None:
    server.on(JOBS, json_answer({"jobs": [_job("running")], "next": "j1"}), json_answer({"jobs": [_job("queued")], "next": None}))
    server.on(f"{JOBS}/j1/cancel", json_answer(_job("cancelled")))
    jobs = client.jobs(state=JobState.RUNNING)
    assert [job.state for job in jobs] == [JobState.RUNNING, JobState.QUEUED]
    assert server.paths()[-2:] == [f"{JOBS}?state=running&limit=100", f"{JOBS}?state=running&limit=100&after=j1"]
    assert jobs[0].cancel().state is JobState.CANCELLED
    server.on(f"{JOBS}/j1", raw(b"HTTP/1.1 204 No Content\r\n\r\n", stays=True))
    assert jobs[0].delete() is None
    assert server.received[-1].method == "DELETE"
    server.on(f"{JOBS}/j1", error(404, "no job 'j1'", "unknown_job"))
    assert jobs[0].delete() is None, "it is gone, and perhaps by a first attempt"
    with pytest.raises(UnknownJobError, match="no job 'j1'"):
        client.job("j1")
    server.on(JOBS, error(409, "another body", "conflict"))
    with pytest.raises(ConflictError, match="another body"):
        client.submit("m", x=[1.0], idempotency_key="mine")


def test_a_server_describes_itself(server: ScriptedServer, client: Any) -> None:
    server.on("/v2/models/m/config", json_answer({"name": "m", "max_batch_size": 0}))
    server.on("/v2/models/m/stats", json_answer({"model_stats": []}))
    server.on("/v2/models/stats", json_answer({"model_stats": [1]}))
    server.on("/v2/health/live", answer(200, b""))
    server.on("/v2/health/ready", error(503, "not ready", "not_ready", True), answer(200, b""))
    assert client.config("m")["max_batch_size"] == 0
    assert client.statistics("m") == {"model_stats": []}
    assert client.statistics() == {"model_stats": [1]}
    assert client.is_live()
    assert not client.is_ready()
    server.on("/v2/health/ready", error(503, "not ready", "not_ready", True), answer(200, b""))
    client.wait_until_ready(10)
    found = client.metadata("m")
    assert (found.name, found.inputs[0].datatype, found.inputs[0].shape) == ("m", "FP32", (-1,))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"url": "localhost:8000"}, "expected http://host:port"),
        ({"url": "ftp://x"}, "expected http://host:port"),
        ({"url": "http://"}, "expected http://host:port"),
        ({"url": "http://x:port"}, "url is 'http://x:port'"),
        ({"api_key": ""}, "api_key"),
        ({"api_key": "a\r\nb"}, "api_key"),
        ({"api_key": "ä"}, "api_key"),
    ],
)
@pytest.mark.parametrize("kind", SHELLS)
def test_an_impossible_address_or_key_is_refused(kind: str, settings: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text), shell(kind, **{"url": "http://127.0.0.1", **settings}):
        pass


def test_threads_share_a_client(server: ScriptedServer) -> None:
    server.on(INFER, outputs(Y))
    results: list[list[float]] = []

    def ask() -> None:
        results.extend(client.infer("m", x=[1.0]).tolist() for _ in range(20))

    with shell("blocking", server.url, max_connections=2) as client:
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [[0, 1, 2]] * 160
