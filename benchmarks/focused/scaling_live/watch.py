"""Asks a server at intervals how many replicas its programs have, and makes figures of the answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from itertools import pairwise
from typing import Any, Self, TypeAlias

from benchmarks.serving import Address

_INTERVAL_S = 0.1
_TIMEOUT_S = 30.0

Counts: TypeAlias = Mapping[str, int]
"""Replicas of a program by state."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a server said.

    Attributes:
        at_s: When it was asked.
        counts: By program.
        wanted: Warm replicas that the server wants, by program; empty if it does not say.
    """

    at_s: float
    counts: Mapping[str, Counts]
    wanted: Mapping[str, int]


Read: TypeAlias = Callable[[Any], tuple[Mapping[str, Counts], Mapping[str, int]]]
"""Takes a server's answer, decoded from JSON; returns counts and wanted of a `Sample`."""

_STATES = ("warm", "warming", "parked", "starting")


def read_dyorc(answer: Any) -> tuple[Mapping[str, Counts], Mapping[str, int]]:
    """Reads the answer of ``/scaling``."""
    programs = answer["programs"].items()
    counts = {name: {state: program[f"num_{state}"] for state in _STATES} for name, program in programs}
    return counts, {name: program["num_warm_wanted"] for name, program in programs}


def read_ray_serve(answer: Any) -> tuple[Mapping[str, Counts], Mapping[str, int]]:
    """Reads the answer of the peer's ingress: Ray Serve's own states, "RUNNING" as warm."""
    return {name: {"warm" if state == "RUNNING" else state.lower(): number for state, number in states.items()}
            for name, states in answer.items()}, {}  # fmt: skip


class Watch:
    """Asks while entered, on its own thread. Nothing answers while a server restarts, so failures are only counted."""

    def __init__(self, address: Address, path: str, read: Read, interval_s: float = _INTERVAL_S) -> None:
        self._address = address
        self._path = path
        self._read = read
        self._interval_s = interval_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="watch")
        self.samples: list[Sample] = []
        self.num_unanswered = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _main(self) -> None:
        while not self._is_over.wait(self._interval_s):
            at_s = time.monotonic()
            try:
                self.samples.append(Sample(at_s, *self._read(ask(self._address, self._path))))
            except (OSError, HTTPException):
                self.num_unanswered += 1


def ask(address: Address, path: str, body: Any = None) -> Any:
    """GETs a path, or POSTs JSON to it, and returns the JSON that comes.

    Raises:
        HTTPException: If the answer is not 200.
    """
    connection = HTTPConnection(address.host, address.http_port, timeout=_TIMEOUT_S)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read()
        if response.status != 200:
            raise HTTPException(f"{path} answered {response.status}: {data[:200].decode(errors='replace')}")
        return json.loads(data)
    finally:
        connection.close()


def replica_seconds(samples: Sequence[Sample], duration_s: float) -> dict[str, float]:
    """Returns how long replicas were in each state, all programs and replicas together, within a time from the first sample."""
    by_program: dict[str, float] = {}
    within = [sample for sample in samples if sample.at_s <= samples[0].at_s + duration_s]
    for sample, after in pairwise(within):
        for counts in sample.counts.values():
            for state, number in counts.items():
                by_program[state] = by_program.get(state, 0.0) + number * (after.at_s - sample.at_s)
    return {f"{state}_s": round(seconds, 1) for state, seconds in by_program.items()}


def changes(courses: Mapping[str, Sequence[int]]) -> tuple[int, int]:
    """Returns by how much the numbers of replicas went up and down in all, over all programs."""
    steps = [after - before for course in courses.values() for before, after in pairwise(course)]
    return sum(step for step in steps if step > 0), -sum(step for step in steps if step < 0)


def warm_courses(samples: Sequence[Sample]) -> dict[str, list[int]]:
    """Returns each program's number of warm replicas over time."""
    return {name: [sample.counts[name].get("warm", 0) for sample in samples] for name in samples[0].counts}


def wanted_courses(samples: Sequence[Sample]) -> dict[str, list[int]]:
    """Returns each program's number of wanted warm replicas over time."""
    return {name: [sample.wanted[name] for sample in samples] for name in samples[0].wanted}


def outside(samples: Sequence[Sample], least: int, most: int) -> int:
    """Returns how often a program had more than `most` processes, or the server wanted more or fewer than allowed."""
    processes = [sum(counts.values()) for sample in samples for counts in sample.counts.values()]
    wanted = [number for sample in samples for number in sample.wanted.values()]
    return sum(number > most for number in processes) + sum(not least <= number <= most for number in wanted)
