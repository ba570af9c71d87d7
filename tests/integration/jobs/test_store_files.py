"""Where the SQLite file of a store is, who may read it and which versions of it work; no password of a store is shown."""

import asyncio
import builtins
import contextlib
import io
import os
import sqlite3
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dyorc.errors import DefinitionError, StoreError
from dyorc.leader_election.leadership import Leadership
from dyorc.store import sqlite_schema
from dyorc.store.base import RECORD_BYTES
from dyorc.store.lease_store import Lease
from dyorc.store.opening import leases_of, store_of
from dyorc.store.sqlite import SqliteStore, default_path
from dyorc.store.sqlite_leases import SqliteLeases
from tests.deadlines import wait_until_async
from tests.integration.jobs.stored_jobs import a_job, claim_one, done, folder_bytes, submit


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


_OPEN_AND_CLOSE = """
import sqlite3, sys
for path in sys.argv[1:]:
    connection = sqlite3.connect(path)
    connection.execute("SELECT * FROM sqlite_schema").fetchall()
    connection.close()
"""
"""Closing deletes the log of a file that no other process is known to use."""


async def _use_all(path: Path) -> None:
    """Does everything with a store's files that a process may do, and leaves nothing open."""
    async with SqliteStore(path) as store, SqliteLeases(path) as leases:
        (job,) = await submit(store, a_job())
        await store.finish(await claim_one(store), done(bytes(40 * 2**20)))
        await store.delete("t", job.id)
        await store.expire(1)
        await store.num_bytes()
        await store.note("name", b"value")
        assert await store.acquire_lease("other", "one", 10.0) is not None
        assert (await leases.lease("other")).fence


async def test_a_process_that_opens_the_store_again_keeps_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    files = [path, tmp_path / "jobs.sqlite-leases"]
    async with SqliteStore(path) as store:
        assert await store.acquire_lease("lead", "one", 10.0) == 1
        await _use_all(path)
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", _OPEN_AND_CLOSE, *map(str, files))
        assert await other.wait() == 0
        assert all(file.with_name(f"{file.name}-wal").exists() for file in files), "the other process knew that we use them"
        (job,) = await submit(store, a_job())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id FROM jobs").fetchall() == [(job.id,)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_nothing_but_sqlite_opens_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing what was opened drops the locks, however short it was open, and whatever for."""
    opened: list[str] = []

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def open_file(file: Any, *arguments: Any, **options: Any) -> Any:
            opened.append(str(file))
            return function(file, *arguments, **options)

        return open_file

    for module in (os, io, builtins):
        monkeypatch.setattr(module, "open", noting(module.open))
    await _use_all(tmp_path / "jobs.sqlite")
    assert not [file for file in opened if str(tmp_path) in file]


async def test_a_link_to_the_file_is_the_same_store(tmp_path: Path) -> None:
    path, link = tmp_path / "there" / "jobs.sqlite", tmp_path / "here" / "link.sqlite"
    link.parent.mkdir()
    link.symlink_to(path)
    async with SqliteStore(link) as by_link, SqliteStore(path) as store:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        (job,) = await submit(by_link, a_job())
        assert await store.get("t", job.id) == job
        assert await by_link.acquire_lease("lead", "one", 10.0) == 1
        assert await store.acquire_lease("lead", "other", 10.0) is None, "there is one lead"
    assert list(link.parent.iterdir()) == [link]


async def test_a_file_of_two_names_is_refused(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "jobs.sqlite"):
        pass
    os.link(tmp_path / "jobs.sqlite", tmp_path / "other.sqlite")
    with pytest.raises(StoreError) as caught:
        async with SqliteStore(tmp_path / "other.sqlite"):
            pass
    assert "it has 2 names" in caught.value.detail


async def test_a_file_that_was_deleted_or_replaced_takes_no_jobs(tmp_path: Path) -> None:
    path, away = tmp_path / "jobs.sqlite", tmp_path / "away"
    async with SqliteStore(path) as store:
        await submit(store, a_job())
        path.rename(away)
        with pytest.raises(StoreError) as caught:
            await submit(store, a_job())
        assert f"{path} cannot be used now: it was deleted while it was open" in caught.value.detail
        path.touch()
        with pytest.raises(StoreError) as caught:
            await submit(store, a_job())
        assert "it was replaced by another file" in caught.value.detail
        away.replace(path)
        assert await store.num_queued() == 1, "a refused job is nowhere"


async def test_a_leader_goes_on_in_the_file_of_leases_that_others_open(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    async with SqliteLeases(path) as mine:
        assert await mine.acquire_lease("lead", "me", 60.0) == 1
        (tmp_path / "jobs.sqlite-leases").unlink()
        assert await mine.renew_lease("lead", "me", 60.0, Lease(fence=1, record=b""))
        async with SqliteLeases(path) as others:
            assert await others.acquire_lease("lead", "other", 60.0) is None


async def test_while_the_files_are_moved_away_a_leader_goes_on_and_nobody_else_can_lead(tmp_path: Path) -> None:
    away, names = tmp_path / "away", ("jobs.sqlite", "jobs.sqlite-leases", "jobs.sqlite-leases-wal", "jobs.sqlite-leases-shm")
    away.mkdir()
    store = f"sqlite://{tmp_path}/jobs.sqlite"
    (tmp_path / "jobs.sqlite").touch()
    async with (
        leases_of(store) as mine,
        leases_of(store) as others,
        Leadership(mine, "shop", 0.6) as leader,
        Leadership(others, "shop", 0.6) as standby,
    ):
        await leader.win()
        winning = asyncio.create_task(standby.win())
        assert (await others.lease("leader/shop")).fence == leader.fence, "it has looked by now"
        for name in names:
            (tmp_path / name).rename(away / name)
        await wait_until_async(lambda: leader.is_store_away and standby.is_store_away, "both notice it")
        with pytest.raises(StoreError) as caught:
            await others.acquire_lease("another", "me", 60.0)
        assert "jobs.sqlite is missing" in caught.value.detail
        assert not (tmp_path / "jobs.sqlite-leases").exists(), "nobody made a new one"
        assert leader.is_sure
        for name in reversed(names):  # the store's own file last: before, nobody looks
            (away / name).rename(tmp_path / name)
        await wait_until_async(lambda: not (leader.is_store_away or standby.is_store_away), "the files are back")
        assert leader.is_sure
        assert not winning.done()
        winning.cancel()
