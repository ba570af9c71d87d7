"""Shapes in parts: two gateways, an orchestrator that leads and one that stands by, on SQLite or on Redis.

With Redis, and where this machine can have two hosts, each host has a gateway and an orchestrator, and the link between them can
be cut. Programs run in the orchestrators.
"""

import contextlib
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

from dyorc.testing import ServerProcess
from dyorc.transport.cluster_network import write_new_keys
from tests.deadlines import wait_until
from tests.redis_server import RedisServer
from tests.storm import faults
from tests.storm.contract import Entrance, Fault, Shape
from tests.storm.members import Member, SmallFolder, reserved_port
from tests.storm.single import STORE_BYTES, TARGETS
from tests.storm.turns import WHOLE
from tests.storm.wall_clock import WallClock
from tests.two_hosts import Host, TwoHosts, two_hosts, why_not

LEASE_S = 3.0
_MAX_STOP_S = 1.2
_ARENA_BYTES = 64 * 2**20
STORE_TIMEOUT_S = 5.0
"""What a store that does not answer may add to a request that needs it."""
_LEADS = re.compile(r"Leads group .* with fence (\d+)")


class PartedServers(Shape):
    """Gateways and orchestrators in processes of their own."""

    def __init__(self, name: str, chance: random.Random) -> None:
        super().__init__(name, chance)
        self._redis: RedisServer | None = None
        self._hosts: TwoHosts | None = None
        self._gateways: list[Member] = []
        self._orchestrators: list[Member] = []

    def start(self) -> None:
        stack = self._stack
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="t-", dir="/tmp")))
        self._disk = stack.enter_context(SmallFolder(STORE_BYTES))
        self._memory = stack.enter_context(SmallFolder(_ARENA_BYTES))
        self._clock = stack.enter_context(WallClock())
        self.arena_folder = self._memory.path
        store = f"sqlite://{self._disk.path}/store.db"
        if self.name == "parts-redis":
            self._redis = stack.enter_context(RedisServer())
            store = self._redis.url
            self._hosts = None if why_not() else stack.enter_context(two_hosts())
        self._settings = self._clock.settings | {
            "DYORC_STORE": store,
            "DYORC_JOBS__TTL_S": "1728000",  # clocks jump by days
            "DYORC_JOBS__MAX_ATTEMPTS": "100",  # an innocent job may be running each time that its server is killed
            "DYORC_CLUSTER__LEASE_S": str(LEASE_S),
            "DYORC_TRANSPORT__ARENA_FOLDER": str(self.arena_folder),
            "DYORC_TRANSPORT__INLINE_LIMIT_BYTES": "16384",
        }
        if self._hosts is not None:
            write_new_keys(self.folder / "keys")
            self._settings["DYORC_CLUSTER__KEYS_FILE"] = str(self.folder / "keys")
        hosts = [None, None] if self._hosts is None else [*self._hosts.hosts]
        for host in hosts:
            self._orchestrators.append(self._orchestrator(host))
            self._orchestrators[-1].start()
        self._orchestrators[0].process.wait_for("Leads group")
        entrances: list[Entrance] = []
        for host in hosts:
            member, entrance = self._gateway(host)
            self._gateways.append(member)
            entrances.append(entrance)
            member.start()
        self.entrances = entrances

    def _orchestrator(self, host: Host | None) -> Member:
        command = [sys.executable, "-m", "dyorc.cli.main", "orchestrator", *TARGETS, "--in-process"]
        return self._member("orchestrator", command, host, lambda process: process.wait_for("Standing by"))

    def _gateway(self, host: Host | None) -> tuple[Member, Entrance]:
        with _entered(host):
            port, grpc_port = reserved_port(self._stack), reserved_port(self._stack)
        command = [sys.executable, "-m", "dyorc.cli.main", "gateway", "--port", str(port), "--grpc-port", str(grpc_port)]
        grpc_address = f"127.0.0.1:{grpc_port}" if host is None else ""  # gRPC's own threads are on no host
        entrance = Entrance(f"http://127.0.0.1:{port}", grpc_address, lambda: _entered(host))
        return self._member("gateway", command, host, ServerProcess.wait_until_ready), entrance

    def _member(self, kind: str, command: list[str], host: Host | None, wait: Callable[[ServerProcess], object]) -> Member:
        own = {} if host is None else {"DYORC_CLUSTER__HOST": host.address}

        class OnHost(ServerProcess):
            def __enter__(self) -> "OnHost":
                with _entered(host):
                    return super().__enter__()

        def make(further: Mapping[str, str]) -> ServerProcess:
            return OnHost(command, environment={**self._settings, **own, **further})

        return Member(kind, make, wait, self.findings, lambda: self.hindered_until_s)

    def stop(self) -> None:
        with self._stack:
            if self._redis is not None:
                self._redis.start_again()
            standbys = [member for member in self._orchestrators if member is not self._leader_now()]
            for member in [*standbys, *self._gateways, *self._orchestrators]:
                member.end()
            if self.arena_folder is not None:
                self.findings.leaks += [f"left in shared memory: {path}" for path in self.arena_folder.iterdir()]

    # Who leads

    def _fence_of(self, member: Member) -> int:
        if member.has_ended():
            return 0
        fences = [int(match[1]) for line in list(member.process.lines) if (match := _LEADS.search(line))]
        return max(fences, default=0)

    def _leader_now(self) -> Member | None:
        leader = max(self._orchestrators, key=self._fence_of, default=None)
        return leader if leader is not None and self._fence_of(leader) else None

    def _leader(self) -> Member:
        wait_until(self._leader_now, "an orchestrator leads")
        leader = self._leader_now()
        assert leader is not None
        return leader

    def _standby(self) -> Member:
        leader = self._leader()
        return next(member for member in self._orchestrators if member is not leader)

    # What can happen

    def faults(self) -> Mapping[str, Mapping[str, Callable[[], Fault]]]:
        for member in self._orchestrators:
            if member.has_lost_lead:
                member.end()
                member.start()
        chance = self._chance
        orchestrators: dict[str, Callable[[], Fault]] = {
            "kill leader": lambda: self._renamed("leader", faults.kill(self._leader(), [], _LEADER_LOST, self._led_again_s())),
            "kill standby": lambda: self._renamed("standby", faults.kill(self._standby(), [], [], faults.BUSY_S)),
            "stop leader": self._stop_leader,
            "stop standby": lambda: faults.stop_for("standby", [self._standby().pid], self._some_s()),
            "restart leader": lambda: self._renamed(
                "leader", faults.restart(self._leader(), [], [], chance, self._led_again_s())
            ),
        }
        gateways: dict[str, Callable[[], Fault]] = {
            "kill gateway": lambda: self._at_gateway(lambda member, at: faults.kill(member, [at], _GATEWAY_LOST)),
            "stop gateway": lambda: self._at_gateway(lambda member, at: faults.stop_for("gateway", [member.pid], self._some_s())),
            "restart gateway": lambda: self._at_gateway(lambda member, at: faults.restart(member, [at], _GATEWAY_LOST, chance)),
            "change configuration": lambda: self._at_gateway(
                lambda member, at: faults.reconfigure(member, [at], _GATEWAY_LOST, chance)
            ),
        }
        possible: dict[str, Mapping[str, Callable[[], Fault]]] = {
            "orchestrators": orchestrators,
            "gateways": gateways,
            WHOLE: {"deploy": lambda: faults.deploy(chance.choice(self.entrances), TARGETS, chance)},
        }
        if self._memory.can_be_full:
            possible["memory"] = {"full memory": lambda: faults.full(self._memory, "memory", ["capacity"])}
        if self._clock.can_move:
            possible["clock"] = {"clock": lambda: faults.clock_jump(self._clock, chance)}
        if self._redis is not None:
            possible["store"] = {"kill redis": self._kill_redis, "stop redis": self._stop_redis}
        elif self._disk.can_be_full:
            possible["store"] = {"full disk": lambda: faults.full(self._disk, "disk", ["store"])}
        if self._hosts is not None:
            possible["link"] = {"cut link": self._cut_link}
        return possible

    def _some_s(self) -> float:
        return self._chance.uniform(0.2, _MAX_STOP_S)

    def _led_again_s(self) -> float:
        """When the lease is over, the standby leads and loads its programs."""
        return LEASE_S + faults.start_bound_s(self._orchestrators[0])

    def _renamed(self, role: str, fault: Fault) -> Fault:
        fault.name = fault.name.replace("orchestrator", role)
        return fault

    def _at_gateway(self, make: Callable[[Member, int], Fault]) -> Fault:
        at = self._chance.randrange(len(self._gateways))
        return make(self._gateways[at], at)

    def _stop_leader(self) -> Fault:
        """For a moment, or for so long that it loses its lead, and ends when it notices."""
        leader = self._leader()
        for_s = self._chance.choice((self._some_s(), 2 * LEASE_S))

        def end() -> None:
            if for_s < LEASE_S:
                return
            wait_until(lambda: leader.has_ended() or self._leader_now() is leader, "it has noticed, or leads still")
            if leader.has_ended():
                leader.end(signal.SIGKILL)
                leader.start()

        return faults.stop_for("leader", [leader.pid], for_s, _LEADER_LOST, bound_s=self._led_again_s(), end=end)

    def _kill_redis(self) -> Fault:
        redis, away_s = self._redis, self._some_s()
        assert redis is not None

        def apply() -> None:
            redis.kill()
            time.sleep(away_s)
            redis.start_again()

        bound_s = away_s + STORE_TIMEOUT_S + faults.BUSY_S
        return Fault(name="kill redis", apply=apply, bound_s=bound_s, codes=["store"], hinders_starts=True)

    def _stop_redis(self) -> Fault:
        assert self._redis is not None
        bound_s = STORE_TIMEOUT_S + faults.BUSY_S
        return faults.stop_for("redis", [self._redis.pid], self._some_s(), ["store"], bound_s=bound_s, hinders_starts=True)

    def _cut_link(self) -> Fault:
        hosts, cut_s = self._hosts, self._some_s()
        assert hosts is not None

        def apply() -> None:
            hosts.cut()
            time.sleep(cut_s)
            hosts.heal()

        return Fault(name="cut link", apply=apply, bound_s=cut_s + self._led_again_s(), codes=_CUT_OFF)

    # What it is made of

    def pids(self) -> dict[str, list[int]]:
        members = [*self._gateways, *self._orchestrators]
        return {
            kind: [member.pid for member in members if member.kind == kind and not member.has_ended()]
            for kind in ("gateway", "orchestrator")
        }

    @property
    def num_log_lines(self) -> int:
        return sum(member.num_lines for member in (*self._gateways, *self._orchestrators))

    @property
    def log_tail(self) -> str:
        return "\n".join(line for member in (*self._gateways, *self._orchestrators) for line in member.tail)


_LEADER_LOST = faults.LOST_WITH_LEADER
_CUT_OFF = (*_LEADER_LOST, "not_ready")
"""A version that leaves does not wait for requests of a gateway that is cut off: they are to be sent again."""
_GATEWAY_LOST = ("not_ready",)
"""A gateway that has just started may not have met an orchestrator yet."""


@contextlib.contextmanager
def _entered(host: Host | None) -> Generator[None]:
    with contextlib.nullcontext() if host is None else host.entered():
        yield
