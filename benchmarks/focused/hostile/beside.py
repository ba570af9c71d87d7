"""Measures a well-behaved client alone and beside an attack, in turns, and takes the medians of each.

The client is the load generator. It sends requests at a steady pace, and their latency counts from when each was due, so that the
requests that wait while a server stalls count too. Every answer is checked.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.focused.turns import log
from benchmarks.serving import ROOT, BenchmarkError
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.run import run
from loadgen.targets.base import TargetSpec

BOTH_MODES = "dyorc,dyorc_cells_2"
"""The systems that are attacked unless others are asked for: replicas on Ray, and cells under a supervisor."""

_RATE_RPS = 150.0
_NUM_CONNECTIONS = 4
_END_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """An attack's command line, after the module's name: kind, URL, number of attackers, options."""

    name: str
    arguments: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A well-behaved client of the workflow `answer`.

    Attributes:
        headers: Headers of its requests, e.g. its key.
    """

    url: str
    duration_s: float
    headers: Mapping[str, str]

    def p99_ms(self) -> float:
        """Returns the 99th percentile of its latencies.

        Raises:
            BenchmarkError: If an answer is missing or wrong.
        """
        inputs = [np.full(16, number, np.float32) for number in range(1, 5)]
        pool = Pool(inputs=[{"x": x} for x in inputs], answers=[{"output": 2 * x} for x in inputs])
        spec = TargetSpec(
            protocol="http", url=self.url, model="answer", headers=dict(self.headers), max_connections=_NUM_CONNECTIONS
        )
        load = Load(arrivals="constant", rate_rps=_RATE_RPS, duration_s=self.duration_s)
        result = run("probe", spec, pool, load)
        if result.counts.correct != result.counts.planned:
            raise BenchmarkError(f"the probe failed: {result.first_wrong or result.errors or result.counts}")
        return result.latency_ms.p99


def measure(attack: Attack, probe: Probe, num_rounds: int) -> dict[str, Any]:
    """Returns medians over the rounds: of the 99th percentiles alone and beside the attack, and of their ratio.

    Raises:
        BenchmarkError: If an attack cannot be started, or the probe got a wrong answer.
    """
    alone: list[float] = []
    beside: list[float] = []
    answered: dict[str, int] = {}
    for round_ in range(1, num_rounds + 1):
        alone.append(probe.p99_ms())
        with _attacking(attack) as counts:
            beside.append(probe.p99_ms())
        for name, count in counts.items():
            answered[name] = answered.get(name, 0) + count
        log(f"round {round_}  {attack.name:<6} p99 alone {alone[-1]:7.2f} ms, beside {beside[-1]:7.2f} ms  {counts}")
    medians = statistics.median(alone), statistics.median(beside)
    return {
        "p99_ms_alone": round(medians[0], 3),
        "p99_ms_beside": round(medians[1], 3),
        "p99_ratio": round(medians[1] / medians[0], 2),
        "attackers": answered,
    }


@contextlib.contextmanager
def _attacking(attack: Attack) -> Generator[dict[str, int]]:
    """Attacks while entered. At the end, the result says what happened to the attackers."""
    command = [sys.executable, "-m", "benchmarks.focused.hostile.attackers", *attack.arguments]
    counts: dict[str, int] = {}
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise BenchmarkError(f"the attack {attack.name!r} did not start")
            yield counts
            rest, _ = process.communicate(timeout=_END_TIMEOUT_S)
            counts.update(json.loads(rest))
        finally:
            process.kill()
