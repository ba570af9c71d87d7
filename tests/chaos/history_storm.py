"""Clients submit, watch, cancel and forget jobs while servers are killed and frozen; then their histories are judged.

    python -m tests.chaos.history_storm [--store sqlite|redis|both] [--seconds N] [--clients N] [--seed N] [--keep FOLDER]

Two servers share a store. All that clients saw is recorded, answers or none. For each idempotency key, one order of its
operations, each at one moment between sending and answer, must explain all of it (linearizability, `tests.histories`). Jobs that
succeeded must have run, and have their own right result. The last line is one JSON object; the exit status is 1 if anything is
violated. Histories that cannot be explained are printed, and kept in a folder if one is given.
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.jobs_storm_servers import Servers, servers
from tests.client_threads import ClientThreads
from tests.histories.job_model import JobModel
from tests.histories.linearizability import Verdict, check
from tests.histories.operation import History, NotSentError, Operation
from tests.redis_server import RedisServer

_KEYS_AT_ONCE = 6
_KEYS_FOR_S = 1.5
"""Clients turn to other keys after so long: short histories are decided fast."""
_KINDS = {"submit": 6, "look": 8, "cancel": 2, "forget": 1}
_REST_S = (0.0, 0.01, 0.4)
_MAX_PAUSE_S = 0.5
_FROZEN_S = 2.5
"""Longer than a job's lease, which is 1 s: another server runs the job meanwhile."""
_ANSWER_S = 10.0
_REFUSED_S = 0.02
_NUM_SHOWN = 3


class Clients(ClientThreads):
    """Do operations of their choice while entered, and record them.

    Attributes:
        history: What they saw.
        wrong: Results that are not right, and answers that no operation can have.
    """

    def __init__(self, at: Servers, folder: Path, num_clients: int, seed: int) -> None:
        self.history = History()
        self.wrong: list[str] = []
        self._servers, self._folder = at, folder
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._ids: dict[str, list[str]] = defaultdict(list)
        super().__init__(partial(self._do_all, client, random.Random(seed * 1000 + client)) for client in range(num_clients))

    def _do_all(self, client: int, chance: random.Random) -> None:
        with httpx.Client(timeout=_ANSWER_S, trust_env=False) as http:
            while not self.is_over.is_set():
                generation = int((time.monotonic() - self._began_s) / _KEYS_FOR_S)
                subject = f"{generation * _KEYS_AT_ONCE + chance.randrange(_KEYS_AT_ONCE)}"
                (kind,) = chance.choices(list(_KINDS), list(_KINDS.values()))
                with self._lock:
                    known = list(self._ids[subject])
                if kind == "submit" or not known:
                    self._submit(client, http, subject, chance)
                else:
                    self._ask(client, http, subject, kind, chance.choice(known), chance)

    def _submit(self, client: int, http: httpx.Client, subject: str, chance: random.Random) -> None:
        body = chance.choice("aaab")
        number = _number(subject, body)
        tensor = {"name": "x", "shape": [], "datatype": "INT64", "data": [number]}
        parameters = {"folder": str(self._folder), "rest_s": _REST_S[number % len(_REST_S)]}
        request = {"model_name": "noted", "inputs": [tensor], "parameters": parameters}
        with self.history.recorded(client, "submit", subject, body) as operation:
            answer = self._sent(http, chance, "POST", "/v1/jobs", json=request, headers={"idempotency-key": subject})
            if answer is not None and answer.status_code == 202:
                operation.outcome = ["id", job_id := answer.json()["id"]]
                with self._lock:
                    if job_id not in self._ids[subject]:
                        self._ids[subject].append(job_id)
            elif answer is not None and answer.status_code == 409:
                operation.outcome = ["conflict", ""]

    def _ask(self, client: int, http: httpx.Client, subject: str, kind: str, job_id: str, chance: random.Random) -> None:
        method, path = {
            "look": ("GET", f"/v1/jobs/{job_id}"),
            "cancel": ("POST", f"/v1/jobs/{job_id}/cancel"),
            "forget": ("DELETE", f"/v1/jobs/{job_id}"),
        }[kind]
        with self.history.recorded(client, kind, subject, job_id) as operation:
            answer = self._sent(http, chance, method, path)
            if answer is None:
                return
            if answer.status_code == 404:
                operation.outcome = ["gone", ""]
            elif answer.is_success:
                operation.outcome = ["forgotten", ""] if kind == "forget" else ["state", answer.json()["state"]]
        if operation.outcome == ["state", "succeeded"]:
            self._check_result(http, chance, subject, job_id)

    def _check_result(self, http: httpx.Client, chance: random.Random, subject: str, job_id: str) -> None:
        answer = None
        with contextlib.suppress(NotSentError):
            answer = self._sent(http, chance, "GET", f"/v1/jobs/{job_id}/result")
        if answer is None or answer.status_code == 404:
            return
        right = [[_number(subject, body) ** 2 + 1] for body in "ab"]
        if not answer.is_success or answer.json()["outputs"][0]["data"] not in right:
            self.wrong.append(f"job {job_id} of key {subject} succeeded, and has {answer.status_code} {answer.text[:200]}")

    def _sent(self, http: httpx.Client, chance: random.Random, method: str, path: str, **given: Any) -> httpx.Response | None:
        """Sends a request to one of the servers. Returns None if nobody knows what became of it.

        Raises:
            NotSentError: If no server was there.
        """
        try:
            answer = http.request(method, chance.choice(self._servers.urls) + path, **given)
        except httpx.ConnectError as error:
            time.sleep(_REFUSED_S)
            raise NotSentError from error
        except httpx.TransportError:
            return None
        if answer.status_code in (503, 504):
            return None
        if not answer.is_success and answer.status_code not in (404, 409):
            self.wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
            return None
        return answer


def _number(subject: str, body: str) -> int:
    return 2 * int(subject) + (body == "b")


def disturb(at: Servers, seconds: float, chance: random.Random) -> Counter[str]:
    """Kills and freezes servers for so long. Returns how often."""
    until_s, counts = time.monotonic() + seconds, Counter[str]()
    while time.monotonic() < until_s:
        time.sleep(chance.uniform(0, _MAX_PAUSE_S))
        victim = chance.randrange(len(at.urls))
        if chance.random() < 0.3:
            counts["freezes"] += 1
            with at.frozen(victim):
                time.sleep(chance.uniform(0, _FROZEN_S))
        else:
            counts["kills"] += 1
            at.kill(victim)
        _tell(f"{counts['kills']} kills, {counts['freezes']} freezes")
    return counts


def judge(history: History) -> dict[str, Verdict]:
    """Returns the verdict of each subject."""
    return {subject: check(operations, JobModel()) for subject, operations in history.by_subject().items()}


def run(store: str, seconds: float, num_clients: int, seed: int, keep: Path | None) -> dict[str, Any]:
    """Runs a whole storm on one kind of store. Returns figures."""
    chance, started_s = random.Random(seed), time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dyorc-h-")))
        url = stack.enter_context(RedisServer()).url if store == "redis" else f"sqlite://{folder}/jobs.sqlite"
        at = stack.enter_context(servers(2, url))
        with Clients(at, folder, num_clients, seed) as clients:
            counts = disturb(at, seconds, chance)
        runs = set((folder / "runs").read_text().split())
    history, judged_s = clients.history, time.monotonic()
    verdicts = judge(history)
    judged_s = time.monotonic() - judged_s
    unexplained = [subject for subject, verdict in verdicts.items() if verdict.is_linearizable is False]
    wrong = clients.wrong + _not_run(history.operations, runs)
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
        "longest_history": max(len(operations) for operations in history.by_subject().values()),
        "judged_s": round(judged_s, 2),
        "seconds": round(time.monotonic() - started_s, 1),
    }


def _not_run(operations: list[Operation], runs: set[str]) -> list[str]:
    """Returns what succeeded without having run."""
    keys = {operation.subject for operation in operations if operation.outcome == ["state", "succeeded"]}
    idle = [key for key in keys if not {f"{_number(key, body)}" for body in "ab"} & runs]
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
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    stores = ["sqlite", "redis"] if options.store == "both" else [options.store]
    figures = {store: run(store, options.seconds, options.clients, options.seed, options.keep) for store in stores}
    print(json.dumps(figures))
    sys.exit(any(each["not_linearizable"] or each["wrong"] for each in figures.values()))


if __name__ == "__main__":
    main()
