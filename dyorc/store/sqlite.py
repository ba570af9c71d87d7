"""Jobs and notes in one SQLite file, and leases in another beside it, for the processes of one machine.

The file is in WAL mode with ``synchronous=FULL``: a commit is on disk before anybody hears of it, so it survives a power cut, not
only a crash of the process (for that ``NORMAL`` would do). The cost is shared: everything that comes while the disk is busy
is written in one transaction (`GroupCommit`). Several processes may use the file; they wait while it is locked.

A file that is deleted or replaced stays open, and commits to it succeed, but nobody finds them after a restart. So each commit
first looks whether the path still names the open file.
"""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from dyorc.errors import StoreError, UnknownJobError
from dyorc.protocol.job_records import JobState
from dyorc.store import sqlite_jobs as jobs
from dyorc.store import sqlite_notes
from dyorc.store.base import NO_QUOTA, Body, Claim, DueWebhook, Lane, NewJob, NoteFence, Outcome, Quota, StoredJob
from dyorc.store.group_commit import GroupCommit
from dyorc.store.group_commit import Outcome as StepOutcome
from dyorc.store.lease_store import Lease
from dyorc.store.sqlite_file import FileIdentity, connect
from dyorc.store.sqlite_leases import SqliteLeases
from dyorc.store.sqlite_schema import NewerSchemaError, give_back, migrate, prepare_new, rewrite_old

T = TypeVar("T")

_BUSY_TIMEOUT_S = 10.0
_FULL = "its disk is full; even to delete a job there has to be room, so free some of the disk"
"""It writes what it deletes to its log before it frees anything, and to write the log back the file may have to grow. SQLite's
option to delete without overwriting (``secure_delete = FAST``) needs less room, but some."""
_POLL_S = 0.25
"""Interval of checks for jobs that another process has submitted, or whose lease has ended."""


def default_path() -> Path:
    """Returns ``jobs.sqlite`` in the user's state folder, by the XDG base directory specification."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state") / "dyorc" / "jobs.sqlite"


class SqliteStore:
    """A `Store` in a file, which is created for this user alone if it does not exist.

    Args:
        path: The file.
        clock_s: Unix time in seconds.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path, clock_s: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock_s = clock_s
        self._batches = GroupCommit[sqlite3.Connection](self._run_all)
        self._leases = SqliteLeases(path, clock_s)
        self._is_new = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Opens the file.

        Raises:
            StoreError: If it cannot be opened, or a newer version wrote it.
        """
        try:
            self._connection = await self._batches.on_thread(self._open)
        except (sqlite3.Error, OSError, NewerSchemaError) as error:
            await self._batches.close()
            raise StoreError(f"the job store {self.path} cannot be opened: {error}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leases.__aexit__()
        await self._batches.on_thread(self._connection.close)
        await self._batches.close()

    def _open(self) -> sqlite3.Connection:
        connection = connect(self.path, _BUSY_TIMEOUT_S)
        try:
            prepare_new(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            migrate(connection)
            connection.execute("COMMIT")
            with contextlib.suppress(sqlite3.OperationalError):  # another server uses the file; the last one to close succeeds
                rewrite_old(connection)
            self._opened = FileIdentity.of(self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    # On the thread

    def _shorten(self) -> None:
        """Truncates the file after its last page: until then, that is only noted in the log."""
        with contextlib.suppress(sqlite3.Error):  # it is in use; the next checkpoint does it
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _run_all(self, steps: list[Callable[[sqlite3.Connection], Any]]) -> list[StepOutcome]:
        """Runs all steps in one transaction; one that fails is undone alone.

        If the disk has no room for all of them, the log is begun anew where that is possible, and each is run by itself: a small
        step fits where a large one does not.
        """
        try:
            return self._run_together(steps)
        except StoreError as error:
            if not _is_full(error.__cause__):
                raise
        with contextlib.suppress(sqlite3.Error):  # to write back what is in the log, the file may have to grow
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        return [self._run_alone(step) for step in steps]

    def _run_alone(self, step: Callable[[sqlite3.Connection], Any]) -> StepOutcome:
        try:
            (outcome,) = self._run_together([step])
        except StoreError as error:
            return _raising(error)
        return outcome

    def _run_together(self, steps: list[Callable[[sqlite3.Connection], Any]]) -> list[StepOutcome]:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                outcomes = [self._run(connection, step) for step in steps]
                self._check_place()
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError) as error:
            detail = f"the job store {self.path} cannot be used now: {error}"
            raise StoreError(detail, _FULL if _is_full(error) else "") from error
        return outcomes

    def _check_place(self) -> None:
        """Checks that the next process that opens the path finds what is committed now.

        Raises:
            OSError: If the path names no file, or another one.
        """
        present = FileIdentity.of(self.path)
        if present is None or present != self._opened:
            change = "deleted" if present is None else "replaced by another file"
            raise OSError(f"it was {change} while it was open; put it back, or restart the server to use what is there")

    @staticmethod
    def _run(connection: sqlite3.Connection, step: Callable[[sqlite3.Connection], Any]) -> StepOutcome:
        connection.execute("SAVEPOINT step")
        try:
            result = step(connection)
        except sqlite3.Error:
            raise  # of the disk or the file: it concerns all steps
        except UnknownJobError as error:
            return _raising(error)  # it has expired, which is noted
        except Exception as error:
            connection.execute("ROLLBACK TO step")
            return _raising(error)
        finally:
            if connection.in_transaction:
                connection.execute("RELEASE step")
        return lambda: result

    async def _call(self, step: Callable[..., T], *values: Any) -> T:
        return await self._batches.call(lambda connection: step(connection, *values, self._clock_s()))

    # The store

    async def submit(self, job: NewJob, quota: Quota = NO_QUOTA) -> tuple[StoredJob, bool]:
        """See `JobStore.submit`."""
        outcome = await self._call(jobs.submit, job, quota)
        self._is_new.set()
        return outcome

    async def lanes(self, models: Collection[str], lease_s: float) -> list[Lane]:
        """See `JobStore.lanes`."""
        self._is_new.clear()
        return await self._call(jobs.lanes, models, lease_s)

    async def claim(self, lanes: Sequence[Lane], owner: str, lease_s: float) -> list[Claim]:
        """See `JobStore.claim`."""
        return await self._call(jobs.claim, lanes, owner, lease_s)

    async def renew(self, claims: Sequence[Claim], lease_s: float) -> set[str]:
        """See `JobStore.renew`."""
        return await self._call(jobs.renew, claims, lease_s)

    async def finish(self, claim: Claim, outcome: Outcome, quota: Quota = NO_QUOTA) -> bool:
        """See `JobStore.finish`."""
        return await self._call(jobs.finish, claim, outcome, quota)

    async def release(self, claim: Claim, delay_s: float, *, is_counted: bool) -> bool:
        """See `JobStore.release`."""
        is_released = await self._call(jobs.release, claim, delay_s, is_counted)
        self._is_new.set()
        return is_released

    async def cancel(self, tenant: str, job_id: str) -> StoredJob:
        """See `JobStore.cancel`."""
        return await self._call(jobs.cancel, tenant, job_id)

    async def get(self, tenant: str, job_id: str) -> StoredJob:
        """See `JobStore.get`."""
        return await self._call(jobs.read, tenant, job_id)

    async def result(self, tenant: str, job_id: str) -> Body | None:
        """See `JobStore.result`."""
        return await self._call(jobs.result, tenant, job_id)

    async def page(self, tenant: str, state: JobState | None, limit: int, after: str) -> list[StoredJob]:
        """See `JobStore.page`."""
        return await self._call(jobs.page, tenant, state, limit, after)

    async def delete(self, tenant: str, job_id: str) -> None:
        """See `JobStore.delete`."""
        await self._call(jobs.delete, tenant, job_id)

    async def expire(self, limit: int) -> int:
        """See `JobStore.expire`."""
        num_forgotten = await self._call(jobs.expire, limit)
        if await self._batches.call(give_back):
            while await self._batches.call(give_back):
                pass
            await self._batches.on_thread(self._shorten)
        return num_forgotten

    async def num_bytes(self) -> int:
        """See `JobStore.num_bytes`."""
        return await self._call(jobs.num_bytes)

    async def num_queued(self) -> int:
        """See `JobStore.num_queued`."""
        return await self._call(jobs.num_queued)

    async def due_webhooks(self, limit: int, lease_s: float) -> list[DueWebhook]:
        """See `JobStore.due_webhooks`."""
        return await self._call(jobs.due_webhooks, limit, lease_s)

    async def webhook_done(self, job_id: str) -> None:
        """See `JobStore.webhook_done`."""
        await self._batches.call(lambda connection: jobs.forget_webhook(connection, job_id))

    async def webhook_failed(self, job_id: str, delay_s: float) -> None:
        """See `JobStore.webhook_failed`."""
        await self._call(jobs.count_webhook_failure, job_id, delay_s)

    async def wait_for_work(self, timeout_s: float) -> None:
        """See `JobStore.wait_for_work`."""
        try:
            async with asyncio.timeout(min(timeout_s, _POLL_S)):
                await self._is_new.wait()
        except TimeoutError:
            return

    async def note(self, name: str, value: bytes, fence: NoteFence | None = None) -> bool:
        """See `NoteStore.note`."""
        return await self._batches.call(lambda connection: sqlite_notes.put(connection, name, value, fence))

    async def claim_notes(self, fence: NoteFence) -> int:
        """See `NoteStore.claim_notes`."""
        return await self._batches.call(lambda connection: sqlite_notes.claim(connection, fence))

    async def noted(self, name: str) -> bytes | None:
        """See `NoteStore.noted`."""
        return await self._batches.call(lambda connection: sqlite_notes.read(connection, name))

    async def acquire_lease(self, name: str, owner: str, lease_s: float, above: int = 0) -> int | None:
        """See `Leases.acquire_lease`."""
        return await self._leases.acquire_lease(name, owner, lease_s, above)

    async def renew_lease(self, name: str, owner: str, lease_s: float, held: Lease) -> bool:
        """See `Leases.renew_lease`."""
        return await self._leases.renew_lease(name, owner, lease_s, held)

    async def release_lease(self, name: str, owner: str, fence: int) -> None:
        """See `Leases.release_lease`."""
        await self._leases.release_lease(name, owner, fence)

    async def lease(self, name: str) -> Lease:
        """See `Leases.lease`."""
        return await self._leases.lease(name)


def _is_full(error: BaseException | None) -> bool:
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def _raising(error: Exception) -> StepOutcome:
    def fail() -> Any:
        raise error

    return fail
