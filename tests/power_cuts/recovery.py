"""What a server that starts again after a cut has, compared with what was promised."""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dyorc.errors import CheckpointError, ConfigurationError, StoreError
from dyorc.gateway import keys
from dyorc.store.base import MAX_LISTED, Lane, NewJob, NoteFence, Outcome, Store, new_id
from dyorc.store.sqlite import SqliteStore
from tests.power_cuts.marks import Expectations, Value
from tests.power_cuts.workload import CHECKPOINT, KEYS, LEASE_S, LONG_S, PLAN, STORE, TENANT, note_of, request_of, result_of

_CHECKS = {
    "the sizes of tenants are not those of their jobs": (
        "SELECT tenant, SUM(num_bytes) FROM jobs GROUP BY tenant EXCEPT SELECT tenant, num_bytes FROM usage"
    ),
    "a job has no request": (
        "SELECT id FROM jobs WHERE state IN ('queued', 'running') AND id NOT IN (SELECT job_id FROM bodies WHERE kind = 0)"
    ),
    "a body has no job": "SELECT job_id FROM bodies WHERE job_id NOT IN (SELECT id FROM jobs)",
    "a webhook has no job": "SELECT job_id FROM webhooks WHERE job_id NOT IN (SELECT id FROM jobs)",
}
_NUM_RESUBMITTED = 5


class DamagedError(Exception):
    """The store said that its file is damaged."""


class _Clock:
    def __init__(self) -> None:
        self._ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self._ahead_s

    def pass_leases(self) -> None:
        self._ahead_s += 3600.0


async def wrong_in_store(folder: Path, expected: Expectations, *, may_be_lost: bool) -> list[str]:
    """Returns what is wrong with a store after a cut, in words.

    Args:
        may_be_lost: Whether the disk had lied: then acknowledged changes may be missing, but nothing may be wrong.

    Raises:
        DamagedError: If the store cannot be opened, or SQLite calls its file damaged.
    """
    clock, path = _Clock(), folder / STORE
    try:
        async with SqliteStore(path, clock) as store:
            with contextlib.closing(sqlite3.connect(path)) as connection:
                _check_whole(connection)
                wrong = [text for text, query in _CHECKS.items() if connection.execute(query).fetchone()]
            if wrong:
                return wrong
            wrong += await wrong_values(store, expected, may_be_lost=may_be_lost)
            clock.pass_leases()
            return wrong + await wrong_after_recovery(store, LEASE_S) + await _wrong_lead(store)
    except (StoreError, sqlite3.DatabaseError) as error:
        raise DamagedError(str(error)) from error


def _check_whole(connection: sqlite3.Connection) -> None:
    verdict = connection.execute("PRAGMA integrity_check").fetchall()
    if verdict != [("ok",)]:
        raise DamagedError(str(verdict[:3]))


async def wrong_values(store: Store, expected: Expectations, *, may_be_lost: bool) -> list[str]:
    """Returns what of a store's jobs and notes is not as it was acknowledged."""
    wrong = await _wrong_jobs(store, expected, may_be_lost) + await _wrong_notes(store, expected, may_be_lost)
    return wrong + await _wrong_resubmitted(store)


async def _all_jobs(store: Store) -> list[Any]:
    jobs, after = [], ""
    while page := await store.page(TENANT, None, MAX_LISTED, after):
        jobs += page
        after = page[-1].id
    return jobs


async def _wrong_jobs(store: Store, expected: Expectations, may_be_lost: bool) -> list[str]:
    webhooks = {due.job.model_name for due in await store.due_webhooks(MAX_LISTED, 0.0)}
    stored: dict[str, Value] = {}
    wrong: list[str] = []
    for job in await _all_jobs(store):
        if job.model_name in stored:
            wrong.append(f"job {job.model_name} is there twice")
        stored[job.model_name] = [str(job.state), job.num_attempts, int(job.model_name in webhooks)]
        if job.state == "succeeded" and await store.result(TENANT, job.id) != result_of(job.model_name):
            wrong.append(f"job {job.model_name} has another result than it ended with")
    known = expected.keys("job/")
    wrong += [f"job {name} was never submitted" for name in stored.keys() - set(known)]
    for name in known:
        wrong += expected.wrong(f"job/{name}", stored.get(name), may_be_lost=may_be_lost)
    return wrong


async def _wrong_notes(store: Store, expected: Expectations, may_be_lost: bool) -> list[str]:
    wrong: list[str] = []
    for name in expected.keys("note/"):
        text = await store.noted(name)
        number = None if text is None else int(text.split()[0])
        wrong += expected.wrong(f"note/{name}", number, may_be_lost=may_be_lost)
        if number is not None and text != note_of(number):
            wrong.append(f"note {name} is mixed of two")
    for scope in expected.keys("fence/"):
        highest = await store.claim_notes(NoteFence(scope, 0))
        wrong += expected.wrong(f"fence/{scope}", highest or None, may_be_lost=may_be_lost)
    return wrong


async def _wrong_resubmitted(store: Store) -> list[str]:
    """Submits some jobs again whose client may not know whether they were accepted."""
    by_name = {job.model_name: job for job in (await _all_jobs(store))[:_NUM_RESUBMITTED]}
    wrong: list[str] = []
    for name, job in by_name.items():
        again = NewJob(
            id=new_id(), tenant=TENANT, model_name=name, model_version="1", body=request_of(name), ttl_s=LONG_S,
            idempotency_key=name,
        )  # fmt: skip
        same, is_new = await store.submit(again)
        if is_new or same.id != job.id:
            wrong.append(f"job {name} was accepted twice with one idempotency key")
    return wrong


async def wrong_after_recovery(store: Store, lease_s: float) -> list[str]:
    """Runs what is left, and returns what of it cannot be run, or is not what was submitted.

    Args:
        lease_s: How long a claim lasts; those of the dead servers have ended by that.
    """
    wrong: list[str] = []
    names = {job.model_name for job in await _all_jobs(store)}
    while lanes := await store.lanes(names, lease_s):
        for claim in await store.claim([Lane(TENANT, lane.model_name) for lane in lanes], "recovery", lease_s):
            name = claim.job.model_name
            if claim.body != request_of(name):
                wrong.append(f"job {name} has another request than was submitted")
            outcome = Outcome(num_attempts=claim.job.num_attempts, result=result_of(name))
            if not await store.finish(claim, outcome):
                wrong.append(f"job {name} cannot be ended")
    wrong += [f"job {job.model_name} never ends" for job in await _all_jobs(store) if not job.state.is_final]
    for due in await store.due_webhooks(MAX_LISTED, 0.0):
        await store.webhook_done(due.job.id)
    return wrong


async def _wrong_lead(store: Store) -> list[str]:
    try:
        is_free = await store.acquire_lease("lead", "recovery", LEASE_S) is not None
    except StoreError as error:
        return [f"nobody can lead: {error}"]
    return [] if is_free else ["nobody can lead: the lease is held by a dead server"]


def wrong_in_files(folder: Path, expected: Expectations, *, may_be_lost: bool) -> list[str]:
    """Returns what is wrong with the other files that last."""
    readers: dict[str, Callable[[Path], Value]] = {"keys": _keys, "plan": _plan, "checkpoint": _checkpoint}
    wrong: list[str] = []
    for name, read in readers.items():
        try:
            wrong += expected.wrong(f"file/{name}", read(folder), may_be_lost=may_be_lost)
        except (ConfigurationError, CheckpointError, ValueError, IndexError) as error:
            if not may_be_lost:  # a file that says that it is damaged
                wrong.append(f"file {name} cannot be read: {error}")
    return wrong


def _keys(folder: Path) -> Value:
    return len(keys.read_tenants(folder / KEYS)) if (folder / KEYS).exists() else None


def _plan(folder: Path) -> Value:
    if not (folder / PLAN).exists():
        return None
    text = (folder / PLAN).read_bytes()
    if text != note_of(number := int(text.split()[0])):
        raise ValueError("it is not whole")
    return number


def _checkpoint(folder: Path) -> Value:
    from dyorc.planner.runtime.checkpoint import read_index

    if not (folder / CHECKPOINT / "index.json").exists():
        return None
    index = read_index(folder / CHECKPOINT)
    for name, file in index.files.items():
        path = folder / CHECKPOINT / name
        if not path.exists() or path.stat().st_size != file.num_bytes:
            raise CheckpointError(f"{name} is missing or not whole")
    return index.step


def wrong_after_cut(folder: Path, expected: Expectations, *, may_be_lost: bool = False) -> list[str]:
    """Returns all that is wrong in a folder after a cut.

    Raises:
        DamagedError: See `wrong_in_store`.
    """
    wrong = asyncio.run(wrong_in_store(folder, expected, may_be_lost=may_be_lost))
    return wrong + wrong_in_files(folder, expected, may_be_lost=may_be_lost)
