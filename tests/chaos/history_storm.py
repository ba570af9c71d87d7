"""Clients submit, watch, list, cancel and forget jobs while servers are killed and frozen and their clock is set; then their
histories are judged.

    python -m tests.chaos.history_storm [--store sqlite|redis|both] [--seconds N] [--clients N] [--seed N] [--keep FOLDER]
        [--mistake NAME]

Two servers share a store. All that clients saw is recorded, answers or none. For each idempotency key, one order of its
operations, each at one moment between sending and answer, must explain all of it (linearizability, `tests.histories`). Jobs that
succeeded must have run, and have their own right result; each that ended must have sent its end by webhook; no tenant may see
another's. The last line is one JSON object; the exit status is 1 if anything is
violated. Histories that cannot be explained are printed, and kept in a folder if one is given.
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from benchmarks.output_paths import output_folder
from tests.chaos.history_storm_clients import TTL_S, JobClients, Webhooks, is_short_lived, number_of, write_keys
from tests.chaos.history_storm_mistakes import JOB_MISTAKES
from tests.chaos.jobs_storm_servers import Servers, servers
from tests.deadlines import TIMEOUT_S
from tests.histories.job_model import JobModel
from tests.histories.linearizability import Verdict, check
from tests.histories.operation import History, Operation
from tests.redis_server import RedisServer
from tests.threaded_server import answering

_MAX_PAUSE_S = 0.5
_FROZEN_S = 2.5
"""Longer than a job's lease, which is 1 s: another server runs the job meanwhile."""
_MAX_JUMP_S = 3.0
"""By so much the wall clock of all servers is set forward or back."""
_END_RATIO = 0.4
"""How many servers that end get SIGTERM, not SIGKILL: such a one closes the store."""
_NUM_SHOWN = 3
_ENDED = ("succeeded", "failed", "cancelled")


def disturb(at: Servers, clock: Path, seconds: float, chance: random.Random) -> Counter[str]:
    """Kills, ends and freezes servers, and sets their clock, for so long. Returns how often."""
    until_s, counts = time.monotonic() + seconds, Counter[str]()
    while time.monotonic() < until_s:
        time.sleep(chance.uniform(0, _MAX_PAUSE_S))
        victim = chance.randrange(len(at.urls))
        if chance.random() < 0.15:
            counts["clock_jumps"] += 1
            write_clock(clock, chance.uniform(-_MAX_JUMP_S, _MAX_JUMP_S))
        elif chance.random() < 0.35:
            counts["freezes"] += 1
            with at.frozen(victim):
                time.sleep(chance.uniform(0, _FROZEN_S))
        elif chance.random() < _END_RATIO:
            counts["ends"] += 1
            at.end(victim)
        else:
            counts["kills"] += 1
            at.kill(victim)
        _tell(f"{counts['kills']} kills, {counts['freezes']} freezes")
    return counts


def write_clock(clock: Path, offset_s: float) -> None:
    """Sets by how much the servers' wall clock differs; at once, for each that reads it."""
    new = clock.with_suffix(".new")
    new.write_text(str(offset_s))
    new.rename(clock)


def judge(history: History) -> dict[str, Verdict]:
    """Returns the verdict of each subject. A clock that was set may have ended the time of a job that is kept for a while."""
    short, long = JobModel(max(0.0, TTL_S - 2 * _MAX_JUMP_S)), JobModel()
    return {
        subject: check(operations, short if is_short_lived(subject) else long)
        for subject, operations in history.by_subject().items()
    }


def faults_at_rest(clients: JobClients, webhooks: Webhooks, url: str) -> list[str]:
    """Waits until all jobs have ended and their webhooks have come. Returns what is wrong with them, a sentence each."""
    deadline_s = time.monotonic() + TIMEOUT_S
    with httpx.Client(timeout=TIMEOUT_S, trust_env=False) as http:
        while True:
            states = clients.ends(http, url)
            wrong = [
                f"job {job_id} is {state}, and webhooks said {sorted(webhooks.states[job_id])}"
                for job_id, state in states.items()
                if state not in _ENDED or webhooks.states[job_id] != {state}
            ]
            if not wrong or time.monotonic() > deadline_s:
                return wrong
            time.sleep(_MAX_PAUSE_S)


def run(store: str, seconds: float, num_clients: int, seed: int, keep: Path | None = None, mistake: str = "") -> dict[str, Any]:
    """Runs a whole storm on one kind of store. Returns figures."""
    chance, started_s = random.Random(seed), time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dyorc-h-")))
        url = stack.enter_context(RedisServer()).url if store == "redis" else f"sqlite://{folder}/jobs.sqlite"
        webhooks, clock, keys = Webhooks(), folder / "clock", write_keys(folder / "keys.json")
        hook = stack.enter_context(answering(webhooks.receiver))
        write_clock(clock, 0.0)
        hosts = (hook.removeprefix("http://"),)
        at = stack.enter_context(
            servers(2, url, keys_file=str(folder / "keys.json"), webhook_hosts=hosts, clock=str(clock), mistake=mistake)
        )
        with JobClients(at, folder, keys, f"{hook}/", num_clients, seed) as clients:
            counts = disturb(at, clock, seconds, chance)
        write_clock(clock, 0.0)
        at_rest = faults_at_rest(clients, webhooks, at.urls[0])
        runs = set((folder / "runs").read_text().split())
    history, judged_s = clients.history, time.monotonic()
    verdicts = judge(history)
    judged_s = time.monotonic() - judged_s
    unexplained = [subject for subject, verdict in verdicts.items() if verdict.is_linearizable is False]
    wrong = clients.wrong + at_rest + _not_run(history.operations, runs)
    for subject in unexplained[:_NUM_SHOWN]:
        _tell(f"key {subject}: {verdicts[subject]}")
    _tell("\n".join(wrong[:_NUM_SHOWN]))
    if keep is not None and unexplained:
        history.write(keep / f"history-{store}-{seed}.jsonl")
    kinds = Counter(operation.kind for operation in history.operations)
    return {
        "operations": dict(kinds),
        "without_answer": sum(operation.outcome is None for operation in history.operations),
        "keys": len(verdicts),
        **counts,
        "not_linearizable": len(unexplained),
        "undecided": sum(verdict.is_linearizable is None for verdict in verdicts.values()),
        "wrong": len(wrong),
        "webhooks": len(webhooks.states),
        "longest_history": max(len(operations) for operations in history.by_subject().values()),
        "judged_s": round(judged_s, 2),
        "seconds": round(time.monotonic() - started_s, 1),
    }


def _not_run(operations: list[Operation], runs: set[str]) -> list[str]:
    """Returns what succeeded without having run."""
    keys = {operation.subject for operation in operations if operation.outcome == ["state", "succeeded"]}
    idle = [key for key in keys if not {f"{number_of(key, body)}" for body in "ab"} & runs]
    return [f"a job of key {key} succeeded and never ran" for key in idle]


def _tell(text: str) -> None:
    if text:
        print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "redis", "both"], default="both")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=output_folder)
    parser.add_argument(
        "--mistake", choices=JOB_MISTAKES, default="", help="that servers make with SQLite, to see whether it is noticed"
    )
    options = parser.parse_args()
    stores = ["sqlite", "redis"] if options.store == "both" else [options.store]
    figures = {
        store: run(store, options.seconds, options.clients, options.seed, options.keep, options.mistake) for store in stores
    }
    print(json.dumps(figures))
    sys.exit(any(each["not_linearizable"] or each["wrong"] for each in figures.values()))


if __name__ == "__main__":
    main()
