"""Kills what keeps the caches of chats at random moments, while clients stream answers of `examples/chat`.

``python -m tests.chaos.chats_storm [--kills N] [--clients N] [--seed N] [--cells N | --evict]``. Processes of the groups "lm" and
"draft" are killed by SIGKILL, on Ray; with ``--cells``, whole cells; with ``--evict`` nothing is killed, but a process may hold a
third of the caches that it would. Every answer must be the plain loop's, token for token: none lost, none doubled. At the end no
resident is left, and no process. The last line is one JSON object; the exit status is 1 if any of this is violated.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Sequence
from typing import Any

from dyorc.testing import ServerProcess
from tests.chaos.chats import TARGETS, Chat, draw_chats
from tests.chaos.chats_storm_cells import Cells
from tests.chaos.chats_storm_clients import ChatsLoad
from tests.deadlines import TIMEOUT_S, wait_until
from tests.server_process import client_of, replica_pids, serving

_LM, _DRAFT = ("prefill", "decode", "verify"), ("begin_draft", "draft")
_GROUPS = {"decode": 70, "draft": 30}
"""A program of each group that is struck, and how often in percent."""
_NUM_REPLICAS = 2
_AGAIN_PERCENT = 10
"""Of the kills: another process is killed before the first is back."""
_MAX_PAUSE_S = 0.8
_MAX_AGAIN_S = 0.5
_NUM_ANSWERS = 20
_NUM_CHATS = 32
_ON_RAY = {f"DYORC_PROGRAMS__{name.upper()}__NUM_REPLICAS": str(_NUM_REPLICAS) for name in (*_LM, *_DRAFT)} | {
    "DYORC_DEPLOYMENT__HEALTH_CHECK_TIMEOUT_S": "3"
}
_SHARE = 3
"""With `--evict`: a process may hold this fraction of what it would."""
_POLL_S = 0.02
_NUM_SHOWN = 20


class Replicas:
    """Processes of programs on Ray, which the storm kills."""

    def __init__(self, server: ServerProcess, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self.num_again = 0

    def strike(self) -> tuple[str, list[int]]:
        """Kills one, sometimes two. Returns a word for it, and which."""
        (name,) = self._chance.choices(list(_GROUPS), list(_GROUPS.values()))
        pids = [self._kill(name)]
        if self._chance.randrange(100) < _AGAIN_PERCENT:
            time.sleep(self._chance.uniform(0, _MAX_AGAIN_S))
            self.num_again += 1
            pids.append(self._kill(self._chance.choice([name for name in _GROUPS if replica_pids(self._server, name)])))
        return name, pids

    def _kill(self, name: str) -> int:
        pid = self._chance.choice(replica_pids(self._server, name))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return pid

    def are_back(self, pids: Sequence[int]) -> bool:
        """Returns whether there are as many processes as before, and none of these."""
        alive = [replica_pids(self._server, name) for name in (*_LM, *_DRAFT)]
        return all(len(each) == _NUM_REPLICAS and not set(each) & set(pids) for each in alive)


class ChatsStorm:
    """Strikes, waits until all is back, and checks.

    Attributes:
        kinds: How often what was struck.
        back_s: How long it took until all was there again.
        outages: What did not come back in time.
    """

    def __init__(self, struck: Replicas | Cells, load: ChatsLoad, chance: random.Random) -> None:
        self._struck = struck
        self._load = load
        self._chance = chance
        self.kinds: Counter[str] = Counter()
        self.back_s: defaultdict[str, list[float]] = defaultdict(list)
        self.outages: list[str] = []

    @property
    def is_over(self) -> bool:
        """Whether going on makes no sense."""
        return bool(self._load.faults or self.outages)

    def strike(self) -> None:
        """Strikes once, and waits until answers come and everything is there again."""
        time.sleep(self._chance.uniform(0, _MAX_PAUSE_S))
        started_s = time.monotonic()
        kind, pids = self._struck.strike()
        self.kinds[kind] += 1
        _tell(f"{self.kinds.total()}: {kind} {pids}; {self._load.right.total()} answers so far")
        if not self._load.wait_for_answers(_NUM_ANSWERS):
            self.outages.append(f"no {_NUM_ANSWERS} answers in {TIMEOUT_S} s after {kind} {pids}")
        while not self._struck.are_back(pids):
            if time.monotonic() > started_s + TIMEOUT_S:
                self.outages.append(f"nothing in place of {kind} {pids} after {TIMEOUT_S} s")
                return
            time.sleep(_POLL_S)
        self.back_s[kind].append(time.monotonic() - started_s)


def run(num_kills: int, seed: int, num_clients: int, num_cells: int = 0, max_s: float = 1e9) -> tuple[dict[str, Any], list[str]]:
    """Runs a whole storm, at most for some seconds. Returns figures, and what went wrong."""
    chats = draw_chats(_NUM_CHATS, seed)
    chance = random.Random(seed)
    targets = [*TARGETS, "--cells", str(num_cells)] if num_cells else TARGETS
    environment = Cells.ENVIRONMENT if num_cells else _ON_RAY
    with serving(targets, in_process=bool(num_cells), **environment) as server:
        struck = Cells(server, chance) if num_cells else Replicas(server, chance)
        excuses: Callable[[float], bool] = struck.excuses if isinstance(struck, Cells) else lambda _: False
        with ChatsLoad(server.url, chats, num_clients, seed, excuses) as load:
            storm = ChatsStorm(struck, load, chance)
            if not load.wait_for_answers(_NUM_ANSWERS):
                storm.outages.append("no answers before anything was struck")
            wait_until(lambda: struck.are_back([]), "all processes are there")
            started_s = time.monotonic()
            while storm.kinds.total() < num_kills and not storm.is_over and time.monotonic() < started_s + max_s:
                storm.strike()
            load.wait_for_answers(_NUM_ANSWERS)
        wrong = [*load.faults, *storm.outages, *_left_by(server)]
        if isinstance(struck, Cells) and load.cut["after its first part"] > struck.num_connections:
            wrong.append(f"{dict(load.cut)} requests failed, but the killed cells had {struck.num_connections} connections")
        _show(wrong, server)
        figures = {"kills": dict(storm.kinds), "killed_before_the_first_was_back": struck.num_again, "failed": dict(load.cut)}
        back = {
            kind: {"p50": round(statistics.median(each), 2), "max": round(max(each), 2)} for kind, each in storm.back_s.items()
        }
        return figures | {"back_s": back} | _figures(load, wrong), wrong


def run_evict(seed: int, num_clients: int, num_answers: int = 5) -> tuple[dict[str, Any], list[str]]:
    """Asks with all the room that caches want, and then with a third of it. Returns figures, and what went wrong."""
    chats = draw_chats(_NUM_CHATS, seed)
    with _asked(chats, num_clients, seed, {}) as (server, first):
        wanted = _most_held(server, first, num_answers)
    limit = wanted // _SHARE
    limits = {f"DYORC_PROGRAMS__{name.upper()}__MAX_RESIDENT_BYTES": str(limit) for name in _LM}
    num_evicted = 0
    with _asked(chats, num_clients, seed, limits) as (server, load):
        most = _most_held(server, load, num_answers)
        with client_of(server) as client:
            programs = client.get("/status").json()["programs"]
        num_evicted = sum(programs[name]["num_evicted"] for name in _LM)
    wrong = [*first.faults, *load.faults]
    if not num_evicted:
        wrong.append(f"nothing was evicted with room for {limit} bytes")
    figures = {"wanted_mb": round(wanted / 2**20, 2), "limit_mb": round(limit / 2**20, 2), "most_mb": round(most / 2**20, 2)}
    return figures | {"evicted": num_evicted} | _figures(load, wrong), wrong


@contextlib.contextmanager
def _asked(
    chats: Sequence[Chat], num_clients: int, seed: int, environment: dict[str, str]
) -> Generator[tuple[ServerProcess, ChatsLoad]]:
    """Runs a cell with clients."""
    with serving(TARGETS, in_process=True, **environment) as server:
        with ChatsLoad(server.url, chats, num_clients, seed) as load:
            yield server, load
        load.violations += _left_by(server)
        _show(load.faults, server)


def _most_held(server: ServerProcess, load: ChatsLoad, num_answers: int) -> int:
    """Waits until each client has so many answers. Returns the most bytes of caches that the model's programs had meanwhile."""
    most = 0
    give_up_at_s = time.monotonic() + TIMEOUT_S
    with client_of(server) as client:
        while not load.wait_for_all_at_least(num_answers, _POLL_S):
            programs = client.get("/status").json()["programs"]
            most = max(most, sum(programs[name]["resident_bytes"] for name in _LM))
            if time.monotonic() > give_up_at_s:
                load.violations.append(f"not all clients had {num_answers} answers after {TIMEOUT_S} s")
                break
    return most


def _left_by(server: ServerProcess) -> list[str]:
    """Stops a server whose clients are gone. Returns what it had kept, and what it leaves."""
    left: list[str] = []
    with client_of(server) as client:

        def num_residents() -> int:
            return sum(program.get("num_residents", 0) for program in client.get("/status").json()["programs"].values())

        try:
            wait_until(lambda: num_residents() == 0, "residents are released", 30)
        except AssertionError as error:
            left.append(f"{num_residents()} residents are left: {error}")
    server.stop()
    if server.process.returncode != 0:
        left.append(f"the server ended with {server.process.returncode}")
    return left + server.leftovers()


def _figures(load: ChatsLoad, wrong: list[str]) -> dict[str, Any]:
    return {
        "answers": dict(load.right),
        "parts": load.num_parts,
        "ties": len(load.ties),
        "wrong": len(load.wrong),
        "slowest_answer_s": round(load.slowest_s, 2),
        "violations": len(wrong),
    }


def _show(wrong: list[str], server: ServerProcess) -> None:
    if wrong:
        _tell("\n".join([*wrong[:_NUM_SHOWN], server.output[-6000:]]))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--cells", type=int, default=0, help="kill cells in place of replicas; how many there are")
    parser.add_argument("--evict", action="store_true", help="kill nothing, but give caches a third of their room")
    parser.add_argument("--max-seconds", type=float, default=1e9, help="end after so long, with fewer kills")
    options = parser.parse_args()
    started_s = time.monotonic()
    if options.evict:
        figures, wrong = run_evict(options.seed, options.clients)
    else:
        figures, wrong = run(options.kills, options.seed, options.clients, options.cells, options.max_seconds)
    print(json.dumps(figures | {"seconds": round(time.monotonic() - started_s)}))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
