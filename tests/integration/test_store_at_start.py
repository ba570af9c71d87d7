"""A server that cannot read what is deployed waits, or does not start: it never serves another version in its place."""

import asyncio
import secrets
import sqlite3
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dyorc.config import GatewayConfig, Settings
from dyorc.deployment.persistence import read_stored_record, record_writer, wait_for_record
from dyorc.deployment.state import DeploymentState
from dyorc.errors import ConfigurationError, StoreError
from dyorc.server.single_process import serve_embedded
from dyorc.store.redis import RedisStore
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.jobs.stored_jobs import MakeStore
from tests.redis_server import RedisServer
from tests.server_process import target


async def test_a_server_waits_for_redis_and_then_knows_what_is_deployed(redis_server: RedisServer) -> None:
    async with RedisStore(redis_server.url, f"{{{secrets.token_hex(4)}}}:") as store:
        keep = record_writer(store, "shop")
        await keep(DeploymentState(7).to_json())
        redis_server.kill()
        with pytest.raises(StoreError):
            await keep(DeploymentState(8).to_json())
        with capture_logs() as logs:
            reading = asyncio.create_task(wait_for_record(store, "shop"))
            await wait_until_async(lambda: bool(logs), "the server waits for its store")
            assert [(line["event"], redis_server.url in line["error"]) for line in logs] == [("store_waited_for", True)]
            redis_server.start()
            async with asyncio.timeout(TIMEOUT_S):
                assert (await reading).number == 7


async def test_a_server_whose_store_cannot_be_opened_does_not_start(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    settings = Settings(store=f"sqlite://{path}", gateway=GatewayConfig(port=0))
    with pytest.raises(ConfigurationError, match=f"{path} cannot be opened.*no server starts without its store"):
        async with serve_embedded([target("effects", "once")], settings, without_ray=True):
            pass


async def test_a_record_that_cannot_be_read_is_not_taken_for_none(make_store: MakeStore) -> None:
    async with make_store() as store:
        await store.note("deployed/shop", b'{"number": "?"}')
        with pytest.raises(ConfigurationError, match="note 'deployed/shop' cannot be read"):
            await read_stored_record(store, "shop")
