"""Stores of jobs: a SQLite file, and a real Redis that the tests of a module share."""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dyorc.store.base import JobStore
from dyorc.store.redis import RedisStore
from dyorc.store.sqlite import SqliteStore
from tests.integration.jobs.stored_jobs import MakeStore
from tests.redis_server import RedisServer


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Opens the same store every time it is called, on SQLite or on Redis."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "jobs.sqlite")
    server: RedisServer = request.getfixturevalue("redis_server")
    prefix = f"{{{secrets.token_hex(4)}}}:"
    return lambda: RedisStore(server.url, prefix)


@pytest.fixture
async def store(make_store: MakeStore) -> AsyncIterator[JobStore]:
    async with make_store() as found:
        yield found


@pytest.fixture
def file_store(tmp_path: Path) -> MakeStore:
    return lambda: SqliteStore(tmp_path / "jobs.sqlite")
