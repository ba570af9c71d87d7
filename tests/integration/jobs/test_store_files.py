"""Where the SQLite file of a store is, who may read it and which versions of it work; no password of a store is shown."""

import asyncio
import contextlib
import sqlite3
import stat
from pathlib import Path

import pytest

from dyorc.errors import DefinitionError, StoreError
from dyorc.store import sqlite_schema
from dyorc.store.base import RECORD_BYTES
from dyorc.store.opening import store_of
from dyorc.store.sqlite import SqliteStore, default_path
from tests.integration.jobs.stored_jobs import folder_bytes


def test_only_their_user_may_read_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "dyorc" / "jobs.sqlite"

    async def open_it() -> list[int]:
        async with SqliteStore(default_path()):
            files = sorted((tmp_path / "dyorc").iterdir())
            assert len(files) == 3, "the file, its log and the log's index"
            return [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "dyorc", *files)]

    assert asyncio.run(open_it()) == [0o700, 0o600, 0o600, 0o600]
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    assert default_path() == Path.home() / ".local" / "state" / "dyorc" / "jobs.sqlite"


async def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError) as caught:
        async with SqliteStore(path):
            pass
    assert "version 99, expected at most 4" in caught.value.detail


async def test_a_stores_password_is_not_shown() -> None:
    store = store_of("redis://user:geheim@localhost:1/0?password=geheim")
    async with store:
        with pytest.raises(StoreError) as caught:
            await store.get("t", "id")
    assert "redis://localhost:1/0" in caught.value.detail
    assert "geheim" not in caught.value.detail
    with pytest.raises(DefinitionError) as caught_setting:
        store_of("mysql://user:geheim@localhost")
    assert "geheim" not in str(caught_setting.value)


async def test_a_file_of_an_older_version_counts_the_bytes_of_its_jobs_and_gives_space_back(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.execute("PRAGMA journal_mode = WAL")
        for statement in sqlite_schema._STEPS[0]:
            old.execute(statement)
        old.execute("PRAGMA user_version = 1")
        old.execute(
            "INSERT INTO jobs (id, tenant, model_name, model_version, state, is_urgent, terms, ttl_s, webhook, digest, "
            "num_attempts, token, created_s, ready_s) VALUES ('id', 't', 'm', '1', 'queued', 0, '', 60, '', '', 0, 0, 0, 0)"
        )
        old.execute("INSERT INTO bodies VALUES ('id', 0, NULL, ?)", (bytes(40 * 2**20),))
        old.commit()
    async with SqliteStore(path) as store:
        assert await store.num_bytes() == RECORD_BYTES + 40 * 2**20
        await store.delete("t", "id")
        await store.expire(1)
        assert await store.num_bytes() == 0
        assert folder_bytes(tmp_path) < 20 * 2**20
