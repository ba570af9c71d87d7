"""Kills, stops and crashes cells at random moments, under load, again and again.

``python -m tests.chaos.cells_storm [--kills N] [--cells N] [--clients N] [--seed N]``. On a real ``dyorc serve --cells``, a
cell is struck by SIGKILL, by SIGSTOP (for a moment, or until its supervisor ends it), or by an input that segfaults its
program. There must never be a wrong answer, nor a request that fails on a connection to another cell; every client must be
served again at once, and nothing may be left at the end. The last line is one JSON object; the exit status is 1 if any of this
is violated.
"""

import argparse
import json
import os
import random
import re
import signal
import statistics
import sys
import time
from collections import Counter, defaultdict
from typing import Any

import httpx
import psutil

from dyorc.testing import ServerProcess
from tests.chaos.cells_storm_clients import CellsLoad, Connection, Struck
from tests.deadlines import TIMEOUT_S
from tests.leaks import no_leaks
from tests.server_process import serving, target
from tests.workflows import poisoned

_KINDS = {"killed": 45, "segfault in numpy": 15, "segfault in torch": 15, "stopped": 15, "stopped for a moment": 10}
"""What happens to a cell, in percent."""
_POISONS = {"segfault in numpy": poisoned.IN_NUMPY, "segfault in torch": poisoned.IN_TORCH}
_AGAIN_PERCENT = 10
"""Of the kills: another cell is killed before the first is back."""
_MAX_PAUSE_S = 0.4
_MAX_AGAIN_S = 2.0
_HANG_LIMIT_S = 6.0
"""Long enough that a busy machine does not look like a cell that stands still."""
_MAX_STOP_S = 1.5
"""How long at most a cell is stopped for a moment."""
_SETTINGS = {
    "DYORC_CELLS__HANG_LIMIT_S": str(_HANG_LIMIT_S),
    # Strikes follow one another within a minute, which is not what the growing delay is for.
    "DYORC_CELLS__RESTART_DELAY_S": "0.1",
    "DYORC_CELLS__MAX_RESTART_DELAY_S": "0.1",
}
_POLL_S = 0.01
_NUM_SHOWN = 20


class CellsStorm:
    """Strikes cells, waits, and checks.

    Args:
        chance: Decides who is struck, when and how.

    Attributes:
        kinds: How often what happened.
        back_s: How long it took until all cells were ready again, by kind.
        served_s: How long it took until every client was served again, by kind.
        outages: What did not come back in time.
    """

    def __init__(self, server: ServerProcess, load: CellsLoad, struck: Struck, num_cells: int, chance: random.Random) -> None:
        self._server = server
        self._load = load
        self._struck = struck
        self._num_cells = num_cells
        self._chance = chance
        self._num_seeds = 2**20
        self.kinds: Counter[str] = Counter()
        self.num_again = 0
        self.back_s: defaultdict[str, list[float]] = defaultdict(list)
        self.served_s: defaultdict[str, list[float]] = defaultdict(list)
        self.outages: list[str] = []

    @property
    def is_over(self) -> bool:
        """Whether going on makes no sense."""
        return bool(self._load.wrong or self.outages)

    def strike(self) -> None:
        """Strikes one cell and checks everything that must be true after it."""
        chance = self._chance
        time.sleep(chance.uniform(0, _MAX_PAUSE_S))
        (kind,) = chance.choices(list(_KINDS), list(_KINDS.values()))
        self.kinds[kind] += 1
        started_s = time.monotonic()
        pids = self._strike(kind)
        _tell(f"{sum(self.kinds.values())}: {kind} {pids}; {self._load.num_right} answers so far")
        if not self._load.wait_for_all(TIMEOUT_S):
            self.outages.append(f"a client was not served {TIMEOUT_S} s after {pids} ({kind})")
        self.served_s[kind].append(time.monotonic() - started_s)
        if kind == "stopped for a moment":
            self._struck.end(pids[0])
            return
        while not self._are_replaced(pids):
            if time.monotonic() > started_s + TIMEOUT_S:
                self.outages.append(f"no cell in place of {pids} ({kind}) after {TIMEOUT_S} s")
                return
            time.sleep(_POLL_S)
        self.back_s[kind].append(time.monotonic() - started_s)
        for pid in pids:
            self._struck.end(pid)

    def _strike(self, kind: str) -> list[int]:
        """Returns the processes that were struck."""
        if kind in _POISONS:
            return [self._poison(_POISONS[kind])]
        pid = self._chance.choice(self._pids())
        self._struck.begin(pid)
        match kind:
            case "killed":
                os.kill(pid, signal.SIGKILL)
                return [pid, *self._again(pid)]
            case "stopped":
                os.kill(pid, signal.SIGSTOP)
            case _:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self._chance.uniform(0.1, _MAX_STOP_S))
                os.kill(pid, signal.SIGCONT)
        return [pid]

    def _again(self, but: int) -> list[int]:
        if self._chance.randrange(100) >= _AGAIN_PERCENT:
            return []
        time.sleep(self._chance.uniform(0, _MAX_AGAIN_S))
        pid = self._chance.choice([pid for pid in self._pids() if pid != but])
        self.num_again += 1
        self._struck.begin(pid)
        os.kill(pid, signal.SIGKILL)
        return [pid]

    def _poison(self, poison: int) -> int:
        """Sends an input that crashes whichever cell it reaches, on a connection that has been answered before."""
        connection = Connection(self._server.url)
        self._num_seeds += 1
        harmless = poisoned.made_words(poisoned.HARMLESS, self._num_seeds, 16)
        if fault := connection.fault_of(harmless, connection.ask(harmless)):
            self._load.wrong.append(fault)
        pid = connection.pid
        assert pid is not None
        self._struck.begin(pid)
        try:
            response = connection.ask(poisoned.made_words(poison, self._num_seeds, 16))
            self.outages.append(f"a crashing input was answered: {response.status_code} {response.text[:200]}")
        except httpx.TransportError:
            pass
        connection.close()
        return pid

    def _pids(self) -> list[int]:
        """Returns the processes that serve, or start."""
        return [child.pid for child in psutil.Process(self._server.process.pid).children() if child.status() != "zombie"]

    def _are_replaced(self, pids: list[int]) -> bool:
        """Returns whether the supervisor has seen these processes end, and all cells that ended are ready again."""
        output = self._server.output
        is_ready: dict[str, bool] = {}
        for ready, ended in re.findall(
            r"^Cell (\d+) is ready again|^dyorc: cell (\d+) \(process \d+\) .*ended", output, re.MULTILINE
        ):
            is_ready[ready or ended] = bool(ready)
        return all(f"(process {pid}) was ended" in output for pid in pids) and all(is_ready.values())

    def report(self) -> dict[str, Any]:
        """Returns everything in figures."""
        load = self._load
        return {
            "strikes": dict(self.kinds),
            "killed_before_the_first_was_back": self.num_again,
            "answers": load.num_right,
            "wrong": len(load.wrong),
            "failed_on_other_cells": len(load.violations),
            "lost_with_their_cell": load.cut["old"],
            "lost_on_new_connections": load.cut["new"],
            "back_s": _spread(self.back_s),
            "all_clients_served_s": _spread(self.served_s),
            "on_other_cells_ms": {name: _quantiles(times) for name, times in load.took_s.items()},
            "outages": len(self.outages),
        }


def _spread(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    return {kind: {"p50": round(statistics.median(each), 2), "max": round(max(each), 2)} for kind, each in times.items()}


def _quantiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times) or [0.0]
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {name: round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) for name, share in shares.items()}


def run(num_kills: int, seed: int, num_clients: int, num_cells: int) -> tuple[dict[str, Any], list[str]]:
    """Runs a whole storm. Returns figures, and what went wrong."""
    targets = [target("poisoned", "signed"), "--cells", str(num_cells)]
    struck = Struck()
    with no_leaks(), serving(targets, in_process=True, **_SETTINGS) as server:
        with CellsLoad(server.url, struck, num_clients, seed) as load:
            storm = CellsStorm(server, load, struck, num_cells, random.Random(seed))
            if not load.wait_for_all(TIMEOUT_S):
                storm.outages.append("not all clients were served before anything was struck")
            for _ in range(num_kills):
                if storm.is_over:
                    break
                storm.strike()
        server.stop()
        left = [] if server.process.returncode == 0 else [f"the server ended with {server.process.returncode}"]
        left += server.leftovers()
        wrong = [*load.wrong, *load.violations, *storm.outages, *left]
        if wrong:
            _tell("\n".join([*wrong[:_NUM_SHOWN], server.output[-4000:]]))
        return storm.report() | {"left_behind": len(left), "violations": len(wrong)}, wrong


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--cells", type=int, default=3)
    options = parser.parse_args()
    started_s = time.monotonic()
    figures, wrong = run(options.kills, options.seed, options.clients, options.cells)
    print(json.dumps(figures | {"seconds": round(time.monotonic() - started_s)}))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
