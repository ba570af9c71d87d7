"""A process that uses the store, and marks what it asks for.

    python -m tests.power_cuts.workload FOLDER ROLE TURN NUM_JOBS [MISTAKE]

FOLDER is where the store's file and the others are, or the URL of a Redis.
``left`` and ``right`` are two servers with one store; some jobs are submitted by one and run by the other. ``files`` writes the
other files that last.
"""

import asyncio
import random
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dyorc.gateway import keys
from dyorc.store import sqlite, sqlite_leases, sqlite_schema
from dyorc.store.base import Body, Claim, JobError, Lane, NewJob, NoteFence, Outcome, Store, new_id
from dyorc.store.lease_store import Lease
from dyorc.store.opening import store_of
from tests.power_cuts.marks import Change
from tests.power_cuts.mistakes import MISTAKES

STORE = Path("state/dyorc/jobs.sqlite")
"""In the folder; the folders above it are made by the store."""
KEYS, PLAN, CHECKPOINT = Path("keys.toml"), Path("plan.json"), Path("checkpoints/last")
TENANT, LEASE_S, LONG_S = "t", 5.0, 1e7
_NUM_WORKERS = 3
_LEASES_PER_JOB = 4  # their log, too, has to be written back
_CHECKPOINT_PAGES = 60
"""The log is written back after as many pages, where SQLite waits for 1,000: a short run has many of these."""
_DELETED_AT = 100
"""Number of a job's last change, above those of the process that runs it."""


def request_of(model: str) -> Body:
    """Returns the request of a job; each has a model of its own."""
    chance = random.Random(model)
    return Body(chance.randbytes(chance.choice((40, 700, 700, 3000, 30_000))))


def result_of(model: str) -> Body:
    """Returns a job's result."""
    return Body(request_of(model).data[::-1])


def note_of(number: int) -> bytes:
    """Returns the text of a note, or of a file."""
    return f"{number} ".encode() * (1 + 97 * number % 1500)


class Job:
    """A job, whose number says what becomes of it."""

    def __init__(self, model: str, number: int) -> None:
        self.model, self.fate = model, number % 7
        self._number = 1

    def change(self, *value: Any, number: int = 0) -> Change:
        """Returns its next change; without a value it is no longer there."""
        self._number = number or self._number + 1
        return Change(f"job/{self.model}", self._number, list(value) or None)

    async def submit(self, store: Store) -> str:
        """Returns its id."""
        job = NewJob(
            id=new_id(), tenant=TENANT, model_name=self.model, model_version="1", body=request_of(self.model),
            ttl_s=0.0 if self.fate == 4 else LONG_S, webhook="http://localhost/" if self.fate == 1 else "",
            idempotency_key=self.model,
        )  # fmt: skip
        with self.change("queued", 0, 0, number=1):
            return (await store.submit(job))[0].id

    async def run(self, store: Store, owner: str) -> None:
        """Runs it to its end, if it has one."""
        if self.fate == 5:
            return  # stays queued
        claim = await self._claim(store, owner, 1)
        if self.fate == 6:
            return  # its server forgets it
        if self.fate == 2:
            with self.change("queued", 1, 0):
                await store.release(claim, 0.0, is_counted=True)
            claim = await self._claim(store, owner, 2)
        await store.renew([claim], LEASE_S)
        await self._finish(store, claim)

    async def _claim(self, store: Store, owner: str, attempt: int) -> Claim:
        with self.change("running", attempt, 0):
            while not (claims := await store.claim([Lane(TENANT, self.model)], owner, LEASE_S)):
                await store.wait_for_work(0.02)
        return claims[0]

    async def _finish(self, store: Store, claim: Claim) -> None:
        attempts = claim.job.num_attempts
        if self.fate == 1:
            error = JobError(text="no", code="program_failed", retryable=False, status=500)
            with self.change("failed", attempts, 1):
                await store.finish(claim, Outcome(num_attempts=attempts, error=error))
            await store.webhook_failed(claim.job.id, 0.0)
            with self.change("failed", attempts, 0):
                await store.webhook_done(claim.job.id)
            return
        outcome = Outcome(num_attempts=attempts, result=result_of(self.model))
        with self.change() if self.fate == 4 else self.change("succeeded", attempts, 0):  # 4: it expires as it ends
            await store.finish(claim, outcome)

    async def end(self, store: Store, job_id: str) -> None:
        """Does what a client does with a job that was submitted."""
        if self.fate == 3:
            with self.change("cancelled", 0, 0, number=2):
                await store.cancel(TENANT, job_id)
        if self.fate == 0:
            while not (await store.get(TENANT, job_id)).state.is_final:
                await store.wait_for_work(0.02)
            with self.change(number=_DELETED_AT):
                await store.delete(TENANT, job_id)


async def _submit_all(store: Store, name: str, num_jobs: int) -> None:
    for number in range(num_jobs):
        job = Job(f"{name}-{number}", number)
        job_id = await job.submit(store)
        if job.fate in (0, 3):
            await job.end(store, job_id)


async def _run_all(store: Store, name: str, owner: str, num_jobs: int) -> None:
    for number in range(num_jobs):
        job = Job(f"{name}-{number}", number)
        if job.fate != 3:
            await job.run(store, owner)


async def _note_all(store: Store, name: str, num_notes: int) -> None:
    for number in range(1, num_notes + 1):
        with Change(f"note/{name}", number, number):
            await store.note(name, note_of(number))
        with Change(f"fence/{name}", number, number), Change(f"note/{name}-fenced", number, number):
            await store.note(f"{name}-fenced", note_of(number), NoteFence(name, number))


async def _lead(store: Store, owner: str, num_leases: int) -> None:
    """Takes and gives back a lease; what becomes of it is promised to nobody."""
    for _ in range(num_leases):
        fence = await store.acquire_lease("lead", owner, LEASE_S)
        if fence is not None:
            await store.renew_lease("lead", owner, LEASE_S, Lease(fence=fence, record=owner.encode() * 50))
            await store.release_lease("lead", owner, fence)


async def _forget_all(store: Store, num_times: int) -> None:
    for _ in range(num_times):
        await store.expire(50)
        await store.wait_for_work(0.01)


async def serve(opened: Store, role: str, turn: int, num_jobs: int) -> None:
    """Uses the store as one of two servers."""
    other = "right" if role == "left" else "left"
    async with opened as store, asyncio.TaskGroup() as tasks:
        for worker in range(_NUM_WORKERS):
            own = worker % 2 == 0  # else the other server runs them
            tasks.create_task(_submit_all(store, f"{role}-{turn}-{worker}", num_jobs))
            tasks.create_task(_run_all(store, f"{role if own else other}-{turn}-{worker}", role, num_jobs))
        tasks.create_task(_note_all(store, f"{role}-{turn}", num_jobs))
        tasks.create_task(_lead(store, role, _LEASES_PER_JOB * num_jobs))
        tasks.create_task(_forget_all(store, num_jobs))


def write_files(folder: Path, turn: int, num_times: int) -> None:
    """Writes the other files that last."""
    from dyorc.planner.runtime.checkpoint import commit
    from dyorc.planner.whole_file import write_whole
    from dyorc.system.durable_files import make_folder, sync_file

    plan: Any = SimpleNamespace(program="p", values={}, sources=())
    for number in range(1 + turn * num_times, 1 + (turn + 1) * num_times):
        with Change("file/keys", number, number):
            keys.write_tenants(folder / KEYS, [keys.TenantRecord(name=f"t{tenant}") for tenant in range(number)])
        with Change("file/plan", number, number):
            write_whole(folder / PLAN, note_of(number).decode())
        with Change("file/checkpoint", number, number):
            make_folder(folder / CHECKPOINT)
            (file := folder / CHECKPOINT / f"{number}.safetensors").write_bytes(note_of(number))
            sync_file(file)
            commit(plan, number, folder / CHECKPOINT, {file.name: ()})


def _prepare() -> None:
    """Has logs written back and space given back often, so that a short run has all of it."""
    modules: Any = (sqlite, sqlite_leases)
    for module in modules:
        module.connect = _writing_back(module.connect)
    schema: Any = sqlite_schema
    schema._SLACK_BYTES = 32 * 2**10


def _writing_back(real: Callable[[Path, float], sqlite3.Connection]) -> Callable[[Path, float], sqlite3.Connection]:
    def connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
        connection = real(path, busy_timeout_s)
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        return connection

    return connect


def main(folder: str, role: str, turn: str, num_jobs: str, *mistakes: str) -> None:
    """Runs the process."""
    for mistake in mistakes:
        MISTAKES[mistake]()
    _prepare()
    if role == "files":
        write_files(Path(folder), int(turn), int(num_jobs))
    else:
        url = folder if folder.startswith("unix:") else f"sqlite://{Path(folder) / STORE}"
        asyncio.run(serve(store_of(url), role, int(turn), int(num_jobs)))


if __name__ == "__main__":
    main(*sys.argv[1:])
