"""Kills servers with SIGKILL at random moments, again and again, while clients submit jobs, and looks at every job afterwards.

``python -m tests.chaos.jobs_storm [--store sqlite|redis] [--jobs N] [--kills N] [--seed N]``. With Redis, two servers share the
queue. Every job that a client submitted must exist once, must have run, and must have ended with its own right result. A job may
run twice. The last line is one JSON object; the exit status is 1 if any of this is violated.
"""

import argparse
import contextlib
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.jobs_storm_servers import Servers, servers
from tests.deadlines import TIMEOUT_S
from tests.redis_server import RedisServer

_NUM_CLIENTS = 4
_REST_S = 0.01
_RETRY_S = 0.02
_SUBMIT_S = TIMEOUT_S
_END_S = TIMEOUT_S
_PAGE = 500
_MAX_PAUSE_S = 0.2
_NUM_SHOWN = 10


class Clients:
    """Submits jobs, each one repeatedly until a server has accepted it."""

    def __init__(self, at: Servers, num_jobs: int, folder: Path, seed: int) -> None:
        self._servers = at
        self._folder = folder
        self._numbers = iter(range(num_jobs))
        self._lock = threading.Lock()
        self._chances = [random.Random(seed * 1000 + client) for client in range(_NUM_CLIENTS)]
        self._threads = [threading.Thread(target=self._submit_all, args=(chance,)) for chance in self._chances]
        self.ids: dict[int, str] = {}
        self.problems: list[str] = []
        self.num_retries = 0

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()

    @property
    def are_done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def _submit_all(self, chance: random.Random) -> None:
        with httpx.Client(timeout=TIMEOUT_S, trust_env=False) as client:
            while True:
                with self._lock:
                    number = next(self._numbers, None)
                if number is None:
                    return
                self._submit(client, number, chance)

    def _submit(self, client: httpx.Client, number: int, chance: random.Random) -> None:
        tensor = {"name": "x", "shape": [], "datatype": "INT64", "data": [number]}
        parameters = {"folder": str(self._folder), "rest_s": _REST_S}
        body = {"model_name": "noted", "inputs": [tensor], "parameters": parameters}
        deadline_s = time.monotonic() + _SUBMIT_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(httpx.TransportError):
                url = chance.choice(self._servers.urls)
                answer = client.post(f"{url}/v1/jobs", json=body, headers={"Idempotency-Key": f"job {number}"})
                if answer.is_success:
                    self.ids[number] = answer.json()["id"]
                    return
                if not answer.json()["retryable"]:
                    self.problems.append(f"job {number} was refused: {answer.text}")
                    return
            self.num_retries += 1
            time.sleep(_RETRY_S)
        self.problems.append(f"job {number} was not taken in {_SUBMIT_S} s")


def storm(at: Servers, clients: Clients, num_jobs: int, num_kills: int, chance: random.Random, runs: Path) -> list[float]:
    """Kills at random points of the way from the first submission to the last run. Returns the seconds of each outage."""
    outages_s: list[float] = []
    for goal in sorted(chance.randrange(2 * num_jobs) for _ in range(num_kills)):
        while len(clients.ids) + len(_noted(runs)) < goal and not (clients.are_done and len(_noted(runs)) >= num_jobs):
            time.sleep(_RETRY_S / 4)
        time.sleep(chance.uniform(0, _MAX_PAUSE_S))
        victim = chance.randrange(len(at.urls))
        outages_s.append(at.kill(victim))
        _tell(f"kill {len(outages_s)}: {len(clients.ids)} submitted, {len(_noted(runs))} runs")
    return outages_s


def _noted(runs: Path) -> list[str]:
    return runs.read_text().split() if runs.exists() else []


def look(at: Servers, clients: Clients, num_jobs: int) -> tuple[list[str], Counter[int]]:
    """Waits for all jobs. Returns what is wrong, and the number of attempts."""
    wrong: list[str] = [*clients.problems]
    attempts: Counter[int] = Counter()
    deadline_s = time.monotonic() + _END_S
    with httpx.Client(base_url=at.urls[0], timeout=TIMEOUT_S, trust_env=False) as client:
        for number, job_id in sorted(clients.ids.items()):
            job: dict[str, Any] = {"state": "queued"}
            while job["state"] in ("queued", "running") and time.monotonic() < deadline_s:
                job = client.get(f"/v1/jobs/{job_id}", params={"wait_s": 20}).json()
            attempts[job.get("num_attempts", 0)] += 1
            result = client.get(f"/v1/jobs/{job_id}/result")
            if job["state"] != "succeeded" or result.json()["outputs"][0]["data"] != [number * number + 1]:
                wrong.append(f"job {number} is {job}, and gave {result.text}")
        listed = [job["id"] for job in _all_jobs(client)]
    if sorted(listed) != sorted(clients.ids.values()) or len(set(listed)) != num_jobs:
        wrong.append(f"there are {len(listed)} jobs, {len(set(listed))} of them different, expected {num_jobs}")
    return wrong, attempts


def _all_jobs(client: httpx.Client) -> Iterator[dict[str, Any]]:
    after: str | None = ""
    while after is not None:
        page = client.get("/v1/jobs", params={"limit": _PAGE, "after": after}).json()
        yield from page["jobs"]
        after = page["next"]


def run(store: str, num_jobs: int, num_kills: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Runs a whole storm. Returns figures, and what is wrong."""
    chance, started_s = random.Random(seed), time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dyorc-j-")))
        url = stack.enter_context(RedisServer()).url if store == "redis" else f"sqlite://{folder}/jobs.sqlite"
        at = stack.enter_context(servers(2 if store == "redis" else 1, url))
        with Clients(at, num_jobs, folder, seed) as clients:
            outages_s = storm(at, clients, num_jobs, num_kills, chance, folder / "runs")
        wrong, attempts = look(at, clients, num_jobs)
        runs = Counter(_noted(folder / "runs"))
        wrong += [f"job {number} never ran" for number in range(num_jobs) if not runs[str(number)]]
        if wrong:
            _tell("\n".join([*wrong[:_NUM_SHOWN], at.log()]))
    figures = {
        "store": store,
        "jobs": num_jobs,
        "kills": len(outages_s),
        "wrong": len(wrong),
        "run_more_than_once": sum(1 for times in runs.values() if times > 1),
        "attempts": {str(times): num for times, num in sorted(attempts.items())},
        "submissions_repeated": clients.num_retries,
        "outage_s": round(statistics.median(outages_s), 2) if outages_s else None,
        "seconds": round(time.monotonic() - started_s, 1),
    }
    return figures, wrong


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "redis", "both"], default="both")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    stores = ["sqlite", "redis"] if options.store == "both" else [options.store]
    found = {store: run(store, options.jobs, options.kills, options.seed) for store in stores}
    print(json.dumps({store: figures for store, (figures, _) in found.items()}))
    sys.exit(any(wrong for _, wrong in found.values()))


if __name__ == "__main__":
    main()
