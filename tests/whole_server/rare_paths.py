"""Rare paths that the seed forces: where a server comes to a named point, what chance would hardly bring about happens to it.

A seed may have a theme: then one point is frequent, and nothing else fails, so that no other fault explains what goes wrong.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from dyorc.cluster.gateway_server import GatewayServer
from dyorc.leader_election.leader_discovery import LeaderDiscovery
from dyorc.leader_election.leadership import Leadership
from dyorc.store import redis, sqlite
from dyorc.store.base import NoteFence
from tests.whole_server.network import End
from tests.whole_server.servers import Troupe
from tests.whole_server.world import ProcessState, VirtualProcess, World, current_thread

_SOON_S = 0.01
_PAUSE_S = 2.0
"""After a rare path none is forced for so long: the servers recover."""
_LONGEST_S = 6.0
"""A process is stopped, and a link stalls, for so long at most, although no other orchestrator leads yet."""
_THEME_RATIO = 0.4
"""How many of the seeds have a theme."""


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
OVERTAKEN_NOTE = Point(
    "overtaken_note", "a leader is about to write what is deployed", "it is stopped until the next one leads", 0.1, 0.75
)
OVERTAKEN_ANSWER = Point(
    "overtaken_answer", "a leader sends an answer", "it is killed, and the answer arrives once the next leader is known",
    0.005, 0.05,
)  # fmt: skip
POINTS = (UNFINISHED_EFFECT, OVERTAKEN_NOTE, OVERTAKEN_ANSWER)


def theme_of(seed: int) -> Point | None:
    """Returns the theme of a seed; None if it has none."""
    chance = random.Random(f"theme {seed}")
    return chance.choice(POINTS) if chance.random() < _THEME_RATIO else None


@dataclass
class _StalledLink:
    """A link on which the answers of a leader wait until their gateway knows of the next one."""

    gateway: VirtualProcess
    fence: int
    end: End


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
        self._stopped: dict[VirtualProcess, int] = {}
        self._stalled: list[_StalledLink] = []
        self.counts: Counter[str] = Counter()

    def begin(self) -> None:
        """Forces them from now on, for as long as this process of the operating system lives."""
        server: Any = GatewayServer
        server.answer = self._answering(server.answer)
        for store in (sqlite.SqliteStore, redis.RedisStore):
            notes: Any = store
            notes.note = self._noting(notes.note)
        leadership: Any = Leadership
        leadership.publish = self._publishing(leadership.publish)
        discovery: Any = LeaderDiscovery
        discovery._look = self._looking(discovery._look)

    def _is_forced(self, point: Point) -> bool:
        now_s = self._world.elapsed_s
        ratio = point.ratio if self._theme is None else point.theme_ratio if self._theme is point else 0.0
        if not self._quiet_until_s <= now_s < self._until_s or self._chance.random() >= ratio:
            return False
        self._quiet_until_s = now_s + _PAUSE_S
        self.counts[point.name] += 1
        self._world.log("a rare path", point=point.name)
        return True

    def _soon(self, call: Callable[[], None]) -> None:
        self._world.call_later(self._chance.uniform(0, _SOON_S), call)

    # Answers

    def _answering(self, real: Callable[..., None]) -> Callable[..., None]:
        @wraps(real)
        def answer(server: Any, action: Any) -> None:
            request = server._sessions.request_of(action.request_id)
            process = _running_process()
            if request is not None and server._lead.is_sure() and self._is_forced(OVERTAKEN_ANSWER):
                self._stall(server, request.session.peer)
                self._soon(lambda: self._kill(process))
            real(server, action)
            if server._orchestrator._engine.pending_effects() and self._is_forced(UNFINISHED_EFFECT):
                self._soon(lambda: self._terminate(process))

        return answer

    def _stall(self, server: Any, peer: bytes) -> None:
        """Lets what is sent to a gateway wait until that knows of the next leader. No heartbeat notices: a fence needs none."""
        end = server._link.end_of(peer).peer
        link = _StalledLink(end.process, server._lead.fence, end)
        self._troupe.network.stall(end)
        self._stalled.append(link)
        self._world.call_later(_LONGEST_S, lambda: self._troupe.network.release(end))

    def _kill(self, process: VirtualProcess) -> None:
        if process.state is not ProcessState.DEAD:
            self._count("kill orchestrator")
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
                if link.gateway is gateway and discovery.leader is not None and discovery.leader.fence > link.fence:
                    self._stalled.remove(link)
                    self._soon(lambda end=link.end: self._troupe.network.release(end))

        return look

    # Notes

    def _noting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        async def note(store: Any, name: str, value: bytes, fence: NoteFence | None = None) -> bool:
            if fence is not None and name.startswith("deployed/") and self._is_forced(OVERTAKEN_NOTE):
                self._stop(_running_process(), fence.number)
            return await real(store, name, value, fence)

        return note

    def _stop(self, process: VirtualProcess, fence: int) -> None:
        """Stops the running process, in the middle of its turn, until one with a higher fence leads."""
        self._count("stop orchestrator")
        self._stopped[process] = fence
        self._world.stop(process)
        self._world.call_later(_LONGEST_S, lambda: self._world.resume(process))
        self._world.park(self._world.now_ns)

    def _publishing(self, real: Callable[..., None]) -> Callable[..., None]:
        @wraps(real)
        def publish(leadership: Any, leader: Any) -> None:
            real(leadership, leader)
            for process in [process for process, fence in self._stopped.items() if fence < leader.fence]:
                del self._stopped[process]
                self._world.call_later(self._chance.uniform(0, 1.0), lambda process=process: self._world.resume(process))

        return publish


def _running_process() -> VirtualProcess:
    thread = current_thread()
    assert thread is not None
    return thread.process
