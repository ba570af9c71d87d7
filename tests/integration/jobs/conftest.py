"""Stores of jobs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dyorc.store.base import JobStore
from dyorc.store.sqlite import SqliteStore
from tests.integration.jobs.stored_jobs import MakeStore


@pytest.fixture
async def store(make_store: MakeStore) -> AsyncIterator[JobStore]:
    async with make_store() as found:
        yield found


@pytest.fixture
def file_store(tmp_path: Path) -> MakeStore:
    return lambda: SqliteStore(tmp_path / "jobs.sqlite")
