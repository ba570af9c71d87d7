"""Mistakes made on purpose in servers whose jobs' histories are judged, each by its name. They concern SQLite."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dyorc.protocol.job_records import JobState
from dyorc.store import sqlite, sqlite_file, sqlite_jobs, sqlite_leases

JOB_MISTAKES: dict[str, Callable[[], None]] = {}
"""By name, what makes the mistake in this process."""

_steps: Any = sqlite_jobs


def _mistake(make: Callable[[], None]) -> Callable[[], None]:
    JOB_MISTAKES[make.__name__] = make
    return make


@_mistake
def late_result() -> None:
    """A result is accepted from a server that has lost its lease, even of a job that has ended."""
    finish, held = sqlite_jobs.finish, _steps._HELD

    def finish_late(*args: Any) -> bool:
        _steps._HELD = "id = ? AND ? > 0"
        try:
            return finish(*args)
        finally:
            _steps._HELD = held

    sqlite_jobs.finish = finish_late


@_mistake
def late_cancellation() -> None:
    """A job that has ended is cancelled."""

    def cancel(connection: Any, tenant: str, job_id: str, now_s: float) -> Any:
        sqlite_jobs.read(connection, tenant, job_id, now_s)
        connection.execute("UPDATE jobs SET state = 'cancelled', lease_until_s = NULL WHERE id = ?", (job_id,))
        return sqlite_jobs.read(connection, tenant, job_id, now_s)

    sqlite_jobs.cancel = cancel


@_mistake
def unwritten_cancellation() -> None:
    """A cancellation is answered and not written."""

    def cancel(connection: Any, tenant: str, job_id: str, now_s: float) -> Any:
        job = sqlite_jobs.read(connection, tenant, job_id, now_s)
        return job if job.state.is_final else replace(job, state=JobState.CANCELLED)

    sqlite_jobs.cancel = cancel


@_mistake
def forgotten_key() -> None:
    """A job's idempotency key is not kept, so that the same request becomes another job."""
    submit = sqlite_jobs.submit

    def submit_without_key(connection: Any, job: Any, *rest: Any) -> Any:
        return submit(connection, replace(job, idempotency_key=""), *rest)

    sqlite_jobs.submit = submit_without_key


@_mistake
def dropped_locks() -> None:
    """The file of the store is opened once more and closed, which drops this process's locks on it (decision 0068)."""
    connect = sqlite_file.connect
    stores: tuple[Any, ...] = (sqlite, sqlite_leases)

    def connect_and_look(path: Path, *rest: Any) -> Any:
        connection = connect(path, *rest)
        connection.execute("SELECT name FROM sqlite_master").fetchall()
        os.close(os.open(path, os.O_RDONLY))
        return connection

    for store in stores:
        store.connect = connect_and_look


@_mistake
def shared_list() -> None:
    """A tenant's list of jobs is the other's, too."""
    page = sqlite_jobs.page

    def page_of_all(connection: Any, _tenant: str, *rest: Any) -> Any:
        tenants = [tenant for (tenant,) in connection.execute("SELECT DISTINCT tenant FROM jobs").fetchall()]
        return [job for tenant in tenants for job in page(connection, tenant, *rest)]

    sqlite_jobs.page = page_of_all
