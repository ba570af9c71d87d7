"""Records of requests over HTTP: for clients that may see them, from all processes, found by their ids."""

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from dyorc.config import GatewayConfig, RecordsConfig
from dyorc.core.arrays import Array
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.gateway.peer_processes import NoPeers, PeerReplies
from dyorc.gateway.request_records import Records
from dyorc.gateway.service import InferenceService
from dyorc.models.registry import ModelRegistry
from dyorc.telemetry import diagnosis, tail
from dyorc.telemetry.critical_path import StageInterval, WrongGuesses, critical_path
from dyorc.telemetry.record import RequestRecord
from dyorc.telemetry.record_store import RecordStore
from tests.deadlines import TIMEOUT_S
from tests.fake_backend import FakeBackend
from tests.unit.telemetry.stories import batch, call, record
from tests.workflows import arithmetic


class Twin(NoPeers):
    """Another process, without the process: what it answers is plain, as JSON would make it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.other: Twin | None = None
        self.is_silent = False
        self._handlers: dict[str, Callable[[Any], Any]] = {}

    def answer(self, topic: str, handler: Callable[[Any], Any]) -> None:
        """Takes a handler."""
        self._handlers[topic] = handler

    async def ask(self, topic: str, value: Any = None) -> PeerReplies:
        """Asks the other."""
        if self.other is None:
            return PeerReplies({})
        if self.other.is_silent:
            return PeerReplies({}, (self.other.number,))
        asked = msgspec.json.decode(msgspec.json.encode(value))
        answer = self.other._handlers[topic](asked)
        value = await answer if inspect.isawaitable(answer) else answer
        return PeerReplies({self.other.number: msgspec.json.decode(msgspec.json.encode(value))})


class Served(NamedTuple):
    """A gateway over a fake with three keys, and the records of its two processes."""

    url: str
    stores: tuple[RecordStore, RecordStore]
    keys: Mapping[str, str]
    """Of "operator" and "user", who belong to one tenant, and of "guest"."""
    twin: Twin

    async def get(self, path: str, who: str = "operator") -> httpx.Response:
        """Asks."""
        headers = {"X-API-Key": self.keys[who]}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=TIMEOUT_S, trust_env=False) as client:
            return await client.get(path)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Serves for one test."""
    (operator, may), (user, may_not), (guest, guests) = new_key(), new_key(), new_key()
    file = tmp_path / "keys.toml"
    team = TenantRecord(name="team", keys=[msgspec.structs.replace(may, may_manage=True), may_not])
    write_tenants(file, [team, TenantRecord(name="guests", keys=[guests], models=["quadruple"])])
    repertoire = ModelRegistry.of([arithmetic.quadruple])
    backend = FakeBackend(repertoire, lambda workflow, inputs: [list[Array](inputs)])
    config = GatewayConfig(port=0, drain_timeout_s=1, keys_file=str(file))
    stores = RecordStore(RecordsConfig()), RecordStore(RecordsConfig())
    here, there = Twin(0), Twin(1)
    Records(stores[1], there)
    here.other = there
    with contextlib.closing(InferenceService(backend, config, here)) as service:
        gateway = Gateway(service, records=Records(stores[0], here))
        async with HttpServer(gateway, config, service.shedding) as server:
            yield Served(server.url, stores, {"operator": operator, "user": user, "guest": guest}, there)


def ended(number: int, tenant: str, duration_ms: float = 20, **others: Any) -> RequestRecord:
    """Returns a request whose last byte came just now, and which shared its only batch with request 2."""
    one = batch("double", 2, 2, 15, size=2, requests=[number, 2], batch_id=77)
    found = record(duration_ms, [call(number, "double", 2, 2, 15, batches=[one])], number=number, tenant=tenant, **others)
    found.origin.request_id = others.get("request_id", f"r{number}")
    shift_ns = time.monotonic_ns() - found.ended_ns
    traces = [one, *found.story.calls] if found.story is not None else []
    things: list[Any] = [found, found.origin, *traces]
    for thing in things:
        for name in thing.__struct_fields__:
            if name.endswith("_ns") and getattr(thing, name):
                setattr(thing, name, getattr(thing, name) + shift_ns)
    return found


def fill(served: Served) -> None:
    """Requests 1 and 4 of the team and 3 of the guests ended here, 2 of the guests there."""
    here, there = served.stores
    here.take(ended(1, "team", duration_ms=50))
    there.take(ended(2, "guests", duration_ms=40))
    here.take(ended(3, "guests", duration_ms=30))
    here.take(ended(4, "team", outcome="program_failed", error="program 'double' failed: ValueError: x"))


async def test_the_slowest_of_all_processes_come_first(served: Served) -> None:
    fill(served)
    page = (await served.get("/requests?order=slowest")).json()
    assert [(one["request_id"], one["cell"], one["cause"]) for one in page["requests"]] == [
        ("r1", 0, "engine"),
        ("r2", 1, "engine"),
        ("r3", 0, "engine"),
        ("r4", 0, "compute"),
    ]
    assert page["num_kept"] == 4
    assert page["kept_bytes"] == sum(store.usage(lambda one: True).num_bytes for store in served.stores)
    assert page["missing_cells"] == []
    assert set(page["requests"][0]) >= {
        "request_id", "number", "cell", "workflow", "tenant", "transport", "outcome", "error", "arrived_s", "duration_ms",
        "num_calls", "num_guesses", "trace_id", "cause",
    }  # fmt: skip
    assert abs(page["requests"][0]["arrived_s"] + 0.05 - time.time()) < TIMEOUT_S


async def test_the_slowest_of_all_processes_are_set_beside_typical_ones(served: Served) -> None:
    here, there = served.stores
    for number in range(10, 50):
        (here if number % 2 else there).take(ended(number, "team"))
    there.take(ended(9, "team", duration_ms=100, workflow="other"))
    there.take(ended(2, "guests", duration_ms=60))
    report = (await served.get("/tail?share=0.05")).json()
    assert (report["num_requests"], report["num_slowest"], report["from_ms"], report["median_ms"]) == (42, 3, 20, 20)
    assert [one["request_id"] for one in report["slowest"][:2]] == ["r9", "r2"]
    assert report["stages"][0]["stage"] == "engine"
    assert report["stages"][0]["slowest_ms"] > report["stages"][0]["typical_ms"]
    assert (await served.get("/tail?workflow=other")).json()["num_requests"] == 1
    assert (await served.get("/tail?workflow=missing")).json()["slowest"] == []
    assert (await served.get("/tail?seconds=0.000001")).json()["num_requests"] == 0
    assert (await served.get("/tail", "guest")).json()["num_requests"] == 1
    served.twin.is_silent = True
    assert (await served.get("/tail")).json()["missing_cells"] == [1]


@pytest.mark.parametrize(
    "query", ["share=0", "share=0.6", "share=nan", "seconds=0", "seconds=inf", "seconds=1e300", "seconds=nan", "seconds=x"]
)
async def test_a_tail_that_is_none_is_refused(served: Served, query: str) -> None:
    refused = await served.get(f"/tail?{query}")
    assert refused.status_code == 400
    assert query.partition("=")[0] in refused.json()["error"]


@pytest.mark.parametrize(("order", "key"), [("latest", "ended_s"), ("slowest", "duration_ms")])
async def test_a_list_goes_on_where_another_ended(served: Served, order: str, key: str) -> None:
    fill(served)
    whole = (await served.get(f"/requests?order={order}")).json()["requests"]
    last = whole[1]
    page = (await served.get(f"/requests?order={order}&beyond={last[key]}")).json()["requests"]
    assert [one["request_id"] for one in page[-3:]] == [one["request_id"] for one in whole[1:]]
    first = (await served.get(f"/requests?order={order}&beyond={whole[-1][key] - 1}")).json()["requests"]
    assert first == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["r4", "r3", "r2", "r1"]),
        ("?limit=2", ["r4", "r3"]),
        ("?outcome=failed", ["r4"]),
        ("?outcome=ok&order=slowest&limit=1", ["r1"]),
        ("?workflow=classify&limit=1", ["r4"]),
        ("?workflow=other", []),
    ],
)
async def test_what_is_listed(served: Served, query: str, expected: list[str]) -> None:
    fill(served)
    assert [one["request_id"] for one in (await served.get(f"/requests{query}")).json()["requests"]] == expected


@pytest.mark.parametrize("query", ["order=oldest", "outcome=x", "limit=0", "limit=501", "limit=x"])
async def test_a_query_that_means_nothing_is_refused(served: Served, query: str) -> None:
    answer = await served.get(f"/requests?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["error"]


async def test_a_request_is_found_wherever_it_ran(served: Served) -> None:
    fill(served)
    for number, cell in ((1, 0), (2, 1)):
        found = (await served.get(f"/requests/r{number}")).json()
        assert (found["number"], found["cell"]) == (number, cell)
        assert sum(found["stages"].values()) == pytest.approx(found["duration_ms"])
        assert found["diagnosis"]
        assert found["calls"][0]["batches"] == ["4d"]
        assert found["batches"]["4d"]["requests"][0]["number"] == number


async def test_batches_name_who_shared_them_if_that_may_be_seen(served: Served) -> None:
    here, _ = served.stores
    here.take(ended(2, "guests"))
    here.take(ended(1, "team"))

    async def shared(who: str) -> list[Any]:
        batches = (await served.get("/requests/r1", who)).json()["batches"]
        return [(one["request_id"], one["workflow"]) for one in batches["4d"]["requests"]]

    assert await shared("operator") == [("r1", "classify"), ("r2", "classify")]
    assert await shared("user") == [("r1", "classify"), (None, None)]


async def test_tenants_see_their_own_requests(served: Served) -> None:
    fill(served)

    async def seen(who: str) -> list[str]:
        page = (await served.get("/requests?order=slowest", who)).json()
        assert page["num_kept"] == len(page["requests"])
        return [one["request_id"] for one in page["requests"]]

    assert await seen("operator") == ["r1", "r2", "r3", "r4"]
    assert await seen("user") == ["r1", "r4"]
    assert await seen("guest") == ["r2", "r3"]
    assert (await served.get("/requests/r2", "user")).status_code == 404
    assert (await served.get("/requests/r2", "guest")).json()["tenant"] == "guests"
    trace = (await served.get("/trace?seconds=60", "guest")).json()
    assert {event["args"]["request_id"] for event in trace["traceEvents"] if event.get("cat") == "request"} == {"r2", "r3"}


async def test_an_unknown_request_is_named_and_how_long_records_are_kept(served: Served) -> None:
    answer = await served.get("/requests/a%2Fb")
    assert answer.status_code == 404
    assert answer.json()["code"] == "unknown_request"
    assert "request 'a/b'" in answer.json()["error"]
    assert "none is kept yet" in answer.json()["error"]
    fill(served)
    assert "all of the last 0 s are kept, slow and failed ones longer" in (await served.get("/requests/r9")).json()["error"]


async def test_a_process_that_does_not_answer_is_named(served: Served) -> None:
    fill(served)
    served.twin.is_silent = True
    assert (await served.get("/requests")).json()["missing_cells"] == [1]
    assert "cells that did not answer: 1" in (await served.get("/requests/r2")).json()["error"]


async def test_a_trace_shows_all_processes(served: Served) -> None:
    fill(served)
    trace = (await served.get("/trace?seconds=60")).json()
    requests = [event for event in trace["traceEvents"] if event.get("cat") == "request"]
    assert {(event["pid"], event["args"]["request_id"]) for event in requests} == {(1, "r1"), (3, "r2"), (1, "r3"), (1, "r4")}
    assert trace["otherData"] == {"num_requests": 4, "num_left_out": 0, "seconds": 60, "missing_cells": []}
    assert (await served.get("/trace?seconds=0")).status_code == 400


@pytest.mark.parametrize("path", ["/requests?limit=20", "/tail"])
async def test_each_record_has_a_turn_of_the_event_loop(served: Served, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 21):
        served.stores[0].take(ended(number, "team"))
    turns: list[int] = []
    num_turns = 0

    async def take_turns() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    _at_each_path(monkeypatch, lambda: turns.append(num_turns))
    others = asyncio.create_task(take_turns())
    assert (await served.get(path)).status_code == 200
    others.cancel()
    assert len(turns) >= 20
    assert len(set(turns)) == len(turns)


@pytest.mark.parametrize("path", ["/requests?limit=500", "/tail"])
async def test_a_query_whose_client_has_gone_ends(served: Served, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 501):
        served.stores[0].take(ended(number, "team"))
    url = httpx.URL(served.url)
    _, writer = await asyncio.open_connection(url.host, url.port)
    num_read = 0

    def go_away() -> None:
        nonlocal num_read
        num_read += 1
        writer.transport.abort()

    _at_each_path(monkeypatch, go_away)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {served.keys['operator']}\r\n\r\n".encode())
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    for _ in range(1000):  # more turns than there are records
        await asyncio.sleep(0)
    assert 0 < num_read < 50


def _at_each_path(monkeypatch: pytest.MonkeyPatch, callback: Callable[[], None]) -> None:
    """Calls a function whenever a record's path is worked out."""
    for module in (diagnosis, tail):

        def followed(record: RequestRecord, wrong_guesses: WrongGuesses) -> list[StageInterval]:
            callback()
            return critical_path(record, wrong_guesses)

        monkeypatch.setattr(module, "critical_path", followed)
