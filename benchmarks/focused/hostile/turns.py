"""Takes turns: a probe alone, the same beside an attack, alone again, and so on; medians of each."""

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).parents[3]
_START_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Attack:
    """An attack's command line, after the module's name: kind, URL, number of attackers, options."""

    name: str
    arguments: Sequence[str]


def measure(attack: Attack, probe: Sequence[str], num_rounds: int) -> dict[str, Any]:
    """Medians over the rounds, of the 99th percentiles alone and beside the attack, and their ratio.

    Raises:
        RuntimeError: If an attack cannot be started, or the probe got a wrong answer.
    """
    alone: list[float] = []
    beside: list[float] = []
    answered: dict[str, int] = {}
    for round_ in range(1, num_rounds + 1):
        alone.append(_probe(probe))
        with _attacking(attack) as counts:
            beside.append(_probe(probe))
        for name, count in counts.items():
            answered[name] = answered.get(name, 0) + count
        _log(f"round {round_}  {attack.name:<6} p99 alone {alone[-1]:7.2f} ms, beside {beside[-1]:7.2f} ms  {counts}")
    medians = statistics.median(alone), statistics.median(beside)
    return {
        "p99_ms_alone": round(medians[0], 3),
        "p99_ms_beside": round(medians[1], 3),
        "p99_ratio": round(medians[1] / medians[0], 2),
        "attackers": answered,
    }


def _probe(arguments: Sequence[str]) -> float:
    command = [sys.executable, "-m", "benchmarks.focused.hostile.probe", *arguments]
    finished = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, timeout=_START_TIMEOUT_S)
    if finished.returncode:
        raise RuntimeError(f"the probe failed: {finished.stderr.strip()[-2000:]}")
    return json.loads(finished.stdout)["p99_ms"]


@contextlib.contextmanager
def _attacking(attack: Attack) -> Generator[dict[str, int]]:
    """Attacks while it is entered; what became of the attackers is in the result at the end."""
    command = [sys.executable, "-m", "benchmarks.focused.hostile.attackers", *attack.arguments]
    counts: dict[str, int] = {}
    with subprocess.Popen(command, cwd=_REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"the attack {attack.name!r} did not start")
            yield counts
            rest, _ = process.communicate(timeout=_END_TIMEOUT_S)
            counts.update(json.loads(rest))
        finally:
            process.kill()


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
