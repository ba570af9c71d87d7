"""Mistakes made on purpose in the code that coordinates servers, each by its name."""

import asyncio
import itertools
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from dyorc.client import http
from dyorc.cluster import (
    effect_announcements,
    gateway_server,
    groups_backend,
    orchestrator_connection,
    pending_requests,
    remote_backend,
)
from dyorc.gateway import admission
from dyorc.gateway.jobs import attempts
from dyorc.leader_election import leader_discovery, leadership_thread
from dyorc.models import status
from dyorc.orchestrator import orchestrator
from dyorc.protocol.header_names import IDEMPOTENCY_KEY
from dyorc.store import sqlite, sqlite_jobs, sqlite_leases
from tests.whole_server.replica_mutants import REPLICA_MUTANTS

MUTANTS: dict[str, Callable[[], None]] = {**REPLICA_MUTANTS}
"""By name, what makes the mistake in this process."""

_LATE_S = 0.05


def _mutant(make: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[make.__name__] = make
    return make


def _replace(owner: Any, name: str, stand_in: Any) -> Any:
    """Puts something in place of what is there, and returns that.

    Raises:
        AttributeError: If nothing of this name is there: the mistake would change nothing.
    """
    real = getattr(owner, name)
    setattr(owner, name, stand_in)
    return real


@_mutant
def taken_lease() -> None:
    """The lease of a group can be acquired while another process holds it."""
    leases: Any = sqlite_leases

    def acquire(connection: sqlite3.Connection, name: str, owner: str, lease_s: float, above: int, now_s: float) -> int:
        row = leases._read(connection, name)
        fence = row.fence if row.owner == owner else max(row.fence, above) + 1
        leases._write(connection, name, leases._Row(fence, owner, b"", now_s, lease_s))
        return fence

    _replace(leases, "_acquire", acquire)


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

    _replace(leases, "_acquire", acquire)


@_mutant
def no_resubmission() -> None:
    """A gateway does not submit what is unanswered to the next leader."""
    backend: Any = remote_backend.RemoteBackend
    join = backend._join

    def forgetful(self: Any, *args: Any) -> None:
        pending, self._pending = self._pending, {}
        join(self, *args)
        self._pending = pending

    _replace(backend, "_join", forgetful)


@_mutant
def unannounced_effect() -> None:
    """An orchestrator does not wait until gateways know of an effect."""
    announcements: Any = effect_announcements.EffectAnnouncements
    _replace(announcements, "announce", lambda self, concerned, go: go(True))


@_mutant
def repeated_job() -> None:
    """A job that may have had an effect is run again after its server has died."""
    runs: Any = attempts.Attempts
    _replace(runs, "is_repeatable", lambda self, claim: True)


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

    _replace(store, "_run_all", run_early)


@_mutant
def forgotten_ticket() -> None:
    """A job keeps its place among the requests that are admitted."""
    ticket: Any = admission.Ticket
    _replace(ticket, "__exit__", lambda self, kind, error, trace: None)


@_mutant
def first_leader_only() -> None:
    """Gateways do not learn of a leader after the first."""
    discovery: Any = leader_discovery.LeaderDiscovery
    look = discovery._look

    async def look_once(self: Any) -> None:
        if self.leader is None:
            await look(self)

    _replace(discovery, "_look", look_once)


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
    _replace(thread, "wait_until_lost", never)


@_mutant
def forgotten_request() -> None:
    """A gateway keeps a request that has failed."""
    backend: Any = remote_backend.RemoteBackend
    _replace(backend, "_fail", lambda self, request_id, error: self._answers.fail(request_id, error))


@_mutant
def unknown_effect() -> None:
    """A gateway acknowledges an effect and does not remember it, so it submits the request again."""
    pending: Any = pending_requests.PendingRequest
    _replace(pending, "has_effect", property(lambda self: False, lambda self, value: None))


@_mutant
def unchecked_claim() -> None:
    """A server that has lost its claim of a job may still end it."""
    jobs: Any = sqlite_jobs
    _replace(jobs, "_HELD", "id = ? AND ? > 0")


@_mutant
def ignored_key() -> None:
    """A job that is submitted again under its key is another job."""
    jobs: Any = sqlite_jobs
    submit = jobs.submit
    jobs.submit = lambda connection, job, *rest: submit(connection, replace(job, idempotency_key=""), *rest)


@_mutant
def stale_answers() -> None:
    """Gateways do not look at the fence of who sends them something."""
    _replace(remote_backend.RemoteBackend, "_is_outranked", lambda self, leader: False)


@_mutant
def kept_lease() -> None:
    """An orchestrator that ends does not give up its lead."""

    async def release_lease(self: Any, *values: Any) -> None:
        pass

    _replace(sqlite_leases.SqliteLeases, "release_lease", release_lease)


@_mutant
def early_readiness() -> None:
    """A gateway is ready when it has started, before it has heard what is served (decision 0069)."""
    _replace(status.StatusBoard, "_is_complete", lambda self: all(each.is_as_wanted for each in self.programs.values()))


@_mutant
def shared_readiness() -> None:
    """A gateway is not ready while one of its groups has no leader, though others serve (decision 0069)."""
    _replace(status.StatusBoard, "is_ready", property(lambda self: self._is_complete()))


@_mutant
def first_group_only() -> None:
    """A gateway of several groups sends all requests to the first."""
    _replace(groups_backend.GroupsBackend, "_backend", lambda self, model: self._backends[0])


@_mutant
def hasty_drain() -> None:
    """An orchestrator that gets SIGTERM does not wait for its requests."""

    async def drain(self: Any, timeout_s: float) -> None:
        self._is_draining = True

    _replace(gateway_server.GatewayServer, "drain", drain)


@_mutant
def effects_after_answers() -> None:
    """A request that was answered counts as finished, though its effects have not happened (decision 0071)."""

    async def finish_effects(self: Any, timeout_s: float) -> None:
        pass

    _replace(orchestrator.Orchestrator, "finish_effects", finish_effects)
    waits = "waits_for_effects"
    message = pending_requests.PendingRequest.as_message
    _replace(pending_requests.PendingRequest, "as_message", lambda self, *rest: replace(message(self, *rest), **{waits: False}))


@_mutant
def double_admission() -> None:
    """A request that is admitted counts twice."""
    admit = admission.Admission.admit

    def count_twice(self: Any, *values: Any) -> Any:
        ticket = admit(self, *values)
        self.num_requests += 1
        return ticket

    _replace(admission.Admission, "admit", count_twice)


@_mutant
def changing_key() -> None:
    """A client that sends a job again sends another key."""
    make = http.ServerEndpoint.request

    def make_with_key(self: Any, *values: Any) -> Any:
        request = make(self, *values)
        if IDEMPOTENCY_KEY in request.headers:
            request.headers[IDEMPOTENCY_KEY] = secrets.token_hex(16)
        return request

    _replace(http.ServerEndpoint, "request", make_with_key)


@_mutant
def repeated_number() -> None:
    """A gateway gives the number of a request to the next one, too."""
    begin = remote_backend.RemoteBackend.__init__

    def begin_twice(self: Any, *values: Any, **options: Any) -> None:
        begin(self, *values, **options)
        self._numbers = (number // 2 for number in itertools.count(2))

    _replace(remote_backend.RemoteBackend, "__init__", begin_twice)


@_mutant
def forgotten_answer() -> None:
    """An orchestrator keeps a request whose answer was read."""
    end = gateway_server.GatewayServer._end

    def keep(self: Any, session: Any, request_id: int, how: Any) -> None:
        if how == self._orchestrator.request_owners.give_up:
            end(self, session, request_id, how)

    _replace(gateway_server.GatewayServer, "_end", keep)
