"""Webhooks of jobs, sent to a real HTTP server that answers as the test says."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from dyorc.config import JobsConfig
from dyorc.errors import InvalidInputError
from dyorc.gateway.jobs.webhooks import Webhooks, check_webhook
from dyorc.store.base import Body, NewJob, new_id
from dyorc.store.sqlite import SqliteStore
from tests import oip
from tests.deadlines import wait_until_async
from tests.integration.stack import running
from tests.workflows import arithmetic

X = np.array([1, 2, 3, 4], np.float32)
SECRET = "s3cret"


@dataclass
class Listener:
    """What has been received, and what is answered: the last answer again and again."""

    answers: list[bytes]
    host: str = ""
    heads: list[str] = field(default_factory=list[str])
    bodies: list[bytes] = field(default_factory=list[bytes])

    @property
    def url(self) -> str:
        return f"http://{self.host}/hook?a=b"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length"))
        self.bodies.append(await reader.readexactly(length))
        self.heads.append(head)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer:
            writer.write(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    def header(self, at: int, name: str) -> str:
        lines = (line.partition(": ") for line in self.heads[at].split("\r\n"))
        return next(value for found, _, value in lines if found.lower() == name)


@asynccontextmanager
async def listening(*answers: bytes) -> AsyncGenerator[Listener]:
    listener = Listener(list(answers))
    server = await asyncio.start_server(listener.answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        listener.host = f"{host}:{port}"
        yield listener


def allowing(*hosts: str, give_up_s: float = 60.0, secret: str = SECRET) -> JobsConfig:
    return JobsConfig(webhook_hosts=hosts, webhook_secret=secret, webhook_give_up_s=give_up_s, webhook_timeout_s=2)


async def ended_job(store: SqliteStore, webhook: str) -> str:
    """Makes a job that was cancelled, and whose webhook is due."""
    new = NewJob(id=new_id(), tenant="t", model_name="m", model_version="1", body=Body(b"{}"), ttl_s=60, webhook=webhook)
    await store.submit(new)
    await store.cancel("t", new.id)
    return new.id


async def nothing_due(store: SqliteStore) -> bool:
    """Returns whether nothing is kept of any webhook, due or not."""
    count = await store._batches.call(lambda connection: connection.execute("SELECT COUNT(*) FROM webhooks").fetchone()[0])
    return count == 0


async def wait_until_nothing_due(store: SqliteStore) -> None:
    while not await nothing_due(store):
        await store.wait_for_work(0.02)


async def test_the_webhook_is_the_jobs_json_with_a_signature(tmp_path: Path) -> None:
    async with listening(b"204 No Content") as listener:
        store = SqliteStore(tmp_path / "jobs.sqlite")
        async with running([arithmetic.quadruple], store=store, jobs=allowing(listener.host)) as stack:
            body = oip.json_body({"x": X}, model_name="quadruple", webhook=listener.url)
            trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "vendor=1"}
            answer = await stack.client.post("/v1/jobs", content=body.content, headers={**body.headers, **trace})
            assert answer.status_code == 202, answer.text
            await wait_until_async(lambda: listener.bodies, "the webhook comes")
            job = (await stack.client.get(f"/v1/jobs/{answer.json()['id']}")).json()
            assert json.loads(listener.bodies[0]) == job
            assert job["state"] == "succeeded"
            assert listener.heads[0].startswith("POST /hook?a=b HTTP/1.1\r\n")
            await wait_until_nothing_due(store)
    parts = dict(part.split("=") for part in listener.header(0, "dyorc-signature").split(","))
    assert abs(int(parts["t"]) - time.time()) < 60
    signed = parts["t"].encode() + b"." + listener.bodies[0]
    assert parts["v1"] == hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert len(listener.bodies) == 1
    assert {name: listener.header(0, name) for name in trace} == trace, "the trace of its submission goes on"


@pytest.mark.parametrize("answer", [b"500 Oops", b"302 Found\r\nLocation: /elsewhere", b""])
async def test_a_webhook_that_fails_is_sent_again(tmp_path: Path, answer: bytes) -> None:
    async with listening(answer, b"200 OK") as listener, SqliteStore(tmp_path / "jobs.sqlite") as store:
        config = allowing(listener.host, secret="")
        await ended_job(store, listener.url)
        async with Webhooks(store, config):
            await wait_until_nothing_due(store)
    assert len(listener.bodies) == 2
    assert listener.bodies[0] == listener.bodies[1]
    assert all(head.startswith("POST /hook?a=b ") for head in listener.heads), "redirects are not followed"
    assert "dyorc-signature" not in listener.heads[0].lower()


async def test_a_webhook_survives_its_server(tmp_path: Path) -> None:
    async with listening(b"500 Oops") as listener:
        async with SqliteStore(tmp_path / "jobs.sqlite") as store:
            job_id = await ended_job(store, listener.url)
            async with Webhooks(store, allowing(listener.host)):
                await wait_until_async(lambda: listener.bodies, "the first attempt")
        listener.answers = [b"200 OK"]
        async with SqliteStore(tmp_path / "jobs.sqlite") as store, Webhooks(store, allowing(listener.host)):
            await wait_until_nothing_due(store)
    assert {json.loads(body)["id"] for body in listener.bodies} == {job_id}


async def test_a_webhook_is_given_up_in_the_end(tmp_path: Path) -> None:
    async with listening(b"500 Oops") as listener, SqliteStore(tmp_path / "jobs.sqlite") as store:
        await ended_job(store, listener.url)
        async with Webhooks(store, allowing(listener.host, give_up_s=0)):
            await wait_until_nothing_due(store)
    assert len(listener.bodies) == 1


async def test_a_host_that_is_no_longer_allowed_is_not_notified(tmp_path: Path) -> None:
    async with listening(b"200 OK") as listener, SqliteStore(tmp_path / "jobs.sqlite") as store:
        await ended_job(store, listener.url)
        async with Webhooks(store, allowing("elsewhere.example", give_up_s=0)):
            await wait_until_nothing_due(store)
    assert listener.bodies == []


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("https://a.example/x", ["a.example"]), ("https://A.Example/x", ["a.example"]), ("http://a.example:80/", ["a.example"]),
        ("http://a.example:8080/", ["a.example:8080"]),
        ("https://a.example/", ["a.example:443"]), ("http://[::1]:9/", ["[::1]:9"]),
    ],
)  # fmt: skip
def test_listed_hosts_are_allowed(url: str, hosts: list[str]) -> None:
    check_webhook(url, allowing(*hosts))


@pytest.mark.parametrize(
    "url",
    [
        "http://b.example/", "http://a.example.evil/", "http://evil/a.example", "http://a.example@evil/", "http://u:p@a.example/",
        "http://a.example:8080/", "ftp://a.example/", "//a.example/", "a.example", "", "http://", "http://a.example:x/",
        "http://a.example:99999/", "http://[::1/", "http://a.example/\r\nX: y", "http://a.example\\@evil/", "http://a.example./",
        "http://a.example/" + "x" * 3000,
    ],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="webhook"):
        check_webhook(url, allowing("a.example"))
