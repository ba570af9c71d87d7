"""Submits, claims and finishes jobs in a store. Leases are short, and nothing waits for a fixed time."""

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

from dyorc.errors import UnknownJobError
from dyorc.store.base import Body, Claim, NewJob, Outcome, Store, StoredJob, new_id

LONG_S = 60.0
SHORT_S = 0.02

MakeStore = Callable[[], Store]


def a_job(data: bytes = b"{}", **changes: object) -> NewJob:
    fields: dict[str, object] = {"tenant": "t", "model_name": "m", "model_version": "1", "ttl_s": LONG_S, "body": Body(data)}
    return NewJob(**(fields | {"id": new_id()} | changes))  # pyright: ignore[reportArgumentType]


async def claim(store: Store, max_jobs: int = 1, lease_s: float = LONG_S, models: tuple[str, ...] = ("m",)) -> list[Claim]:
    """Claims up to `max_jobs` jobs: urgent ones first, then from all lanes in turn."""
    found: list[Claim] = []
    while len(found) < max_jobs and (lanes := await store.lanes(models, lease_s)):
        urgent = [lane for lane in lanes if lane.is_urgent]
        found += await store.claim((urgent or lanes)[: max_jobs - len(found)], "me", lease_s)
    return found


async def claim_one(store: Store, lease_s: float = LONG_S) -> Claim:
    """Claims a job as soon as there is one."""
    found: list[Claim] = []
    for _ in itertools.count():
        found = await claim(store, lease_s=lease_s)
        if found:
            break
        await store.wait_for_work(SHORT_S)
    return found[0]


def done(data: bytes = b"result", json_bytes: int | None = None) -> Outcome:
    return Outcome(num_attempts=1, result=Body(data, json_bytes))


async def submit(store: Store, *jobs: NewJob) -> list[StoredJob]:
    return [(await store.submit(job))[0] for job in jobs]


async def wait_until_gone(store: Store, job_id: str) -> None:
    with contextlib.suppress(UnknownJobError):
        while True:
            await store.get("t", job_id)
            await store.wait_for_work(SHORT_S)


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
