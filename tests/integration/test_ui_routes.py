"""The live page's files over HTTP: where browsers are sent, what they may keep, and who needs a key."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from dyorc.config import GatewayConfig
from dyorc.core.arrays import Array
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.gateway.live_feed import LiveFeed
from dyorc.gateway.service import InferenceService
from dyorc.gateway.ui.ui_files import ui_files
from dyorc.models.registry import ModelRegistry
from tests.deadlines import TIMEOUT_S
from tests.fake_backend import FakeBackend
from tests.workflows import arithmetic

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@contextlib.asynccontextmanager
async def serving(file: Path, *, has_page: bool = True) -> AsyncIterator[httpx.AsyncClient]:
    """Serves one model to those who have a key; yields a client without one."""
    _, key = new_key()
    write_tenants(file, [TenantRecord(name="team", keys=[key])])
    repertoire = ModelRegistry.of([arithmetic.quadruple])
    backend = FakeBackend(repertoire, lambda workflow, inputs: [list[Array](inputs)])
    config = GatewayConfig(port=0, drain_timeout_s=1, keys_file=str(file))
    with contextlib.closing(InferenceService(backend, config)) as service:
        gateway = Gateway(service, live=LiveFeed(service) if has_page else None)
        async with (
            HttpServer(gateway, config, service.shedding) as server,
            httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT_S, trust_env=False) as client,
        ):
            yield client


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Serves for one test."""
    async with serving(tmp_path / "keys.toml") as found:
        yield found


async def test_a_browser_is_sent_to_the_page_and_others_are_not(client: httpx.AsyncClient) -> None:
    answer = await client.get("/", headers=BROWSER)

    assert (answer.status_code, answer.headers["Location"], answer.headers["Vary"]) == (302, "ui/", "Accept")
    assert (await client.get("/")).status_code == 401
    assert (await client.get("/ui")).headers["Location"] == "ui/"


async def test_files_need_no_key_and_come_from_here_alone(client: httpx.AsyncClient) -> None:
    for name, file in ui_files().items():
        answer = await client.get(f"/ui/{name}")
        assert (answer.status_code, answer.content) == (200, file.body)
        assert answer.headers["Content-Type"] == file.media_type
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'self';")
    page = await client.get("/ui/")
    assert (page.status_code, page.content) == (200, ui_files()["index.html"].body)


async def test_a_browser_keeps_files_for_as_long_as_they_are_the_same(client: httpx.AsyncClient) -> None:
    first = await client.get("/ui/app.js", headers={"Accept-Encoding": "gzip"})
    again = await client.get("/ui/app.js", headers={"If-None-Match": first.headers["ETag"]})
    other = await client.get("/ui/app.js", headers={"If-None-Match": '"another"', "Accept-Encoding": "identity"})

    assert first.headers["Cache-Control"] == "no-cache"
    assert (first.headers["Content-Encoding"], first.headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert (again.status_code, again.content) == (304, b"")
    assert (other.status_code, other.content) == (200, first.content)
    assert "Content-Encoding" not in other.headers


@pytest.mark.parametrize(
    "path", ["/ui/nothing.js", "/ui/vendor/README.md", "/ui/../files.py", "/ui/..%2ffiles.py", "/ui/page/app.js"]
)
async def test_nothing_else_is_served(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code in {401, 404}


async def test_without_the_page_there_are_no_files(tmp_path: Path) -> None:
    async with serving(tmp_path / "keys.toml", has_page=False) as client:
        assert (await client.get("/ui/")).status_code == 404
        assert (await client.get("/", headers=BROWSER)).status_code == 401
