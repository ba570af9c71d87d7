"""How the server is now, once or every second, for clients that may see it, as long as they listen."""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from starlette.types import Message

from dyorc.config import GatewayConfig
from dyorc.core.arrays import Array
from dyorc.gateway import live_feed as live_module
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.gateway.live_feed import LiveFeed
from dyorc.gateway.service import InferenceService
from dyorc.models.registry import ModelRegistry
from dyorc.telemetry.levels import Levels, ProgramLevels, WorkflowLevels
from dyorc.telemetry.record import Origin, RequestRecord
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.fake_backend import FakeBackend
from tests.integration.stack import running
from tests.unit.telemetry.tales import Tale
from tests.workflows import arithmetic

_PERIOD_S = 0.02
BUSY = Levels(
    programs={
        "double": ProgramLevels(
            num_queued=3, num_running=2, num_wanted=1, reason="busy", forecast_per_s=4.0, fit=(0.001, 0.0005)
        ),
        "add_up": ProgramLevels(),
    },
    workflows={"quadruple": WorkflowLevels(in_flight=5, num_ended=7), "sums": WorkflowLevels(in_flight=1)},
    link={"num_sent": 9},
)


class Served(NamedTuple):
    """A gateway over a fake, with three keys."""

    url: str
    live: LiveFeed
    backend: FakeBackend
    service: InferenceService
    keys_file: Path
    operator: str
    user: str
    guest: str
    """May use `quadruple` alone."""

    def client(self, key: str) -> httpx.AsyncClient:
        """Returns a client with a key."""
        return httpx.AsyncClient(base_url=self.url, headers={"X-API-Key": key}, timeout=TIMEOUT_S, trust_env=False)


@contextlib.asynccontextmanager
async def serving(file: Path) -> AsyncGenerator[Served]:
    """Serves two workflows, with very short seconds."""
    (operator, may), (user, may_not), (guest, guests) = new_key(), new_key(), new_key()
    team = TenantRecord(name="team", keys=[msgspec.structs.replace(may, may_manage=True), may_not])
    write_tenants(file, [team, TenantRecord(name="guests", keys=[guests], models=["quadruple"])])
    repertoire = ModelRegistry.of([arithmetic.quadruple, arithmetic.sums])
    backend = FakeBackend(repertoire, lambda workflow, inputs: [list[Array](inputs)])
    backend.now = BUSY
    config = GatewayConfig(port=0, drain_timeout_s=TIMEOUT_S, keys_file=str(file))
    with contextlib.closing(InferenceService(backend, config)) as service:
        live = LiveFeed(service, period_s=_PERIOD_S)
        async with HttpServer(Gateway(service, live=live), config, service.shedding) as server, live:
            yield Served(server.url, live, backend, service, file, operator, user, guest)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Serves for one test."""
    async with serving(tmp_path / "keys.toml") as found:
        yield found


async def get(served: Served, key: str) -> dict[str, Any]:
    """Returns how the server is now, as the owner of a key sees it."""
    async with served.client(key) as client:
        answer = await client.get("/live")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def events_of(lines: AsyncIterator[str]) -> AsyncGenerator[dict[str, Any]]:
    """Yields the data of events."""
    async for line in lines:
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


async def test_who_may_manage_sees_everything(served: Served) -> None:
    ticket = served.service.admission.admit(served.service.access.tenant_of(served.user), 100)

    found = await get(served, served.operator)

    ticket.release()
    double = found["programs"]["double"]
    assert set(found["workflows"]) == {"quadruple", "sums"}
    assert found["workflows"]["quadruple"]["in_flight"] == 5
    assert (double["num_queued"], double["num_running"], double["reason"]) == (3, 2, "busy")
    assert (double["forecast_per_s"], double["state"], double["replicas"]) == (4.0, "starting", [])
    assert double["latency_fit"] == {"base_ms": 1.0, "per_call_ms": 0.5, "points": []}
    assert found["cells"] == [{"cell": 0, "pid": os.getpid(), "in_flight": 6}]
    assert found["tenants"] == {"team": {"in_flight": 1, "in_flight_bytes": 100}}
    assert found["link"] == {"num_sent": 9}


async def test_requests_that_were_refused_are_counted_by_their_model(served: Served) -> None:
    async with served.client(served.user) as client:
        for body in ({"inputs": []}, {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1]}]}, {}):
            assert (await client.post("/v2/models/quadruple/infer", json=body)).status_code == 400
        assert (await client.post("/v2/models/nothing/infer", json={"inputs": []})).status_code == 404
    found = await get(served, served.operator)
    assert {name: one["refused_total"] for name, one in found["workflows"].items()} == {"quadruple": 3, "sums": 0}


async def test_a_tenant_sees_its_models_and_itself(served: Served) -> None:
    ticket = served.service.admission.admit(served.service.access.tenant_of(served.user))

    user, guest = await get(served, served.user), await get(served, served.guest)

    ticket.release()
    assert set(user["programs"]) == {"double", "add_up"}
    assert set(user["tenants"]) == {"team"}
    assert user["cells"] == []
    assert set(guest["workflows"]) == {"quadruple"}
    assert guest["programs"] == guest["tenants"] == guest["link"] == {}


async def test_nobody_without_a_key_sees_anything(served: Served) -> None:
    async with served.client("") as client:
        assert (await client.get("/live")).status_code == 401
        assert (await client.get("/events")).status_code == 401


async def test_events_come_again_and_again_with_what_is_new(served: Served) -> None:
    async with served.client(served.operator) as client, client.stream("GET", "/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        lines = answer.aiter_lines()
        assert await anext(lines) == "event: live"
        async with contextlib.aclosing(events_of(lines)) as events:
            first = await anext(events)
            assert first["programs"]["double"]["num_queued"] == 3
            served.backend.now = Levels(programs={"double": ProgramLevels(num_queued=17)})
            async for event in events:
                if event["programs"]["double"]["num_queued"] == 17:
                    assert event["at_s"] > first["at_s"]
                    break


async def test_nothing_is_taken_while_nobody_listens(served: Served) -> None:
    async with served.client(served.operator) as client, client.stream("GET", "/events") as answer:
        await anext(answer.aiter_lines())
        assert served.live.is_publishing
    await wait_until_async(lambda: not served.live.is_publishing, "the client's end is noticed")


async def test_a_revoked_key_ends_its_events(served: Served) -> None:
    async with served.client(served.user) as client, client.stream("GET", "/events") as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        write_tenants(served.keys_file, [])
        async with asyncio.timeout(TIMEOUT_S):
            async for _ in lines:
                pass


async def test_listeners_do_not_hold_up_the_end_of_the_server(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with serving(tmp_path / "keys.toml") as served:
            client = await stack.enter_async_context(served.client(served.operator))
            answer = await stack.enter_async_context(client.stream("GET", "/events"))
            lines = answer.aiter_lines()
            await anext(lines)
        async with asyncio.timeout(TIMEOUT_S):
            async for _ in lines:  # to a regular end
                pass


async def test_only_so_many_may_listen(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "_MAX_LISTENERS", 1)
    async with served.client(served.operator) as client, client.stream("GET", "/events") as answer:
        await anext(answer.aiter_lines())
        refused = await client.get("/events")

    assert refused.status_code == 503
    assert "the server takes 1" in refused.json()["error"]
    assert "retry-after" in refused.headers


async def test_a_client_that_does_not_read_misses_events_and_finds_the_latest(served: Served) -> None:
    sent = asyncio.Queue[Message](1)
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": "/events", "raw_path": b"/events", "query_string": b"", "http_version": "1.1",
        "scheme": "http", "headers": [(b"x-api-key", served.operator.encode())],
    }  # fmt: skip
    never = asyncio.Event()

    async def receive() -> Message:
        await never.wait()
        return {"type": "http.disconnect"}

    writing = asyncio.create_task(Gateway(served.service, live=served.live)(scope, receive, sent.put))
    await sent.get()  # the head
    await sent.get()
    await wait_until_async(sent.full, "the client's buffer is full")
    seen: list[float] = []
    for number in range(1, 30):
        served.backend.now = Levels(programs={"double": ProgramLevels(num_queued=number)})
        seen.append((await served.live.now()).at_s)
        await asyncio.sleep(_PERIOD_S)

    async with asyncio.timeout(TIMEOUT_S):
        stale = [await sent.get(), await sent.get()]  # one in the buffer, one that was being written
        latest = json.loads((await sent.get())["body"].split(b"data: ")[1])

    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    assert len(stale) == 2
    assert latest["at_s"] >= seen[-1]
    assert latest["programs"]["double"]["num_queued"] == 29


async def test_the_numbers_are_those_of_a_real_server() -> None:
    async with running([arithmetic.quadruple]) as stack:
        live = LiveFeed(stack.service, period_s=_PERIOD_S)
        async with live:
            body = {"inputs": [{"name": "x", "shape": [4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
            for _ in range(3):
                (await stack.client.post("/v2/models/quadruple/infer", json=body)).raise_for_status()
            (await stack.client.post("/v2/models/double/infer", json=body)).raise_for_status()
            async with asyncio.timeout(TIMEOUT_S):
                found = await live.now()
                with live.listening():
                    while found.workflows["quadruple"]["p50_ms"] is None:  # until the requests are in a sample
                        found = await live.next(found)
                        assert found is not None

    assert found.workflows["quadruple"]["requests_total"] == 3
    assert found.workflows["double"]["requests_total"] == 1
    double = found.programs["double"]
    assert double["calls_total"] == 7
    assert sum(size * number for size, number in double["batch_sizes"].items()) == 7
    assert double["state"] == "ready"
    assert [one["state"] for one in double["replicas"]] == ["ready"]
    assert double["latency_fit"]["base_ms"] is not None
    assert sum(double["form_reasons"].values()) == double["batches_total"] == sum(double["batch_sizes"].values())
    assert double["useful_s"] > 0
    assert found.workflows["quadruple"]["p50_ms"] > 0


async def test_the_past_is_there_for_a_page_that_is_opened(served: Served) -> None:
    async with served.client(served.operator) as client:
        past: dict[str, Any] = {"values": {}}
        async with asyncio.timeout(TIMEOUT_S):
            while not past["values"]:  # until the first sample
                past = (await client.get("/history", params={"program": "double"})).json()
        workflow = (await client.get("/history", params={"workflow": "quadruple", "window_s": 7})).json()
        unknown = await client.get("/history", params={"program": "nothing"})
        unclear = await client.get("/history", params={"program": "double", "workflow": "quadruple"})
        unreadable = await client.get("/history", params={"program": "double", "window_s": "-1"})

    assert (past["program"], past["step_s"], len(past["values"]["num_queued"])) == ("double", 1, 600)
    assert (past["values"]["num_queued"][-1], past["values"]["forecast_per_s"][-1]) == (3, 4)
    assert past["decisions"] == []
    assert (workflow["workflow"], workflow["values"]["in_flight"][-1]) == ("quadruple", 5)
    assert len(workflow["values"]["in_flight"]) == 7
    assert (unknown.status_code, unclear.status_code, unreadable.status_code) == (404, 400, 400)


async def test_a_sample_belongs_to_the_second_in_which_it_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late in a second, the nearest full second is the next one, whose own sample has yet to come."""
    clock = SimpleNamespace(time=lambda: 1_800_000_000.7, monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr(live_module, "time", clock)
    past: dict[str, Any] = {"values": {}}
    async with serving(tmp_path / "keys.toml") as served, asyncio.timeout(TIMEOUT_S):
        while not past["values"]:  # until the first sample
            past = await served.live.past("workflow", "quadruple", 60)
            await asyncio.sleep(0)

    assert past["from_s"] + len(past["values"]["in_flight"]) - 1 == 1_800_000_000


async def test_a_tenant_sees_the_past_of_its_models(served: Served) -> None:
    async with served.client(served.guest) as client:
        assert (await client.get("/history", params={"workflow": "quadruple"})).status_code == 200
        assert (await client.get("/history", params={"program": "double"})).status_code == 403


async def test_the_graph_is_that_of_recorded_requests_at_the_true_rate(served: Served) -> None:
    for number in range(4):
        tale = Tale()
        tale.call("double", tale.call("double"))
        record = RequestRecord(
            number=number, origin=Origin(request_id=str(number), transport="http"), workflow="quadruple", tenant="team",
            started_ns=1, ended_ns=2, outcome="ok", story=tale.story,
        )  # fmt: skip
        served.live.graphs.take(record)
    async with served.client(served.guest) as client:
        found = await client.get("/graph", params={"workflow": "quadruple"})
        unseen = await client.get("/graph", params={"workflow": "sums"})
        unnamed = await client.get("/graph")

    graph = found.json()
    assert (graph["workflow"], graph["num_requests"]) == ("quadruple", 4)
    assert {(edge["source"], edge["target"]) for edge in graph["edges"]} == {
        ("(input)", "double"),
        ("double", "double"),
        ("double", "(answer)"),
    }
    assert [node["per_request"] for node in graph["nodes"] if node["kind"] == "program"] == [2]
    assert (unseen.status_code, unnamed.status_code) == (403, 400)
