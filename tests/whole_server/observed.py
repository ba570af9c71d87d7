"""What is watched while a run goes on: leases and job ends in the order of the store, and the parts of each server."""

import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, TypeVar

from dyorc.cluster.cluster_messages import OffersUpdate
from dyorc.cluster.gateway_server import GatewayServer
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.config import DEFAULT_GROUP
from dyorc.gateway.service import InferenceService
from dyorc.leader_election.leadership import Leadership
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.replica.resident_table import ResidentTable
from dyorc.replica.worker import Worker
from dyorc.store import redis, sqlite, sqlite_leases
from tests.whole_server.network import End
from tests.whole_server.servers import FIRST_PORT
from tests.whole_server.world import ProcessState, VirtualProcess, World, current_thread

T = TypeVar("T")

_PARTS = (InferenceService, RemoteBackend, Orchestrator, GatewayServer, Leadership, Worker, ResidentTable)


@dataclass
class _HeldLease:
    """What the store has said of a lease."""

    holder: str = ""
    fence: int = 0
    renewed_s: float = 0.0
    lease_s: float = 0.0

    def is_held(self, now_s: float) -> bool:
        """Returns whether its time is not over."""
        return bool(self.holder) and self.renewed_s <= now_s < self.renewed_s + self.lease_s


@dataclass
class Observed:
    """What was seen.

    Attributes:
        parts: The parts that were made, with their process.
        wrong: What must not have happened.
        num_leads: How often a lead was won.
        job_ends: How often each job has ended.
        kept_leads: When a process ended in order and did not give up its lead, and which.
        knowledge: When the gateway at a port got to know what is deployed, or was left by its orchestrator.
    """

    world: World
    parts: list[tuple[VirtualProcess, Any]] = field(default_factory=list[tuple[VirtualProcess, Any]])
    wrong: list[str] = field(default_factory=list[str])
    num_leads: int = 0
    job_ends: Counter[str] = field(default_factory=Counter[str])
    kept_leads: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    knowledge: dict[int, list[tuple[float, bool]]] = field(default_factory=dict[int, list[tuple[float, bool]]])
    _leases: dict[str, _HeldLease] = field(default_factory=dict[str, "_HeldLease"])

    def begin(self) -> None:
        """Watches from now on, for as long as this process of the operating system lives."""
        for kind in _PARTS:
            self._note_made(kind)
        leases: Any = sqlite_leases
        leases._acquire = partial(self._acquire, leases._acquire)
        leases._renew = partial(self._renew, leases._renew)
        leases._release = partial(self._release, leases._release)
        self._count_job_ends()
        self._note_knowledge()

    def living(self, kind: type[T]) -> list[T]:
        """Returns the parts of one kind in processes that live."""
        return [part for process, part in self.parts if isinstance(part, kind) and process.state is not ProcessState.DEAD]

    def _note_made(self, kind: Any) -> None:
        made = kind.__init__

        @wraps(made)
        def noting(part: Any, *args: Any, **kwargs: Any) -> None:
            thread = current_thread()
            assert thread is not None
            process = thread.process
            self.parts.append((process, part))
            made(part, *args, **kwargs)
            if kind is Leadership:
                process.on_end.append(lambda: self._look_at_end(process, part))

        kind.__init__ = noting

    def _look_at_end(self, process: VirtualProcess, leadership: Leadership) -> None:
        if process.exit == "ended" and leadership.owner == self._lease(leadership._name).holder:
            self.kept_leads.append((self.world.elapsed_s, process.name))

    # Leases: the store's word, in its order

    def _lease(self, name: str) -> _HeldLease:
        return self._leases.setdefault(name, _HeldLease())

    def _acquire(
        self, real: Callable[..., int | None], connection: sqlite3.Connection, name: str, owner: str, lease_s: float, above: int,
        now_s: float,
    ) -> int | None:  # fmt: skip
        fence = real(connection, name, owner, lease_s, above, now_s)
        if fence is not None:
            self.note_acquired(name, owner, fence, lease_s, now_s)
        return fence

    def note_time(self, now_s: float) -> None:
        """Notes what the clock of a store shows that drops what is over: a lease that is over then is over for good, though the
        clock be set back."""
        for lease in self._leases.values():
            if now_s >= lease.renewed_s + lease.lease_s:
                lease.lease_s = 0.0

    def note_acquired(self, name: str, owner: str, fence: int, lease_s: float, now_s: float) -> None:
        """Notes that the store has given a lease to an owner."""
        lease = self._lease(name)
        if owner != lease.holder:
            self.num_leads += 1
            if lease.is_held(now_s):
                self.wrong.append(f"{owner} got the lease {name} with fence {fence} while {lease.holder} held it")
            if fence <= lease.fence:
                self.wrong.append(f"fence {fence} of {name} was given to {owner} after fence {lease.fence}")
        self._leases[name] = _HeldLease(owner, fence, now_s, lease_s)

    def _renew(
        self, real: Callable[..., bool], connection: Any, name: str, owner: str, lease_s: float, held: Any, now_s: float
    ) -> bool:
        is_ours = real(connection, name, owner, lease_s, held, now_s)
        if is_ours:
            self.note_renewed(name, owner, held.fence, lease_s, now_s)
        return is_ours

    def note_renewed(self, name: str, owner: str, fence: int, lease_s: float, now_s: float) -> None:
        """Notes that the store has prolonged a lease."""
        lease = self._lease(name)
        if owner != lease.holder and fence <= lease.fence:
            self.wrong.append(f"{owner} renewed fence {fence} of {name} after {lease.holder} had got fence {lease.fence}")
        self._leases[name] = _HeldLease(owner, fence, now_s, lease_s)

    def _release(self, real: Callable[..., None], connection: Any, name: str, owner: str, fence: int, now_s: float) -> None:
        real(connection, name, owner, fence, now_s)
        self.note_released(name, owner, fence)

    def note_released(self, name: str, owner: str, fence: int) -> None:
        """Notes that an owner has given a lease back."""
        lease = self._lease(name)
        if (owner, fence) == (lease.holder, lease.fence):
            lease.holder = ""

    def _count_job_ends(self) -> None:
        """Counts the ends of jobs whose servers were told that they are on disk: a step whose commit fails is done again."""
        stores: tuple[Any, ...] = (sqlite.SqliteStore, redis.RedisStore)
        for store in stores:
            store.finish = self._counting(store.finish)

    def _counting(self, finish: Callable[..., Awaitable[bool]]) -> Callable[..., Awaitable[bool]]:
        @wraps(finish)
        async def counted(self_: Any, held: Any, *rest: Any) -> bool:
            has_ended = await finish(self_, held, *rest)
            if has_ended:
                self.job_ends[held.job.id] += 1
            return has_ended

        return counted

    # What gateways know of what is deployed

    def known_s(self, port: int, now_s: float) -> float:
        """Returns until when the gateway at a port knew for sure what is deployed: now, or when it lost its orchestrator."""
        for_sure_s = now_s
        for at_s, knows in reversed(self.knowledge.get(port, [])):
            if knows:
                break
            for_sure_s = at_s
        return for_sure_s

    def _note_knowledge(self) -> None:
        """Notes when gateways get what the first group has deployed, when their links end, and when its next leader begins."""
        backend: Any = RemoteBackend
        receive = backend._receive

        @wraps(receive)
        def received(self_: Any, leader: Any, message: Any, frames: Any) -> None:
            receive(self_, leader, message, frames)
            is_of_first = self_.group == DEFAULT_GROUP and not self_._is_outranked(leader)  # else it is dropped
            if isinstance(message, OffersUpdate) and is_of_first and not _has_hung_up(self_._connection):
                self._knows(_running_process(), True)

        backend._receive = received
        leads: Any = Leadership
        publish = leads.publish

        @wraps(publish)
        def published(self_: Any, leader: Any) -> None:
            if leader.group != DEFAULT_GROUP:
                publish(self_, leader)
                return
            for process in {process.name.partition("#")[0]: process for process, _ in self.parts}.values():
                self._knows(process, False)
            publish(self_, leader)

        leads.publish = published
        ends: Any = End
        for name in ("close", "break_off"):
            self._note_ends(ends, name)

    def _note_ends(self, ends: Any, name: str) -> None:
        real = getattr(ends, name)

        @wraps(real)
        def ending(end: End, *reason: str) -> None:
            if not end.is_closed and {end.process.kind, end.peer.process.kind} == {"gateway", "orchestrator"}:
                for process in (end.process, end.peer.process):
                    self._knows(process, False)
            real(end, *reason)

        setattr(ends, name, ending)

    def _knows(self, process: VirtualProcess, does: bool) -> None:
        if process.kind == "gateway":
            port = FIRST_PORT + int(process.name.partition("#")[0].rpartition("-")[2])
            self.knowledge.setdefault(port, []).append((self.world.elapsed_s, does))


def _has_hung_up(connection: Any) -> bool:
    """Returns whether an orchestrator has ended a gateway's connection: what a gateway that was stopped reads then is no news."""
    return connection is not None and connection._link is not None and connection._link._end.peer.is_closed


def _running_process() -> VirtualProcess:
    thread = current_thread()
    assert thread is not None
    return thread.process
