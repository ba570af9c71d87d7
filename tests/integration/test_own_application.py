"""An application beside DyOrc's routes, in `dyorc serve` and in foreign servers; `dyorc.run` is the reference."""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
import structlog
from starlette.testclient import TestClient
from starlette.types import ASGIApp
from starlette.websockets import WebSocketDisconnect

import dyorc
from dyorc.errors import ConfigurationError, DefinitionError
from dyorc.gateway.http.user_application import UserApplication, load_application
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.testing import ServerProcess
from tests.asgi_servers import asgi_server, errors_in, own_server
from tests.deadlines import TIMEOUT_S, wait_until
from tests.workflows import own_application

_MODULE = "tests.workflows.own_application"
_TARGETS = [f"{_MODULE}:{name}" for name in ("twice", "spell", "wait", "count")]
SERVERS = ("dyorc", "uvicorn", "hypercorn")


@contextlib.contextmanager
def _started(kind: str, **environment: str) -> Iterator[tuple[ServerProcess, str]]:
    if kind == "dyorc":
        with own_server(*_TARGETS, "--app", f"{_MODULE}:api", **environment) as started:
            yield started
    else:
        with asgi_server(kind, f"{_MODULE}:server", **environment) as started:
            yield started


class Served:
    """A running server, a client of it, and the file in which its application makes notes."""

    def __init__(self, kind: str, url: str, notes: Path) -> None:
        self.kind = kind
        self.url = url
        self._notes = notes
        self.client = httpx.Client(base_url=url, timeout=TIMEOUT_S)

    @property
    def notes(self) -> list[str]:
        """What the application has noted."""
        return self._notes.read_text().splitlines() if self._notes.exists() else []

    def num_requests(self) -> int:
        """How many requests are in flight."""
        return self.client.get("/status").json()["num_requests"]


@pytest.fixture(scope="module", params=SERVERS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    notes = tmp_path_factory.mktemp("notes") / "notes"
    with _started(request.param, OWN_APPLICATION_NOTES=str(notes)) as (process, url):
        server = Served(request.param, url, notes)
        yield server
        server.client.close()
        process.stop()
        assert not errors_in(process)
        assert not re.findall(r"request_crashed.*/wait.*", process.output)  # that a client goes is no crash
        assert process.leftovers() == []
    assert server.notes[0] == "starts"
    assert server.notes[-1] == "stops"


def test_handlers_call_models_and_get_what_run_returns(served: Served) -> None:
    reference = dyorc.run(own_application.twice, np.float32([1, 2.5])).tolist()
    assert served.client.post("/double", json=[1, 2.5]).json() == reference
    assert served.client.post("/by-name", json=[1, 2.5]).json() == reference
    assert served.client.post("/run/twice", json={"x": [1, 2.5]}).json() == reference


def test_the_application_has_the_entrance_and_our_routes_win_elsewhere(served: Served) -> None:
    assert served.client.get("/").json() == "hello"
    assert served.client.get("/v2/health/ready").json() == {"ready": True}
    assert "programs" in served.client.get("/status").json()
    assert served.client.get("/api/docs").status_code == 200
    missing = served.client.get("/nowhere")
    assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})
    assert served.client.get("/run/nothing").status_code == 405


def test_answers_of_the_application_have_its_own_headers_alone(served: Served) -> None:
    assert "cache-control" not in served.client.get("/").headers
    assert served.client.get("/v2").headers["cache-control"] == "no-store"


def test_handlers_stream(served: Served) -> None:
    with served.client.stream("GET", "/words", params={"text": "to be or not"}) as answer:
        assert "".join(answer.iter_text()) == "to\nbe\nor\nnot\n"


def test_a_model_that_yields_is_not_called_but_read(served: Served) -> None:
    answer = served.client.get("/wrong-way")
    assert answer.status_code == 501
    assert "dyorc.stream(spell, ...)" in answer.json()["error"]


def test_a_handler_that_raises_fails_alone(served: Served) -> None:
    assert served.client.get("/raise").status_code == 500
    assert served.client.post("/double", json=[1]).json() == [4.0]


@pytest.mark.parametrize("kind", ["exit", "interrupt", "cancelled"])
def test_no_handler_ends_the_server(served: Served, kind: str) -> None:
    assert served.client.get("/leaves", params={"kind": kind}).status_code == 500
    assert served.client.post("/double", json=[1]).json() == [4.0]


def test_a_model_that_is_named_gives_the_same_values(served: Served) -> None:
    assert served.client.get("/count-by-name", params={"text": "to be"}).json() == [{"words": 3}] * 2


def test_a_handler_on_a_thread_calls_models(served: Served) -> None:
    assert served.client.get("/from-a-thread", params={"x": 1}).json() == [4.0]


def test_an_error_before_the_first_part_of_an_answer_is_the_answer(served: Served) -> None:
    failed = served.client.get("/late-failure")
    assert (failed.status_code, failed.json()["code"]) == (500, "program")


def test_errors_of_calls_have_their_own_status(served: Served) -> None:
    failed = served.client.post("/double", json=[-1], headers={"x-request-id": "mine"})
    assert (failed.status_code, failed.json()["code"], failed.json()["request_id"]) == (500, "program", "mine")
    assert served.client.post("/double", json=[1]).json() == [4.0]


def test_the_time_limit_of_the_request_is_that_of_its_calls(served: Served) -> None:
    late = served.client.get("/wait", params={"seconds": 30}, headers={"request-timeout": "0.3"})
    assert (late.status_code, late.json()["code"]) == (504, "deadline")


def test_an_error_in_a_group_of_tasks_has_its_own_status(served: Served) -> None:
    late = served.client.get("/wait-in-a-group", params={"seconds": 30}, headers={"request-timeout": "0.3"})
    assert (late.status_code, late.json()["code"]) == (504, "deadline")
    assert late.json()["request_id"] == late.headers["x-request-id"]
    assert served.client.get("/group-with-a-bug").status_code == 500


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ({"request-timeout": "soon"}, "Request-Timeout is 'soon', expected seconds"),
        ({"x-priority": "first"}, "X-Priority is 'first', expected a number"),
        ({"x-priority": "9" * 40}, "expected a number from 0 to 2147483647"),
    ],
)
def test_malformed_terms_are_refused_by_the_call(served: Served, header: dict[str, str], text: str) -> None:
    answer = served.client.post("/double", json=[1], headers=header)
    assert answer.status_code == 400
    assert text in answer.json()["error"]


def test_odd_headers_reach_the_application(served: Served) -> None:
    sent = [(b"X-Odd", "grüße".encode("latin-1")), (b"X-Empty", b"")]
    assert served.client.get("/headers", headers=sent).json() == {"x-odd": "grüße", "x-empty": ""}


@pytest.mark.parametrize("path", ["wait", "wait-in-a-group", "wait-streaming"])
def test_a_call_ends_when_the_client_goes(served: Served, path: str) -> None:
    before = served.notes.count("cancelled")
    parts = urlsplit(served.url)
    with socket.create_connection((parts.hostname, parts.port), TIMEOUT_S) as connection:
        num_sleeps = served.notes.count("sleeps")
        connection.sendall(f"GET /{path}?seconds=600 HTTP/1.1\r\nhost: here\r\n\r\n".encode())
        wait_until(lambda: served.notes.count("sleeps") > num_sleeps, "the call begins")
    wait_until(lambda: served.num_requests() == 0, "the call ends")
    wait_until(lambda: served.notes.count("cancelled") == before + 1, "the program is cancelled")


def test_a_request_of_our_own_routes_ends_when_the_client_goes(served: Served) -> None:
    before, num_sleeps = served.notes.count("cancelled"), served.notes.count("sleeps")
    body = b'{"seconds": 600}'
    parts = urlsplit(served.url)
    with socket.create_connection((parts.hostname, parts.port), TIMEOUT_S) as connection:
        connection.sendall(b"POST /run/wait HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        wait_until(lambda: served.notes.count("sleeps") > num_sleeps, "the program begins")
    wait_until(lambda: served.num_requests() == 0, "the request ends")
    wait_until(lambda: served.notes.count("cancelled") == before + 1, "the program is cancelled")


def test_a_background_task_goes_on_after_the_answer(served: Served) -> None:
    with httpx.Client(base_url=served.url, timeout=TIMEOUT_S) as client:
        assert client.get("/later").json() == "soon"
    wait_until(lambda: "later 0.2" in served.notes, "the task ends")


def test_jobs_are_taken(served: Served) -> None:
    body = {"model_name": "twice", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [3]}]}
    answer = served.client.post("/v1/jobs", json=body)
    assert answer.status_code == 202
    job = served.client.get(answer.headers["location"], params={"wait": "30"})
    assert job.status_code == 200


@pytest.mark.parametrize("kind", SERVERS[:2])
def test_keys_are_needed_for_calls_not_for_the_application(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    key, record = new_key()
    write_tenants(file, [TenantRecord(name="ours", keys=[record])])
    with _started(kind, DYORC_GATEWAY__KEYS_FILE=str(file)) as (_, url), httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
        assert client.get("/").json() == "hello"
        ours, refused = client.post("/run/twice", json={"x": [1]}), client.post("/double", json=[1])
        for answer in (ours, refused):
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
            assert answer.headers["www-authenticate"] == 'Bearer realm="dyorc"'
            assert answer.headers["x-request-id"] == answer.json()["request_id"]
        assert client.post("/double", json=[1], headers={"x-api-key": key}).json() == [4.0]


@pytest.mark.parametrize("kind", SERVERS[:2])
def test_an_application_of_no_framework(kind: str) -> None:
    with contextlib.ExitStack() as stack:
        if kind == "dyorc":
            _, url = stack.enter_context(own_server(f"{_MODULE}:twice", "--app", f"{_MODULE}:bare"))
        else:
            _, url = stack.enter_context(asgi_server(kind, f"{_MODULE}:bare_server"))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=TIMEOUT_S))
        assert client.get("/any?3").text == "[12.0]"
        failed = client.get("/any?-3")
        assert (failed.status_code, failed.json()["code"]) == (500, "program")


@pytest.mark.parametrize("kind", ["dyorc", "uvicorn"])
def test_an_application_that_breaks_the_rules_fails_alone(kind: str) -> None:
    targets = [f"{_MODULE}:twice", "--app", f"{_MODULE}:odd"]
    with own_server(*targets) if kind == "dyorc" else asgi_server(kind, f"{_MODULE}:odd_server") as (_, url):
        for path in ("nothing", "body-first", "twice", *(("line-break", "status") if kind == "dyorc" else ())):
            answer = httpx.get(f"{url}/odd/{path}", timeout=TIMEOUT_S)
            assert answer.status_code == 500
            assert not {"content-length", "transfer-encoding"} <= answer.headers.keys()
            assert httpx.post(f"{url}/run/twice", json={"x": [1]}, timeout=TIMEOUT_S).json() == [4.0]


def test_a_startup_that_fails_ends_the_server() -> None:
    with pytest.raises(RuntimeError) as failure, own_server(f"{_MODULE}:twice", "--app", f"{_MODULE}:broken"):
        pass
    assert f"application {_MODULE}:broken: its startup failed: RuntimeError: the database is gone" in str(failure.value)
    with pytest.raises(RuntimeError) as failure, asgi_server("uvicorn", f"{_MODULE}:broken_server"):
        pass
    assert "its startup failed: RuntimeError: the database is gone" in str(failure.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nothing", f"{_MODULE} has no 'nothing'; expected the name of an ASGI application, such as FastAPI()"),
        ("NOTES", f"{_MODULE}:NOTES is '', expected an ASGI application, such as FastAPI()"),
        ("make_application", f"{_MODULE}:make_application is called as () -> fastapi.applications.FastAPI, expected an ASGI app"),
        ("FastAPI", "call a function or class that makes one, and name what it returns"),
    ],
)
def test_what_is_no_application_is_refused(name: str, text: str) -> None:
    with pytest.raises(DefinitionError) as failure:
        load_application(f"{_MODULE}:{name}")
    assert text in str(failure.value)


def test_the_server_says_what_is_no_application() -> None:
    with pytest.raises(RuntimeError) as failure, own_server(f"{_MODULE}:twice", "--app", f"{_MODULE}:make_application"):
        pass
    assert "expected an ASGI application, such as FastAPI()" in str(failure.value)
    with pytest.raises(DefinitionError, match=r"dyorc.asgi\(app=...\) is called as .*expected an ASGI application"):
        dyorc.asgi(own_application.twice, app=own_application.make_application)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("app", [own_application.stuck, own_application.stuck_bare])
async def test_a_shutdown_that_fails_says_why(app: ASGIApp) -> None:
    with structlog.testing.capture_logs() as logs:
        async with UserApplication(app, "ours"):
            pass
    assert [log["error"] for log in logs if log["event"] == "application_shutdown_failed"] == [
        "ValueError: the database stays open"
    ]


def test_a_call_of_what_is_no_model_says_so(served: Served) -> None:
    assert "got <built-in function len>, expected a workflow, a program or its name" in served.client.get("/wrong-call").json()


def test_hidden_routes_are_named_in_the_log() -> None:
    with own_server(*_TARGETS, "--app", f"{_MODULE}:api") as (process, _):
        assert "application_routes_hidden" in process.output
        assert "/status" in process.output


def test_below_a_path_with_a_lifespan() -> None:
    with asgi_server("uvicorn", f"{_MODULE}:with_lifespan") as (process, url):
        with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
            assert client.post("/models/run/twice", json={"x": [1]}).json() == [4.0]
            assert client.get("/models/v2/models/twice").json()["name"] == "twice"
            assert client.get("/models/v2/health/ready/").json() == {"ready": True}
            description = client.get("/models/openapi.json").json()
            assert description["servers"] == [{"url": "/models"}]
            entrance = client.get("/models/").json()
            assert (entrance["docs"], entrance["status"]) == ("/models/docs", "/models/status")
            assert client.get(entrance["status"]).status_code == 200
            body = {"model_name": "twice", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [3]}]}
            assert client.post("/models/v1/jobs", json=body).headers["location"].startswith("/models/v1/jobs/")
            assert client.get("/run/twice").status_code == 404
        process.stop()
        assert process.leftovers() == []


def test_below_a_path_without_a_lifespan_it_starts_with_the_first_request() -> None:
    with asgi_server("uvicorn", f"{_MODULE}:without_lifespan") as (process, url):
        with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
            assert client.post("/deep/v2/run/twice", json={"x": [1]}).json() == [4.0]
            assert client.get("/deep/v2/v2/models/twice").json()["name"] == "twice"
        process.stop()
        assert process.leftovers() == []


def test_web_sockets_reach_the_application_in_a_foreign_server() -> None:
    with TestClient(own_application.server) as client:
        with client.websocket_connect("/talk") as talk:
            talk.send_text("you")
            assert talk.receive_text() == "hello you"
        assert client.post("/double", json=[1]).json() == [4.0]
    with TestClient(own_application.models) as client, pytest.raises(WebSocketDisconnect), client.websocket_connect("/talk"):
        pass


def test_it_starts_again_on_another_loop() -> None:
    for _ in range(2):
        with TestClient(own_application.models) as client:
            assert client.post("/run/twice", json={"x": [1]}).json() == [4.0]


def test_nothing_is_served_by_mistake() -> None:
    with pytest.raises(DefinitionError, match=r"dyorc\.asgi got no model"):
        dyorc.asgi()
    with pytest.raises(DefinitionError, match="expected a workflow or a program"):
        dyorc.asgi("app.py:classify")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="there is no such setting"):
        dyorc.asgi(own_application.twice, settings={"gateway.ports": 1})


def test_calls_outside_of_requests_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"dyorc\.call was called outside a request"):
        asyncio.run(dyorc.call(own_application.twice, [1.0]))


def test_cells_have_an_application_each() -> None:
    with own_server(*_TARGETS, "--app", f"{_MODULE}:api", "--cells", "2") as (process, url):
        for _ in range(8):
            assert httpx.post(f"{url}/double", json=[1], timeout=TIMEOUT_S).json() == [4.0]
        process.stop()
        assert process.leftovers() == []


def test_over_http_2() -> None:
    with (
        asgi_server("hypercorn", f"{_MODULE}:server") as (_, url),
        httpx.Client(base_url=url, timeout=TIMEOUT_S, http1=False, http2=True) as client,
    ):
        assert client.post("/double", json=[1]).http_version == "HTTP/2"
        assert client.post("/run/twice", json={"x": [1]}).json() == [4.0]
        assert client.post("/run/twice", json={"x": "odd"}).status_code == 400


def test_several_processes_of_gunicorn() -> None:
    with asgi_server("gunicorn", f"{_MODULE}:server") as (process, url):
        for _ in range(8):  # a connection each, so that both may get one
            assert httpx.post(f"{url}/double", json=[1], timeout=TIMEOUT_S).json() == [4.0]
        process.stop()
        assert process.leftovers() == []


def test_the_route_for_a_first_answer_is_the_same_everywhere(served: Served) -> None:
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
    answer = served.client.post("/v2/models/twice/infer", content=json.dumps(body)).json()
    assert answer["outputs"][0]["data"] == [4.0, 8.0]
