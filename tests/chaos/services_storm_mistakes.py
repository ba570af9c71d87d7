"""Mistakes made on purpose in servers whose histories are judged, each by its name."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from dyorc.answering.part_stream import PartStream
from dyorc.cluster import effect_announcements, pending_requests, remote_backend
from dyorc.cluster.cluster_messages import OffersUpdate
from dyorc.deployment import state
from dyorc.leader_election.leadership import Leadership
from dyorc.server import group_deployments
from dyorc.store import redis, sqlite, sqlite_leases

MISTAKES: dict[str, Callable[[], None]] = {}
"""By name, what makes the mistake in this process."""

_LATE_S = 0.3


def _mistake(make: Callable[[], None]) -> Callable[[], None]:
    MISTAKES[make.__name__] = make
    return make


# Versions


@_mistake
def unkept_deployment() -> None:
    """What is deployed is not written to the store."""

    async def keep_nothing(text: bytes) -> None:
        return

    deployments: Any = group_deployments
    deployments.record_writer = lambda *args: keep_nothing


@_mistake
def late_offers() -> None:
    """A gateway confirms what is offered before it offers it."""
    backend: Any = remote_backend.RemoteBackend
    receive = backend._receive

    def receive_late(self: Any, leader: Any, message: Any, *rest: Any) -> None:
        if isinstance(message, OffersUpdate) and self.control.deployed:
            self._loop.call_later(_LATE_S, receive, self, leader, message, *rest)
        else:
            receive(self, leader, message, *rest)

    backend._receive = receive_late


@_mistake
def rollback_by_two() -> None:
    """A rollback undoes two changes."""
    history: Any = state.ModelHistory
    roll_back = history.roll_back
    history.roll_back = lambda self: roll_back(roll_back(self)) if len(self.past) > 1 else roll_back(self)


@_mistake
def unfenced_notes() -> None:
    """A stale leader's notes are taken."""
    for store in (sqlite.SqliteStore, redis.RedisStore):
        _forget_fence(store)


def _forget_fence(store: Any) -> None:
    note = store.note
    store.note = lambda self, name, value, fence=None: note(self, name, value)


# Leases


@_mistake
def short_lease() -> None:
    """A lease ends in the store before its holder thinks so."""
    row: Any = sqlite_leases._Row
    row.is_held = lambda self, now_s: bool(self.owner) and now_s < self.renewed_s + self.lease_s / 4


@_mistake
def same_fence() -> None:
    """The next leader gets the fence of the last."""
    leases: Any = sqlite_leases
    acquire = leases._acquire

    def acquire_again(connection: Any, name: str, owner: str, *rest: Any) -> int | None:
        before = leases._read(connection, name)
        fence = acquire(connection, name, owner, *rest)
        if fence is None or not before.fence:
            return fence
        leases._write(connection, name, leases._read(connection, name)._replace(fence=before.fence))
        return before.fence

    leases._acquire = acquire_again


@_mistake
def always_sure() -> None:
    """A leader that was stopped acts before it has asked the store."""
    leadership: Any = Leadership
    leadership.is_sure = property(lambda self: not self._lost.done())


# Effects


@_mistake
def unannounced_effect() -> None:
    """An orchestrator does not wait until gateways know of an effect."""
    announcements: Any = effect_announcements.EffectAnnouncements
    announcements.announce = lambda self, concerned, go: go(True)


@_mistake
def unknown_effect() -> None:
    """A gateway acknowledges an effect and does not remember it, so it submits the request again."""
    pending: Any = pending_requests.PendingRequest
    pending.has_effect = property(lambda self: False, lambda self, value: None)


@_mistake
def doubled_request() -> None:
    """A gateway sends each request twice."""
    backend: Any = remote_backend.RemoteBackend
    submit = backend._submit

    def submit_twice(self: Any, request_id: int, pending: Any) -> None:
        submit(self, request_id, pending)
        submit(self, request_id, pending)

    backend._submit = submit_twice


# Streams


@_mistake
def parts_from_the_beginning() -> None:
    """A gateway does not know which parts its client has."""
    backend: Any = remote_backend.RemoteBackend
    take = backend._take_part

    def take_all(self: Any, request_id: int, message: Any, frames: Any) -> None:
        pending = self._pending.get(request_id)
        stream = None if pending is None else pending.in_flight.stream
        if stream is not None and message.index < stream.num_taken:
            stream._num_taken = message.index
        take(self, request_id, message, frames)

    backend._take_part = take_all


@_mistake
def first_part_lost() -> None:
    """Parts that were not handed over when their orchestrator went are skipped."""
    stream: Any = PartStream

    def start_over(self: Any) -> None:
        self._num_taken += 1
        self._parts.clear()

    stream.start_over = start_over


@_mistake
def resubmitted_to_the_default() -> None:
    """A request that is submitted again gets the version that is the default by then."""
    backend: Any = remote_backend.RemoteBackend
    submit = backend._submit

    def submit_to_default(self: Any, request_id: int, pending: Any) -> None:
        if pending.generation:
            name = pending.submission.model.name
            default = next((offer.key for offer in self.offers.all if offer.key.name == name), pending.submission.model)
            pending.submission = replace(pending.submission, model=default)
        submit(self, request_id, pending)

    backend._submit = submit_to_default
