"""Rare paths that the seed forces: where a server comes to a named point, what chance would hardly bring about happens to it.

A seed may have a theme: then its points are frequent, and nothing else fails, so that no other fault explains what goes wrong.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from dyorc.cluster.gateway_server import GatewayServer
from dyorc.config import DEFAULT_GROUP
from dyorc.leader_election.leader import lease_name
from dyorc.leader_election.leader_discovery import LeaderDiscovery
from dyorc.leader_election.leadership import Leadership
from dyorc.replica.ongoing_batches import OngoingBatches
from dyorc.replica.session import Session
from dyorc.store import redis, sqlite
from dyorc.store.base import NoteFence
from dyorc.store.lease_store import Lease
from dyorc.transport.messages import BatchRequest
from tests.whole_server.network import End
from tests.whole_server.outside import MOMENTS
from tests.whole_server.servers import Troupe
from tests.whole_server.shapes import SHAPES, Shape
from tests.whole_server.world import ProcessState, VirtualProcess, World, current_thread

_SOON_S = 0.01
_PAUSE_S = 2.0
"""After a rare path none is forced for so long: the servers recover."""
_RETURN_S = 0.3
"""A replica stops for so long while a gateway comes back."""
_LONGEST_S = 6.0
"""A process is stopped, and a link stalls, for so long at most, although no other orchestrator leads yet."""
_THEME_RATIO = 0.5
"""How many of the seeds have a theme."""
_REDIS_RATIO, _REDIS_THEME_RATIO = 0.25, 0.5
"""How often the store is a Redis, and how often if the theme is about the store."""


@dataclass(frozen=True)
class Point:
    """Where a rare path is forced.

    Attributes:
        name: As reports show it.
        trigger: What a server has come to.
        forced: What happens then.
        ratio: How often, in a seed without a theme.
        theme_ratio: How often, if this is the seed's theme.
    """

    name: str
    trigger: str
    forced: str
    ratio: float
    theme_ratio: float


UNFINISHED_EFFECT = Point(
    "unfinished_effect", "an answer is sent while effects of answered requests are pending", "its orchestrator gets SIGTERM",
    0.05, 0.25,
)  # fmt: skip
INTERRUPTED_EFFECT = Point("interrupted_effect", "an effect happens", "the leader, or a gateway, is killed", 0.03, 0.15)
LEAVING_EFFECT = Point("leaving_effect", "an effect happens", "the leader gets SIGTERM", 0.03, 0.15)
LOST_ANSWER = Point(
    "lost_answer", "an answer is sent whose effects have yet to happen", "the link to its gateway breaks, and it never arrives",
    0.05, 0.25,
)  # fmt: skip
OVERTAKEN_NOTE = Point(
    "overtaken_note", "a leader is about to write what is deployed", "it is stopped until the next one leads", 0.1, 0.75
)
OVERTAKEN_RENEWAL = Point(
    "overtaken_renewal", "a leader is about to renew its lease",
    "it is stopped, or with Redis cut off from that, until the next one leads", 0.03, 0.15,
)  # fmt: skip
OVERTAKEN_ANSWER = Point(
    "overtaken_answer", "a leader sends an answer", "it is killed, and the answer arrives once the next leader is known",
    0.005, 0.05,
)  # fmt: skip
OVERTAKEN_JOB = Point(
    "overtaken_job", "a gateway is about to write down the end of a job", "it is stopped until another one has claimed the job",
    0.05, 0.3,
)  # fmt: skip
INTERRUPTED_STREAM = Point("interrupted_stream", "a leader sends a part of an answer", "it is killed", 0.02, 0.1)
LOST_STREAM = Point("lost_stream", "a replica sends parts", "it is killed", 0.05, 0.3)
INTERRUPTED_BATCH = Point("interrupted_batch", "a replica has tensors of a batch in its arena", "the leader is killed", 0.01, 0.1)
LEAVING_BATCH = Point("leaving_batch", "a replica begins a batch", "it has to leave", 0.02, 0.2)
RETURNING_GATEWAY = Point(
    "returning_gateway", "a replica begins a batch with inputs from a gateway",
    "the links of its leader's gateways break, and they are back before the batch ends", 0.1, 0.75,
)  # fmt: skip


@dataclass(frozen=True)
class Theme:
    """Points that are frequent in a seed.

    Attributes:
        has_replicas: Whether they are points of replicas in processes of their own.
        is_of_store: Whether stores differ there.
    """

    name: str
    points: tuple[Point, ...]
    has_replicas: bool = False
    is_of_store: bool = False


THEMES = (
    Theme("effects", (UNFINISHED_EFFECT, INTERRUPTED_EFFECT, LEAVING_EFFECT, LOST_ANSWER)),
    Theme("leads", (OVERTAKEN_NOTE, OVERTAKEN_RENEWAL), is_of_store=True),
    Theme("answers", (OVERTAKEN_ANSWER,)),
    Theme("jobs", (OVERTAKEN_JOB,), is_of_store=True),
    Theme("streams", (INTERRUPTED_STREAM, LOST_STREAM), has_replicas=True),
    Theme("batches", (INTERRUPTED_BATCH, LEAVING_BATCH, RETURNING_GATEWAY), has_replicas=True),
)


def theme_of(seed: int) -> Theme | None:
    """Returns the theme of a seed; None if it has none."""
    chance = random.Random(f"theme {seed}")
    return chance.choice(THEMES) if chance.random() < _THEME_RATIO else None


def shape_of(seed: int) -> Shape:
    """Returns where a seed's programs run."""
    theme = theme_of(seed)
    shapes = [shape for shape in SHAPES if shape.has_replicas or theme is None or not theme.has_replicas]
    return random.Random(f"shape {seed}").choice(shapes)


def has_redis(seed: int) -> bool:
    """Returns whether a seed's store is a Redis."""
    theme = theme_of(seed)
    ratio = _REDIS_THEME_RATIO if theme is not None and theme.is_of_store else _REDIS_RATIO
    return random.Random(f"store {seed}").random() < ratio


@dataclass
class _StalledLink:
    """A link on which the answers of a leader wait until their gateway knows of the next one."""

    gateway: VirtualProcess
    group: str
    fence: int
    end: End


@dataclass
class _Overtaken:
    """A leader that goes on once a later one has its lease."""

    lease: str
    fence: int
    go_on: Callable[[], None]


class RarePaths:
    """Forces rare paths until `until_s`.

    Args:
        count: Called with the kind of each fault that this makes.

    Attributes:
        counts: How often each point's path was forced, by name.
    """

    def __init__(self, world: World, troupe: Troupe, seed: int, until_s: float, count: Callable[[str], None]) -> None:
        self._world = world
        self._troupe = troupe
        self._theme = theme_of(seed)
        self._chance = random.Random(f"rare paths {seed}")
        self._until_s = until_s
        self._quiet_until_s = 0.0
        self._count = count
        self._overtaken: dict[VirtualProcess, _Overtaken] = {}
        self._stalled: list[_StalledLink] = []
        self._ending: dict[str, VirtualProcess] = {}
        """Gateways that were stopped before they wrote down the end of a job, by its id."""
        self._leaders: dict[str, VirtualProcess] = {}
        """Who has led last, by group."""
        self.counts: Counter[str] = Counter()

    def begin(self) -> None:
        """Forces them from now on, for as long as this process of the operating system lives."""
        server: Any = GatewayServer
        server.answer = self._answering(server.answer)
        server.part = self._sending_part(server.part)
        for store in (sqlite.SqliteStore, redis.RedisStore):
            stores: Any = store
            stores.note = self._noting(stores.note)
            stores.renew_lease = self._renewing(stores.renew_lease)
            stores.finish = self._finishing(stores.finish)
            stores.claim = self._claiming(stores.claim)
        leadership: Any = Leadership
        leadership.publish = self._publishing(leadership.publish)
        discovery: Any = LeaderDiscovery
        discovery._look = self._looking(discovery._look)
        MOMENTS.append(self._effect_happened)
        session: Any = Session
        session._run_batch = self._running_batch(session._run_batch)
        batches: Any = OngoingBatches
        batches.send_ready = self._sending_parts(batches.send_ready)

    def _is_forced(self, point: Point) -> bool:
        now_s = self._world.elapsed_s
        ratio = point.ratio if self._theme is None else point.theme_ratio if point in self._theme.points else 0.0
        if not self._quiet_until_s <= now_s < self._until_s or self._chance.random() >= ratio:
            return False
        self._quiet_until_s = now_s + _PAUSE_S
        self.counts[point.name] += 1
        self._world.log("a rare path", point=point.name)
        return True

    def _soon(self, call: Callable[[], None]) -> None:
        self._world.call_later(self._chance.uniform(0, _SOON_S), call)

    # Effects and answers

    def _effect_happened(self) -> None:
        leader = self._leaders.get(DEFAULT_GROUP)
        if leader is None:
            return
        if self._is_forced(LEAVING_EFFECT):
            self._soon(lambda: self._terminate(leader))
        elif self._is_forced(INTERRUPTED_EFFECT):
            gateways = [place.process for place in self._troupe.places if place.kind == "gateway" and place.process is not None]
            victim = self._chance.choice((leader, self._chance.choice(gateways)))
            self._soon(lambda: self._kill(victim, f"kill {victim.kind}"))

    def _answering(self, real: Callable[..., None]) -> Callable[..., None]:
        @wraps(real)
        def answer(server: Any, action: Any) -> None:
            request = server._sessions.request_of(action.request_id)
            process = _running_process()
            if request is not None and server._lead.is_sure() and self._is_forced(OVERTAKEN_ANSWER):
                self._stall(server, request.session.peer)
                self._soon(lambda: self._kill(process, "kill orchestrator"))
            real(server, action)
            if request is not None and action.effects_follow and self._is_forced(LOST_ANSWER):
                self._break(server._link.end_of(request.session.peer))
            elif server._orchestrator._engine.pending_effects() and self._is_forced(UNFINISHED_EFFECT):
                self._soon(lambda: self._terminate(process))

        return answer

    def _stall(self, server: Any, peer: bytes) -> None:
        """Lets what is sent to a gateway wait until that knows of the next leader. No heartbeat notices: a fence needs none."""
        end = server._link.end_of(peer).peer
        link = _StalledLink(end.process, server._lead.group, server._lead.fence, end)
        self._troupe.network.stall(end)
        self._stalled.append(link)
        self._world.call_later(_LONGEST_S, lambda: self._troupe.network.release(end))

    def _kill(self, process: VirtualProcess, kind: str) -> None:
        if process.state is not ProcessState.DEAD:
            self._count(kind)
            self._world.kill(process)

    def _terminate(self, process: VirtualProcess) -> None:
        place = next(place for place in self._troupe.places if place.name == process.name.partition("#")[0])
        if place.process is process:
            self._count(self._troupe.terminate(place))

    def _looking(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        async def look(discovery: Any) -> None:
            await real(discovery)
            gateway = _running_process()
            for link in list(self._stalled):
                leader = discovery.leader if link.gateway is gateway and link.group == discovery.group else None
                if leader is not None and leader.fence > link.fence:
                    self._stalled.remove(link)
                    self._soon(lambda end=link.end: self._troupe.network.release(end))

        return look

    # Leaders that are overtaken

    def _noting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        async def note(store: Any, name: str, value: bytes, fence: NoteFence | None = None) -> bool:
            if fence is not None and name.startswith("deployed/") and self._is_forced(OVERTAKEN_NOTE):
                self._stop_leader(lease_name(name.removeprefix("deployed/")), fence.number)
            return await real(store, name, value, fence)

        return note

    def _renewing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        async def renew(store: Any, name: str, owner: str, lease_s: float, held: Lease) -> bool:
            if self._is_forced(OVERTAKEN_RENEWAL):
                if isinstance(store, redis.RedisStore):
                    self._cut_off(name, held.fence)
                else:
                    self._stop_leader(name, held.fence)
            return await real(store, name, owner, lease_s, held)

        return renew

    def _stop_leader(self, lease: str, fence: int) -> None:
        """Stops the running process, in the middle of its turn, until one with a higher fence leads."""
        process = _running_process()
        self._count("stop orchestrator")
        self._world.stop(process)
        self._let_overtake(process, lease, fence, lambda: self._world.resume(process))
        self._world.park(self._world.now_ns)

    def _cut_off(self, lease: str, fence: int) -> None:
        """Lets what the running process sends to Redis wait until another one leads: the renewal arrives after its time."""
        process, network = _running_process(), self._troupe.network
        redis_process = next(place.process for place in self._troupe.places if place.kind == "redis")
        if redis_process is not None:
            self._count("partition")
            network.part(process, redis_process)
            self._let_overtake(process, lease, fence, network.heal)

    def _let_overtake(self, process: VirtualProcess, lease: str, fence: int, go_on: Callable[[], None]) -> None:
        self._overtaken[process] = _Overtaken(lease, fence, go_on)
        self._world.call_later(_LONGEST_S, go_on)

    def _publishing(self, real: Callable[..., None]) -> Callable[..., None]:
        @wraps(real)
        def publish(leadership: Any, leader: Any) -> None:
            real(leadership, leader)
            self._leaders[leader.group] = _running_process()
            lease = lease_name(leader.group)
            for process, overtaken in list(self._overtaken.items()):
                if overtaken.lease == lease and overtaken.fence < leader.fence:
                    del self._overtaken[process]
                    self._world.call_later(self._chance.uniform(0, 1.0), overtaken.go_on)

        return publish

    # Jobs

    def _finishing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        async def finish(store: Any, held: Any, *rest: Any) -> bool:
            if self._is_forced(OVERTAKEN_JOB):
                process = self._ending[held.job.id] = _running_process()
                self._count("stop gateway")
                self._world.stop(process)
                self._world.call_later(_LONGEST_S, lambda: self._world.resume(process))
                self._world.park(self._world.now_ns)
            return await real(store, held, *rest)

        return finish

    def _claiming(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        async def claim(store: Any, *values: Any) -> Any:
            claims = await real(store, *values)
            for each in claims:
                if (process := self._ending.pop(each.job.id, None)) is not None:
                    self._soon(lambda process=process: self._world.resume(process))
            return claims

        return claim

    # Batches and streams

    def _sending_part(self, real: Callable[..., None]) -> Callable[..., None]:
        @wraps(real)
        def part(server: Any, action: Any) -> None:
            real(server, action)
            if self._is_forced(INTERRUPTED_STREAM):
                process = _running_process()
                self._soon(lambda: self._kill(process, "kill orchestrator"))

        return part

    def _sending_parts(self, real: Callable[..., None]) -> Callable[..., None]:
        @wraps(real)
        def send_ready(batches: Any, *values: Any) -> None:
            real(batches, *values)
            process = _running_process()
            if batches.num_batches and process in self._troupe.forks.processes and self._is_forced(LOST_STREAM):
                self._soon(lambda: self._kill(process, "kill replica"))

        return send_ready

    def _running_batch(self, real: Callable[..., None]) -> Callable[..., None]:
        @wraps(real)
        def run_batch(session: Any, *values: Any) -> None:
            process, leader = _running_process(), self._leaders.get(DEFAULT_GROUP)
            if process not in self._troupe.forks.processes:
                real(session, *values)
                return
            if self._is_forced(LEAVING_BATCH):
                self._soon(lambda: self._let_leave(process))
            elif leader is not None and _has_inputs_of_gateways(values[0]) and self._is_forced(RETURNING_GATEWAY):
                self._break_links(leader)
                self._count("stop replica")
                self._world.stop(process)
                self._world.call_later(_RETURN_S, lambda: self._world.resume(process))
                self._world.park(self._world.now_ns)
            real(session, *values)
            if session._exchange.num_tensors and leader is not None and self._is_forced(INTERRUPTED_BATCH):
                self._soon(lambda: self._kill(leader, "kill orchestrator"))

        return run_batch

    def _break_links(self, leader: VirtualProcess) -> None:
        gateways = {place.process for place in self._troupe.places if place.kind == "gateway"}
        for end in self._troupe.network.links:
            if end.process in gateways and end.peer.process is leader:
                self._break(end)

    def _break(self, end: End) -> None:
        self._count("cut link")
        self._troupe.network.cut(end)

    def _let_leave(self, process: VirtualProcess) -> None:
        if process in self._troupe.forks.processes:
            self._count("leave replica")
            self._troupe.forks.let_leave(process)


def _has_inputs_of_gateways(batch: BatchRequest) -> bool:
    return any(holder.holder_id.startswith("gateway-") for holder in batch.holders)


def _running_process() -> VirtualProcess:
    thread = current_thread()
    assert thread is not None
    return thread.process
