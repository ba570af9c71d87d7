"""Orchestrators and gateways on two hosts, on a Ray cluster of two nodes: kills, stops, cut links, lost stores and lost hosts,
under load.

``python -m tests.chaos.hosts_storm [--rounds N] [--seed N]``, as root. One orchestrator leads, on either host, the other
stands by; each host has a gateway, so one of the gateways is on another host than the leader. The programs are on both
hosts and hand each other tensors of 8 MiB. A client beside each gateway has request after request answered, and never
tries again. Every answer must come and be right, except where a killed gateway was about to answer. The last line is
one JSON object; the exit status is 1 if any of this is violated.
"""

import argparse
import contextlib
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.hosts_storm_clients import Client, GatewayOn
from tests.deadlines import wait_until
from tests.e2e.leaders import LEASE_S, LeaderProcess, Leaders
from tests.ray_nodes import SOON_NOTICED, ray_environment, ray_nodes, start_node
from tests.redis_server import RedisServer
from tests.two_hosts import TwoHosts, why_not

_CUT_S = 2.0


class _Troupe:
    """An orchestrator and a gateway on each host."""

    def __init__(self, hosts: TwoHosts, leaders: Leaders) -> None:
        self._hosts = hosts.hosts
        self._leaders = leaders
        self.players = [self._start(0), self._start(1)]
        self.gateways = [GatewayOn(host, leaders) for host in hosts.hosts]

    def _start(self, at: int) -> LeaderProcess:
        return self._leaders.start(self._hosts[at], "far", "carried_far")

    def leader(self) -> LeaderProcess | None:
        """Returns the one that leads, the later one if two say so."""
        leading = [one for one in self.players if one.is_leading]
        return max(leading, key=lambda one: one.fence, default=None)

    def leader_at(self) -> int:
        """Returns where it is, once there is one."""
        wait_until(self.leader, "somebody leads")
        leader = self.leader()
        assert leader is not None
        return self.players.index(leader)

    def renew(self) -> None:
        """Starts those again that have ended."""
        self.renew_gateways()
        for at, player in enumerate(self.players):
            if player.has_ended or player.has_said("over"):
                player.__exit__(None, None, None)
                self.players[at] = self._start(at)
        wait_until(lambda: all(one.has_said("standing_by") for one in self.players), "both are there")

    def renew_gateways(self) -> None:
        """Starts gateways again that were killed."""
        for gateway in self.gateways:
            gateway.start()

    def end(self) -> None:
        """Kills all."""
        for gateway in self.gateways:
            with gateway.killed():
                pass
        for player in self.players:
            player.__exit__(None, None, None)


class _Strikes:
    """What happens to them. Each returns what it measured, in seconds, by name."""

    def __init__(self, hosts: TwoHosts, troupe: _Troupe, redis: RedisServer, folder: Path) -> None:
        self._hosts = hosts
        self._troupe = troupe
        self._redis = redis
        self._folder = folder

    def all(self) -> dict[str, Callable[[], dict[str, float]]]:
        return {
            "leader_killed": self.leader_killed, "leader_stopped": self.leader_stopped, "link_cut": self.link_cut,
            "store_away": self.store_away, "host_killed": self.host_killed, "gateway_killed": self.gateway_killed,
        }  # fmt: skip

    def leader_killed(self) -> dict[str, float]:
        at = self._troupe.leader_at()
        self._troupe.players[at].signal(signal.SIGKILL)
        return {"led_again_s": self._led_by(1 - at)}

    def leader_stopped(self) -> dict[str, float]:
        at = self._troupe.leader_at()
        self._troupe.players[at].signal(signal.SIGSTOP)
        led_s = self._led_by(1 - at)
        self._troupe.players[at].signal(signal.SIGCONT)
        return {"led_again_s": led_s, "knew_it_lost_s": _took(lambda: self._troupe.players[at].has_said("over"), "it lost")}

    def link_cut(self) -> dict[str, float]:
        self._hosts.cut()
        time.sleep(_CUT_S)
        self._hosts.heal()
        return {}

    def store_away(self) -> dict[str, float]:
        at = self._troupe.leader_at()
        self._redis.kill()
        time.sleep(2 * LEASE_S)
        self._redis.start()
        time.sleep(LEASE_S)
        assert self._troupe.leader_at() == at, "leadership stays while the store is away"
        return {}

    def host_killed(self) -> dict[str, float]:
        """The second: the first has the head of the Ray cluster."""
        at = self._troupe.leader_at()
        self._hosts.cut()  # no connection is closed by a host that has no power
        with self._troupe.gateways[1].killed():
            self._hosts.second.kill()
        led_s = self._led_by(0) if at == 1 else 0.0
        noticed_s = _took(lambda: self._num_nodes() == 1, "Ray notices")
        self._hosts.heal()
        start_node(self._hosts.second, self._hosts.first, self._folder)
        return {"led_again_s": led_s, "noticed_by_ray_s": led_s + noticed_s}

    def gateway_killed(self) -> dict[str, float]:
        """The one on another host than the leader."""
        with self._troupe.gateways[1 - self._troupe.leader_at()].killed():
            pass
        return {}

    def _led_by(self, at: int) -> float:
        return _took(lambda: self._troupe.players[at].is_leading, "the other leads")

    def _num_nodes(self) -> int:
        """Asks the leader, which the client must not: it waits for its answer."""
        leader = self._troupe.players[self._troupe.leader_at()]
        num_said = sum("nodes" in one for one in leader.said)
        leader.tell("nodes")
        wait_until(lambda: sum("nodes" in one for one in leader.said) > num_said, "it says how many nodes there are")
        return [one["nodes"] for one in leader.said if "nodes" in one][-1]


def _took(is_met: Callable[[], object], what: str) -> float:
    began_s = time.monotonic()
    wait_until(is_met, what)
    return time.monotonic() - began_s


class _Figures:
    """What was measured, by strike and name."""

    def __init__(self) -> None:
        self.strikes: dict[str, dict[str, list[float]]] = {}

    def add(self, strike: str, figures: dict[str, float]) -> None:
        """Adds what one strike has shown."""
        print(f"{strike}: {figures}", flush=True)
        for name, value in figures.items():
            self.strikes.setdefault(strike, {}).setdefault(name, []).append(round(value, 2))


def _storm(
    troupe: _Troupe, strikes: dict[str, Callable[[], dict[str, float]]], names: list[str]
) -> tuple[dict[str, Any], list[str]]:
    figures = _Figures()
    troupe.leader_at()
    troupe.renew_gateways()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(gateway, number)) for number, gateway in enumerate(troupe.gateways)]
        for name in names:
            troupe.renew()
            _wait_for_answers(clients)
            nums_before = [len(client.latencies_s) for client in clients]
            measured = strikes[name]()
            troupe.renew_gateways()
            _wait_for_answers(clients)
            waits_s = [max(client.latencies_s[num:]) for client, num in zip(clients, nums_before, strict=True)]
            figures.add(name, {**measured, "longest_wait_s": max(waits_s)})
    latencies_s = [one for client in clients for one in client.latencies_s]
    wrong = [text for client in clients for text in (*client.failed, *client.wrong)]
    found = {
        "answers": len(latencies_s), "lost_with_gateways": sum(client.num_lost for client in clients),
        "failed_or_wrong": len(wrong), "median_s": round(statistics.median(latencies_s), 3), "strikes": figures.strikes,
    }  # fmt: skip
    return found, wrong


def _wait_for_answers(clients: list[Client]) -> None:
    for client in clients:
        client.wait_for_answers()


def run(num_rounds: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Strikes in every way so many times, in random order. Returns figures, and what was wrong."""
    chance = random.Random(seed)
    with (
        ray_environment() as (folder, environment),
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as own,
        ray_nodes(folder, patch, {**environment, **SOON_NOTICED}) as hosts,
        RedisServer() as redis,
    ):
        troupe = _Troupe(hosts, Leaders(hosts.first, redis.url, Path(own)))
        try:
            strikes = _Strikes(hosts, troupe, redis, folder).all()
            names = [name for _ in range(num_rounds) for name in chance.sample(sorted(strikes), len(strikes))]
            return _storm(troupe, strikes, names)
        finally:
            troupe.end()


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if reason := why_not():
        sys.exit(f"this machine cannot have two hosts: {reason}")
    figures, wrong = run(options.rounds, options.seed)
    print(*wrong, sep="\n")
    print(json.dumps(figures))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
