"""Tells servers to stop at random moments, under load, again and again, and checks the outcome of everything.

``python -m tests.chaos.stops_storm [--shape cell|cells|ray|parted]... [--stops N] [--seed N] [--clients N]``. Each shape of
server (one process, two cells, a Ray, a gateway with an orchestrator) is stopped N times by SIGTERM and N times by SIGINT, with
requests and jobs with effects in flight, also right after it is ready. It must end with status 0 and leave nothing behind;
whatever it had accepted must have been answered, and rightly; what was refused must have had no effect; jobs that were accepted
must succeed, after a restart at the latest. The last line is one JSON object; the exit status is 1 if any of this is violated.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.chaos.stops_storm_clients import Clients, Ledger, Sent, expected
from tests.chaos.stops_storm_shapes import SHAPES, started
from tests.deadlines import TIMEOUT_S

_AT_ONCE_S, _MAX_AFTER_S = 0.3, {"cell": 2.0, "cells": 2.0, "ray": 8.0, "parted": 2.0}
"""How long after it is ready a server is stopped: at most so, half the time; or the second, by shape."""
_UNSEEN_S = 0.25
"""A request that a client began to send so long before the signal need not have reached the server."""
_NUM_SHOWN = 20


class StopsStorm:
    """Stops servers of one shape.

    Args:
        folder: For the store, and for effects.

    Attributes:
        violations: What was not as it should be.
        counts: How many requests had which end.
        stops_s: How long each stop took.
    """

    def __init__(self, shape: str, folder: Path, num_clients: int, seed: int) -> None:
        self._shape = shape
        self._folder = folder
        self._num_clients = num_clients
        self._seed = seed
        self._chance = random.Random(f"{shape} {seed}")
        self._ledger = Ledger()
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.stops_s: list[float] = []
        (folder / "open").touch()  # `once` waits for it

    def stop(self, number: signal.Signals) -> None:
        """Starts a server, and stops it under load."""
        chance, ledger = self._chance, self._ledger
        num_sent, num_jobs = len(ledger.sent), len(ledger.jobs)
        with started(self._shape, self._folder, chance) as running:
            server = running.entrance
            seed = self._seed * 1000 + len(self.stops_s)
            with Clients(server.url, server.grpc_address, self._folder, ledger, self._num_clients, seed):
                time.sleep(chance.uniform(0, chance.choice((_AT_ONCE_S, _MAX_AFTER_S[self._shape]))))
                running.stop(number, chance)
        self.stops_s.append(running.took_s)
        sent = ledger.sent[num_sent:]
        faults = running.faults + self._faults_of(sent, running.told_s)
        self.violations += [f"stop {len(self.stops_s)} by {number.name}: {fault}" for fault in faults]
        _tell(
            f"{self._shape}, stop {len(self.stops_s)} by {number.name}: {running.took_s:.1f} s, {len(sent)} requests, "
            f"{len(ledger.jobs) - num_jobs} jobs, {len(faults)} faults"
        )

    def _faults_of(self, sent: list[Sent], told_s: float) -> list[str]:
        """Checks each request, given when the server was told to stop."""
        runs, faults = self._runs(), list[str]()
        for one in sent:
            what = f"{one.kind} of {one.number}, begun {one.began_s - told_s:+.2f} s from the signal"
            num_runs = 1 if one.kind == "plain" else runs[one.number]
            if not one.refusal:
                self.counts["answered"] += 1
                if "job" not in one.kind and (num_runs < 1 or (one.kind != "noted" and num_runs > 1)):
                    faults.append(f"{what}: answered, and had its effect {num_runs} times")
            elif one.began_s < told_s - _UNSEEN_S:
                faults.append(f"{what}: {one.refusal}")
            elif one.is_cut or one.refusal.startswith("503"):
                self.counts["refused"] += 1
                if one.kind in ("noted", "once", "aside") and num_runs:
                    faults.append(f"{what}: had its effect, and no answer: {one.refusal}")
            else:
                faults.append(f"{what}: {one.refusal}")
        return faults

    def look_at_jobs(self) -> None:
        """Starts a server once more, and waits for all jobs."""
        with started(self._shape, self._folder, random.Random(0)) as running:
            with httpx.Client(base_url=running.entrance.url, timeout=TIMEOUT_S, trust_env=False) as client:
                for job_id, (kind, number) in self._ledger.jobs.items():
                    if fault := self._fault_of_job(client, job_id, kind, number):
                        self.violations.append(f"job {job_id}, {kind} of {number}: {fault}")
            running.stop(signal.SIGTERM, self._chance)
        self.violations += [f"last stop: {fault}" for fault in running.faults]
        self.violations += self._ledger.wrong

    def _fault_of_job(self, client: httpx.Client, job_id: str, kind: str, number: int) -> str:
        until_s = time.monotonic() + TIMEOUT_S
        while True:
            job = client.get(f"/v1/jobs/{job_id}", params={"wait_s": 20}).json()
            if job.get("state") not in ("queued", "running") or time.monotonic() > until_s:
                break
        if job.get("state") != "succeeded":
            return json.dumps(job)
        result = client.get(f"/v1/jobs/{job_id}/result").json()
        output = np.array(result["outputs"][0]["data"]).reshape(result["outputs"][0]["shape"]).tolist()
        num_runs = self._runs()[number]
        if output != expected(kind, number):
            return f"{output}, expected {expected(kind, number)}"
        if num_runs < 1 or (kind != "noted job" and num_runs > 1):
            return f"succeeded, and had its effect {num_runs} times"
        return ""

    def _runs(self) -> Counter[int]:
        path = self._folder / "runs"
        return Counter(map(int, path.read_text().split())) if path.exists() else Counter()

    def report(self) -> dict[str, Any]:
        """Returns everything in figures."""
        ordered = sorted(self.stops_s)
        return {
            "stops": len(ordered),
            **self.counts,
            "jobs": len(self._ledger.jobs),
            "wrong": len(self._ledger.wrong),
            "stop_s": {"p50": round(ordered[len(ordered) // 2], 1), "max": round(ordered[-1], 1)},
            "violations": len(self.violations),
        }


def run(shape: str, num_stops: int, seed: int, num_clients: int) -> tuple[dict[str, Any], list[str]]:
    """Runs a whole storm over one shape. Returns figures, and what went wrong."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        storm = StopsStorm(shape, Path(folder), num_clients, seed)
        for _ in range(num_stops):
            for number in (signal.SIGTERM, signal.SIGINT):
                storm.stop(number)
        storm.look_at_jobs()
        if storm.violations:
            _tell("\n".join(storm.violations[:_NUM_SHOWN]))
        return storm.report(), storm.violations


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", action="append", choices=SHAPES, help="may be repeated; by default all")
    parser.add_argument("--stops", type=int, default=40, help="by each of the two signals")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    began_s = time.monotonic()
    results = {shape: run(shape, options.stops, options.seed, options.clients) for shape in options.shape or SHAPES}
    num_violations = sum(len(violations) for _, violations in results.values())
    figures = {shape: report for shape, (report, _) in results.items()}
    print(json.dumps({**figures, "violations": num_violations, "seconds": round(time.monotonic() - began_s)}))
    sys.exit(bool(num_violations))


if __name__ == "__main__":
    main()
