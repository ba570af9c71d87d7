"""Mistakes made on purpose in the code that coordinates servers, each by its name."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from dyorc.cluster import effect_announcements, orchestrator_connection, pending_requests, remote_backend
from dyorc.gateway import admission
from dyorc.gateway.jobs import attempts
from dyorc.leader_election import leader_discovery, leadership_thread
from dyorc.store import sqlite, sqlite_jobs, sqlite_leases
from tests.whole_server.replica_mutants import REPLICA_MUTANTS

MUTANTS: dict[str, Callable[[], None]] = {**REPLICA_MUTANTS}
"""By name, what makes the mistake in this process."""
UNNOTICED = frozenset({"ignored_key"})
"""What no run has shown yet."""

_LATE_S = 0.05


def _mutant(make: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[make.__name__] = make
    return make


@_mutant
def taken_lease() -> None:
    """The lease of a group can be acquired while another process holds it."""
    leases: Any = sqlite_leases

    def acquire(connection: sqlite3.Connection, name: str, owner: str, lease_s: float, above: int, now_s: float) -> int:
        row = leases._read(connection, name)
        fence = row.fence if row.owner == owner else max(row.fence, above) + 1
        leases._write(connection, name, leases._Row(fence, owner, b"", now_s, lease_s))
        return fence

    leases._acquire = acquire


@_mutant
def same_fence() -> None:
    """The next leader gets the fence of the last."""
    leases: Any = sqlite_leases

    def acquire(connection: sqlite3.Connection, name: str, owner: str, lease_s: float, above: int, now_s: float) -> int | None:
        row = leases._read(connection, name)
        if row.is_held(now_s):
            return row.fence if row.owner == owner else None
        fence = max(row.fence, above, 1)
        leases._write(connection, name, leases._Row(fence, owner, b"", now_s, lease_s))
        return fence

    leases._acquire = acquire


@_mutant
def no_resubmission() -> None:
    """A gateway does not submit what is unanswered to the next leader."""
    backend: Any = remote_backend.RemoteBackend
    join = backend._join

    def forgetful(self: Any, *args: Any) -> None:
        pending, self._pending = self._pending, {}
        join(self, *args)
        self._pending = pending

    backend._join = forgetful


@_mutant
def unannounced_effect() -> None:
    """An orchestrator does not wait until gateways know of an effect."""
    announcements: Any = effect_announcements.EffectAnnouncements
    announcements.announce = lambda self, concerned, go: go(True)


@_mutant
def repeated_job() -> None:
    """A job that may have had an effect is run again after its server has died."""
    runs: Any = attempts.Attempts
    runs.is_repeatable = lambda self, claim: True


@_mutant
def early_answer() -> None:
    """The store answers before a commit is on disk."""
    store: Any = sqlite.SqliteStore
    run_all = store._run_all

    def run_early(self: Any, steps: list[Any]) -> Any:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [self._run(connection, step) for step in steps]
        connection.execute("ROLLBACK")

        def write() -> None:
            time.sleep(_LATE_S)
            run_all(self, steps)

        threading.Thread(target=write).start()
        return outcomes

    store._run_all = run_early


@_mutant
def forgotten_ticket() -> None:
    """A job keeps its place among the requests that are admitted."""
    ticket: Any = admission.Ticket
    ticket.__exit__ = lambda self, kind, error, trace: None


@_mutant
def first_leader_only() -> None:
    """Gateways do not learn of a leader after the first."""
    discovery: Any = leader_discovery.LeaderDiscovery
    look = discovery._look

    async def look_once(self: Any) -> None:
        if self.leader is None:
            await look(self)

    discovery._look = look_once


@_mutant
def deaf_gateway() -> None:
    """A gateway does not notice that its connection has ended."""
    connection: Any = orchestrator_connection.OrchestratorConnection
    end = connection._end
    connection._end = lambda self, reason: None if self._welcome.done() else end(self, reason)


@_mutant
def endless_leader() -> None:
    """An orchestrator that has lost its lead goes on."""

    async def never(self: Any) -> str:
        await asyncio.Event().wait()
        return ""

    thread: Any = leadership_thread.LeadershipThread
    thread.wait_until_lost = never


@_mutant
def forgotten_request() -> None:
    """A gateway keeps a request that has failed."""
    backend: Any = remote_backend.RemoteBackend
    backend._fail = lambda self, request_id, error: self._answers.fail(request_id, error)


@_mutant
def unknown_effect() -> None:
    """A gateway acknowledges an effect and does not remember it, so it submits the request again."""
    pending: Any = pending_requests.PendingRequest
    pending.has_effect = property(lambda self: False, lambda self, value: None)


@_mutant
def unchecked_claim() -> None:
    """A server that has lost its claim of a job may still end it."""
    jobs: Any = sqlite_jobs
    jobs._HELD = "id = ? AND ? > 0"


@_mutant
def ignored_key() -> None:
    """A job that is submitted again under its key is another job."""
    jobs: Any = sqlite_jobs
    submit = jobs.submit
    jobs.submit = lambda connection, job, *rest: submit(connection, replace(job, idempotency_key=""), *rest)
