"""Leases in a separate SQLite file next to a store's, for the processes of one machine.

A process that is stopped in the middle of a transaction keeps the file locked, and all others from leading. So transactions are
short: none waits for the disk, since no leader survives a power cut, and no job is written here. Only when the log is written
back, after some thousand renewals, is it synchronized, and then the file (``synchronous=NORMAL``): a power cut may lose the last
leases, but must not damage the file, or nobody could lead until it is deleted.

A file that is deleted or replaced is left for what its path names now: otherwise a process that opens the path later could lead
beside the present leader. Once the store's own file has vanished, somebody is moving the files, or has deleted them: then no file
of leases is made or used, and the store counts as away. In a new one, a standby could acquire the lead that the leader holds. For
the same reason a process that only looks makes none.

The machine's clock may be set. A lease that was renewed in the future has ended: otherwise no process could lead until that time.
"""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from dyorc.errors import StoreError
from dyorc.store.lease_store import Lease
from dyorc.store.sqlite_file import FileIdentity, connect

T = TypeVar("T")

_BUSY_TIMEOUT_S = 0.5
_TABLE = """CREATE TABLE IF NOT EXISTS leases (
    name TEXT PRIMARY KEY, fence INTEGER NOT NULL, owner TEXT NOT NULL, record BLOB NOT NULL, renewed_s REAL NOT NULL,
    lease_s REAL NOT NULL
) WITHOUT ROWID"""


class _Row(NamedTuple):
    fence: int
    owner: str
    record: bytes
    renewed_s: float
    lease_s: float

    def is_held(self, now_s: float) -> bool:
        return bool(self.owner) and self.renewed_s <= now_s < self.renewed_s + self.lease_s


_NOBODY = _Row(0, "", b"", 0.0, 0.0)


class SqliteLeases:
    """The leases next to a store's file, in a file that is created for this user alone when it is first needed.

    Args:
        path: The store's file.
        clock_s: Unix time in seconds.
    """

    def __init__(self, path: Path, clock_s: Callable[[], float] = time.time) -> None:
        self._store = path
        self._had_store = False
        self._opened: FileIdentity | None = None
        self._clock_s = clock_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dyorc-leases")
        self._connection: sqlite3.Connection | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._on_thread(self._close)
        self._thread.shutdown()

    async def acquire_lease(self, name: str, owner: str, lease_s: float, above: int = 0) -> int | None:
        """See `Leases.acquire_lease`."""
        return await self._call(_acquire, name, owner, lease_s, above)

    async def renew_lease(self, name: str, owner: str, lease_s: float, held: Lease) -> bool:
        """See `Leases.renew_lease`."""
        return await self._call(_renew, name, owner, lease_s, held)

    async def release_lease(self, name: str, owner: str, fence: int) -> None:
        """See `Leases.release_lease`."""
        await self._call(_release, name, owner, fence)

    async def lease(self, name: str) -> Lease:
        """See `Leases.lease`."""
        row = await self._on_thread(lambda: self._guarded(lambda connection: _read(connection, name), _NOBODY))
        return Lease(fence=row.fence, record=row.record if row.is_held(self._clock_s()) else b"")

    async def _call(self, step: Callable[..., T], *values: Any) -> T:
        def run(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                return step(connection, *values, self._clock_s())

        return await self._on_thread(lambda: self._guarded(run))

    async def _on_thread(self, run: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _guarded(self, run: Callable[[sqlite3.Connection], T], without_file: T | None = None) -> T:
        """Runs a step on the file that the path names now.

        Args:
            without_file: Returned if there is none; None: it is made.

        Raises:
            StoreError: If the file cannot be used now.
        """
        try:
            self._check_store()
            if self._connection is not None and FileIdentity.of(self._path) != self._opened:
                self._close()
            if self._connection is None:
                if without_file is not None and FileIdentity.of(self._path) is None:
                    return without_file
                self._connection = self._open()
            return run(self._connection)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"the leases beside {self._store} cannot be used now: {error}") from error

    def _check_store(self) -> None:
        """Checks that the store's file is there, if it ever was.

        Raises:
            OSError: If it is not there any longer.
        """
        is_there = FileIdentity.of(self._store) is not None
        self._had_store = self._had_store or is_there
        if self._had_store and not is_there:
            raise OSError(f"{self._store} is missing; put it back with the files whose names begin alike")

    def _open(self) -> sqlite3.Connection:
        with contextlib.ExitStack() as undo:
            path = self._path
            connection = connect(path, _BUSY_TIMEOUT_S)
            undo.callback(connection.close)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(_TABLE)
            self._opened = FileIdentity.of(path)
            undo.pop_all()
            return connection

    @property
    def _path(self) -> Path:
        store = self._store.resolve()  # processes that name the file by a link share its leases, too
        return store.with_name(f"{store.name}-leases")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _acquire(connection: sqlite3.Connection, name: str, owner: str, lease_s: float, above: int, now_s: float) -> int | None:
    row = _read(connection, name)
    if row.is_held(now_s):
        return row.fence if row.owner == owner else None
    fence = max(row.fence, above) + 1
    _write(connection, name, _Row(fence, owner, b"", now_s, lease_s))
    return fence


def _renew(connection: sqlite3.Connection, name: str, owner: str, lease_s: float, held: Lease, now_s: float) -> bool:
    row = _read(connection, name)
    if row.fence > held.fence or (row.fence == held.fence and row.owner not in ("", owner)):
        return False
    _write(connection, name, _Row(held.fence, owner, held.record, now_s, lease_s))
    return True


def _release(connection: sqlite3.Connection, name: str, owner: str, fence: int, _now_s: float) -> None:
    if _read(connection, name)[:2] == (fence, owner):
        _write(connection, name, _NOBODY._replace(fence=fence))


def _read(connection: sqlite3.Connection, name: str) -> _Row:
    row = connection.execute("SELECT fence, owner, record, renewed_s, lease_s FROM leases WHERE name = ?", (name,)).fetchone()
    return _NOBODY if row is None else _Row(*row)


def _write(connection: sqlite3.Connection, name: str, row: _Row) -> None:
    connection.execute("REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)", (name, *row))
