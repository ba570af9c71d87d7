"""Kills the orchestrator and replicas with SIGKILL at random moments, under load, again and again.

``python -m tests.chaos.storm [--kills N] [--seed N]``. After each kill it waits until service is back. There must never be a
wrong byte, a segment of shared memory without an owner, a block that nobody frees, or a request that fails although only replicas
died. The last line is one JSON object; the exit status is 1 if any of this happened.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.storm_clients import Load
from tests.chaos.storm_process import LINK, ORCHESTRATOR
from tests.chaos.storm_troupe import Actor, Troupe
from tests.deadlines import TIMEOUT_S
from tests.storm.arena_contents import deleted_arenas_mapped, read_arenas

_ROLES = {"producer": 25, "middle": 15, "consumer": 10, "source": 15, "reader": 15, ORCHESTRATOR: 20}
"""What is killed, in percent."""

_STOP_PERCENT = 15
"""Of the kills: SIGSTOP for longer than the heartbeats allow, and then SIGKILL or SIGCONT."""

_AGAIN_PERCENT = 10
"""Of the other kills: something else is killed before service is back."""

_MAX_PAUSE_S = 0.4
_MAX_AGAIN_S = 0.2
_ANSWERS = 20
_BACK_S = TIMEOUT_S
_SEGMENTS_S = TIMEOUT_S
_BLOCKS_S = TIMEOUT_S
_POLL_S = 0.02
_NUM_SHOWN = 20


@dataclass
class Findings:
    """What has been seen."""

    kills: Counter[str] = field(default_factory=Counter[str])
    num_again: int = 0
    recovery_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict[str, list[float]](list))
    leaked_segments: list[str] = field(default_factory=list[str])
    leaked_blocks: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    kept_arenas: set[str] = field(default_factory=set[str])
    outages: list[str] = field(default_factory=list[str])


class Storm:
    """Kills processes, waits, and checks.

    Args:
        chance: Decides who is killed, when and how.
    """

    def __init__(self, troupe: Troupe, load: Load, chance: random.Random) -> None:
        self._troupe = troupe
        self._load = load
        self._chance = chance
        self._mapped: set[str] = set()
        self.found = Findings()

    @property
    def is_over(self) -> bool:
        """Whether going on makes no sense, after a wrong answer or without service."""
        return bool(self._load.wrong or self.found.outages)

    def strike(self) -> None:
        """Makes one kill and checks everything that must be true after it."""
        chance, troupe = self._chance, self._troupe
        time.sleep(chance.uniform(0, _MAX_PAUSE_S))
        (role,) = chance.choices(list(_ROLES), list(_ROLES.values()))
        actor = troupe.pick(role, chance.randrange(1000))
        is_stopped = chance.randrange(100) < _STOP_PERCENT
        kind = f"{role}, stopped" if is_stopped else role
        _tell(f"{sum(self.found.kills.values()) + 1}: {kind} {actor.pid}; {self._load.num_right} answers so far")
        self.found.kills[kind] += 1
        started_s = time.monotonic()
        gone = self._stop_for_a_while(actor) if is_stopped else self._kill(actor)
        if not troupe.wait_until_complete(gone, _BACK_S) or not self._load.wait_for_answers(_ANSWERS, _BACK_S):
            self.found.outages.append(f"no service {_BACK_S} s after the end of {kind} {actor.pid}: {troupe.report()}")
            return
        self.found.recovery_s[kind].append(time.monotonic() - started_s)
        actor.may_end = False
        self._look_for_segments()

    def _kill(self, actor: Actor) -> set[int]:
        """Returns the processes that must be gone afterwards."""
        self._troupe.kill(actor)
        gone = {actor.pid}
        if self._chance.randrange(100) < _AGAIN_PERCENT:
            time.sleep(self._chance.uniform(0, _MAX_AGAIN_S))
            other = self._troupe.pick(self._chance.choice(list(_ROLES)), self._chance.randrange(1000))
            _tell(f"   and {other.role} {other.pid}")
            self.found.num_again += 1
            self._troupe.kill(other)
            gone.add(other.pid)
        return gone

    def _stop_for_a_while(self, actor: Actor) -> set[int]:
        """Returns the processes that must be gone afterwards."""
        self._troupe.stop(actor)
        time.sleep(self._chance.uniform(1.4 * LINK.heartbeat_timeout_s, 1.5 * LINK.heartbeat_timeout_s + LINK.kill_after_s))
        if self._chance.random() < 0.5:
            return self._kill(actor)
        self._troupe.go_on(actor)
        return set()

    def _look_for_segments(self) -> None:
        """Checks that the folder holds the arenas of living processes and nothing else."""
        deadline_s = time.monotonic() + _SEGMENTS_S
        while True:
            pids, owners = set(self._troupe.pids()), [arena.pid for arena in read_arenas(self._troupe.arena_folder)]
            if sorted(owners) == sorted(pids):
                return
            if time.monotonic() > deadline_s:
                self.found.leaked_segments.append(f"arenas of {sorted(owners)}, processes {sorted(pids)}")
                _tell(self.found.leaked_segments[-1])
                return
            time.sleep(_POLL_S)

    def look_for_blocks(self) -> None:
        """Pauses the load and checks that nothing is left in any arena. Blocks that were found before do not count again."""
        self._load.pause()
        deadline_s = time.monotonic() + _BLOCKS_S
        while left := self._blocks_left():
            if time.monotonic() > deadline_s:
                self.found.leaked_blocks |= left
                _tell(f"leaked: {left}")
                break
            time.sleep(_POLL_S)
        self._look_for_mappings()
        self._load.resume()

    def _look_for_mappings(self) -> None:
        """Checks that nobody keeps the memory of arenas that are gone from one pause to the next."""
        mapped = deleted_arenas_mapped(self._troupe.arena_folder, self._troupe.pids())
        pairs = {f"{pid} keeps {name}" for pid, names in mapped.items() for name in names}
        self.found.kept_arenas |= pairs & self._mapped
        self._mapped = pairs

    def _blocks_left(self) -> dict[tuple[str, int], str]:
        report = self._troupe.report()
        tensors = {} if report is None else report["tensors"]
        left = {("orchestrator", -1): f"{tensors}"} if not tensors or tensors["num_blocks"] else {}
        for arena in read_arenas(self._troupe.arena_folder):
            for block, num_bytes in arena.blocks.items():
                left[arena.name, block] = f"{num_bytes} bytes of {arena.pid}"
        return {block: text for block, text in left.items() if block not in self.found.leaked_blocks}


def report(storm: Storm, load: Load, troupe: Troupe) -> dict[str, Any]:
    """Returns everything in figures, and in words what went wrong."""
    found = storm.found
    return {
        "kills": dict(found.kills),
        "killed_before_service_was_back": found.num_again,
        "answers": load.num_right,
        "parts": load.num_parts,
        "wrong": len(load.wrong),
        "errors": dict(load.errors),
        "recovery_s": {
            role: {"p50": round(statistics.median(times), 2), "max": round(max(times), 2)}
            for role, times in found.recovery_s.items()
        },
        "slowest_answer_s": round(load.slowest_s, 2),
        "leaked_segments": len(found.leaked_segments),
        "leaked_blocks": len(found.leaked_blocks),
        "kept_arenas": len(found.kept_arenas),
        "violations": len(violations(storm, load, troupe)),
    }


def violations(storm: Storm, load: Load, troupe: Troupe) -> list[str]:
    """Returns everything that must not have happened."""
    found = storm.found
    blocks = [f"leaked block {block} of {arena}: {text}" for (arena, block), text in found.leaked_blocks.items()]
    return [*load.wrong, *found.outages, *load.violations, *troupe.surprises, *found.leaked_segments, *blocks, *found.kept_arenas]


def run(num_kills: int, seed: int, num_clients: int, check_every: int, arena_mib: int) -> tuple[dict[str, Any], list[str]]:
    """Runs a whole storm. Returns figures, and what went wrong."""
    with Troupe(num_replicas=2, arena_bytes=arena_mib * 2**20) as troupe, Load(troupe, num_clients, seed) as load:
        storm = Storm(troupe, load, random.Random(seed))
        if not troupe.wait_until_complete(set(), _BACK_S):
            raise SystemExit("\n".join(["the processes did not come up", *troupe.logs()]))
        load.resume()
        if not load.wait_for_answers(_ANSWERS, _BACK_S):
            storm.found.outages.append(f"no {_ANSWERS} right answers in {_BACK_S} s, before anything was killed")
        storm.look_for_blocks()
        for at in range(num_kills):
            if storm.is_over:
                break
            storm.strike()
            if (at + 1) % check_every == 0 or at + 1 == num_kills:
                storm.look_for_blocks()
        wrong = violations(storm, load, troupe)
        if wrong:
            _tell("\n".join([*wrong[:_NUM_SHOWN], *troupe.logs()]))
        return report(storm, load, troupe), wrong


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=7)
    parser.add_argument("--check-every", type=int, default=20, help="kills between two pauses in which blocks are counted")
    parser.add_argument("--arena-mib", type=int, default=64)
    options = parser.parse_args()
    started_s = time.monotonic()
    figures, wrong = run(options.kills, options.seed, options.clients, options.check_every, options.arena_mib)
    print(json.dumps(figures | {"seconds": round(time.monotonic() - started_s)}))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
