"""Clients of two `dyorc gateway` processes, while the `dyorc orchestrator` that leads is killed again and again, later a gateway.

    python -m tests.chaos.parted_storm [KILLS] [CLIENTS] [GATEWAY_KILLS]

The last line is one JSON object. `back_after_s` is the time from a kill of the leader until its successor's answers have come
through both gateways. The exit status is 1 if a request failed, was answered wrongly or had its effect twice; requests at a
gateway that was killed do not count as failed.
"""

import asyncio
import contextlib
import json
import random
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dyorc.testing import ServerProcess
from tests.chaos.parted_storm_clients import Load
from tests.deadlines import wait_until_async
from tests.leaks import no_leaks
from tests.parted import Cluster, cluster
from tests.server_process import target
from tests.workflows import parted

_TARGETS = [target("parted", one.name) for one in parted.ALL]
_MAX_PAUSE_S = 0.5
_NUM_GATEWAYS = 2
_NUM_SHOWN = 10


class Services:
    """Two gateways, an orchestrator that leads, and one that stands by; all run while entered.

    Attributes:
        leader: The orchestrator that leads, or is about to.
        urls: Where the gateways listen; the same after a kill as before.
    """

    def __init__(self, found: Cluster) -> None:
        self._cluster = found

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._stack = stack
            self.leader = self._start_orchestrator()
            self._ports = [self._reserve_port() for _ in range(_NUM_GATEWAYS)]
            self.urls = [f"http://127.0.0.1:{port}" for port in self._ports]
            self._gateways = [self._start_gateway(port) for port in self._ports]
            self.leader.wait_for("Leads group")
            self._standby = self._start_orchestrator()
            for gateway in self._gateways:
                gateway.wait_until_ready()
            self._standby.wait_for("Standing by")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _reserve_port(self) -> int:
        """Binds a port and never listens: it stays ours while there is no gateway."""
        reserved = self._stack.enter_context(socket.socket())
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        return reserved.getsockname()[1]

    def _start_orchestrator(self) -> ServerProcess:
        return self._stack.enter_context(self._cluster.orchestrator(_TARGETS))

    def _start_gateway(self, port: int) -> ServerProcess:
        return self._stack.enter_context(self._cluster.gateway("--port", str(port), "--grpc-port", "0"))

    def kill_leader(self) -> None:
        """Kills the leader, so that the standby leads in a moment."""
        self.leader.process.kill()
        self.leader = self._standby

    def add_standby(self) -> None:
        """Starts an orchestrator in place of the killed one, and returns once it stands by."""
        self._standby = self._start_orchestrator()
        self._standby.wait_for("Standing by")

    def kill_gateway(self, at: int) -> None:
        """Kills a gateway, starts another in its place, and returns once that one is ready."""
        self._gateways[at].process.kill()
        self._gateways[at].wait()
        self._gateways[at] = self._start_gateway(self._ports[at])
        self._gateways[at].wait_until_ready()


async def kill_leaders(services: Services, load: Load, num_kills: int, chance: random.Random) -> list[float]:
    """Kills the leader again and again. Returns for each time how long it took until its successor's answers came."""
    back_after_s: list[float] = []
    for number in range(num_kills):
        await asyncio.sleep(chance.uniform(0, _MAX_PAUSE_S))
        killed_s = time.monotonic()
        services.kill_leader()
        pid = services.leader.process.pid
        await wait_until_async(lambda pid=pid: all(pid in one.answered_by for one in load.tallies), "the next one answers")
        back_after_s.append(max(one.answered_by[pid] for one in load.tallies) - killed_s)
        _tell(f"leader {number + 1}: answers again after {back_after_s[-1]:.2f} s, {_num_answered(load)} answers so far")
        await asyncio.to_thread(services.add_standby)
    return back_after_s


async def kill_gateways(services: Services, load: Load, num_kills: int, chance: random.Random) -> list[float]:
    """Kills the first gateway again and again. Returns for each time how long it took until its successor's answers came."""
    struck, other = load.tallies[0], load.tallies[1]
    back_after_s: list[float] = []
    for number in range(num_kills):
        await asyncio.sleep(chance.uniform(0, _MAX_PAUSE_S))
        killed_s = time.monotonic()
        struck.is_struck, struck.num_strikes = True, struck.num_strikes + 1
        num_answered = other.num_answered
        await asyncio.to_thread(services.kill_gateway, 0)
        assert other.num_answered > num_answered, "the other gateway answered nothing meanwhile"
        struck.is_struck, num_answered = False, struck.num_answered
        await wait_until_async(lambda num=num_answered: struck.num_answered > num, "the gateway answers again")
        back_after_s.append(time.monotonic() - killed_s)
        _tell(f"gateway {number + 1}: answers again after {back_after_s[-1]:.2f} s, {_num_answered(load)} answers so far")
    return back_after_s


def _num_answered(load: Load) -> int:
    return sum(tally.num_answered for tally in load.tallies)


async def storm(num_kills: int, num_clients: int, num_gateway_kills: int) -> dict[str, Any]:
    """Runs a whole storm, and returns figures."""
    chance = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="dyorc-") as folder, cluster() as found, Services(found) as services:
        async with Load(services.urls, num_clients, Path(folder)) as load:
            leaders_s = await kill_leaders(services, load, num_kills, chance)
            num_failed_before = len(load.tallies[1].failed)
            gateways_s = await kill_gateways(services, load, num_gateway_kills, chance)
        num_twice, num_unnoted = load.effects()
    tallies = load.tallies
    return {
        "kills": num_kills,
        "requests": sum(tally.num_asked for tally in tallies),
        "failed": sum(len(tally.failed) for tally in tallies),
        "wrong": sum(len(tally.wrong) for tally in tallies) + num_unnoted,
        "run_twice": num_twice,
        "effects_lost": sum(tally.effects_lost for tally in tallies),
        "back_after_s": _spread(leaders_s),
        "longest_request_s": round(max(tally.longest_s for tally in tallies), 2),
        "gateway_kills": num_gateway_kills,
        "lost_with_gateway": tallies[0].lost_with_gateway,
        "failed_of_other_gateway": len(tallies[1].failed) - num_failed_before,
        "gateway_back_after_s": _spread(gateways_s),
        "errors": sorted({text for tally in tallies for text in tally.failed + tally.wrong})[:_NUM_SHOWN],
    }


def _spread(times: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(times), 2), "max": round(max(times), 2)} if times else {}


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(num_kills: int = 50, num_clients: int = 32, num_gateway_kills: int = 5) -> None:
    """Runs it, and prints the result."""
    with no_leaks():
        found = asyncio.run(storm(num_kills, num_clients, num_gateway_kills))
        print(json.dumps(found), flush=True)
    sys.exit(bool(found["failed"] or found["wrong"] or found["run_twice"]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
