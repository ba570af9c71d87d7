"""Measures systems in turns: one server at a time, each system once per round, so that changes on the machine affect all alike.

Benchmarks that compare systems share this: their command line, the turns, the load generator's closed loops, and medians. Even an
idle server uses processor time (Ray's most of all), so each is stopped before the next one starts. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from benchmarks.output_paths import output_file
from benchmarks.serving import Address, BenchmarkError, serving
from loadgen.errors import WorkerFailedError
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.run import run
from loadgen.targets.base import TargetSpec

Figures: TypeAlias = Mapping[str, float]
"""Figures of one turn, or medians over the rounds. ``p50_ms_32`` is the p50 with 32 clients."""
Rounds: TypeAlias = Mapping[str, Sequence[Figures]]
"""Figures by system, in the order of the rounds."""

_DRAIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """How to start a server. It must print where it listens and when it is ready (`benchmarks.serving`)."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How long each load runs, before the measured time and during it."""

    warm_up_s: float
    duration_s: float


class Turn:
    """A running system, in one turn."""

    def __init__(self, system: str, number: int, address: Address, terms: Terms) -> None:
        self.system = system
        self.address = address
        self.terms = terms
        self._number = number

    def closed_loop(self, spec: TargetSpec, pool: Pool, num_clients: int, name: str = "") -> dict[str, float]:
        """Measures clients that each send their next request when they have their answer: ``p50_ms``, ``p99_ms`` and ``rps``.

        Args:
            name: Describes the load, in addition to the number of clients; precedes the figures' names.

        Raises:
            BenchmarkError: If any answer is missing or wrong.
        """
        result = run(
            self.system,
            spec,
            pool,
            Load(
                arrivals="closed",
                num_clients=num_clients,
                warm_up_s=self.terms.warm_up_s,
                duration_s=self.terms.duration_s,
                drain_s=_DRAIN_S,
            ),
        )
        if result.first_wrong or result.counts.correct != result.counts.planned:
            raise BenchmarkError(f"{self.system}, {num_clients} clients: {result.first_wrong or result.errors or result.counts}")
        latency = result.latency_ms
        self.log(
            f"{name}{' ' * bool(name)}{num_clients:>2} clients: p50 {latency.p50:8.2f} ms, p99 {latency.p99:8.2f} ms, "
            f"{result.throughput_rps:8.1f} requests/s, client {result.client_cpu_ratio:.0%} of a core"
        )
        figures = {"p50_ms": latency.p50, "p99_ms": latency.p99, "rps": result.throughput_rps, "cpu": result.client_cpu_ratio}
        before = f"{name}_" if name else ""
        return {f"{before}{figure}_{num_clients}": value for figure, value in figures.items()}

    def log(self, text: str) -> None:
        """Reports progress."""
        log(f"round {self._number}  {self.system:<21} {text}")


Measure: TypeAlias = Callable[[Turn], Mapping[str, float]]
"""Puts all loads on a running system."""


def take_turns(systems: Mapping[str, System], num_rounds: int, terms: Terms, measure: Measure) -> Rounds:
    """Starts and measures each system once in every round.

    Raises:
        BenchmarkError: If a server does not start, or answers wrongly.
    """
    rounds: dict[str, list[Figures]] = {name: [] for name in systems}
    for number in range(1, num_rounds + 1):
        for name, system in systems.items():
            began_s = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
                environment = {"XDG_STATE_HOME": str(Path(folder) / "state"), **system.environment}
                with serving(system.command, environment) as (address, _):
                    turn = Turn(name, number, address, terms)
                    turn.log(f"ready after {time.monotonic() - began_s:.1f} s")
                    rounds[name].append(measure(turn))
    return rounds


def medians(rounds: Iterable[Figures]) -> dict[str, float]:
    """Returns the median of each figure over the rounds."""
    values: dict[str, list[float]] = {}
    for figures in rounds:
        for name, value in figures.items():
            values.setdefault(name, []).append(value)
    return {name: round(statistics.median(numbers), 3) for name, numbers in values.items()}


def without_cpu(figures: Figures) -> dict[str, float]:
    """Returns the figures without the clients' own use of the processor."""
    return {name: value for name, value in figures.items() if "cpu_" not in name}


def main(
    about: str | None,
    systems: Mapping[str, System],
    measure: Measure,
    summarize: Callable[[Rounds], Mapping[str, object]],
    *,
    duration_s: float,
    by_default: Sequence[str] = (),
) -> None:
    """Runs the benchmark that the command line asks for, and prints its summary: one JSON object, the last line of stdout.

    Args:
        duration_s: The default duration of a load.
        by_default: The systems to measure unless others are asked for; all if empty.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default=",".join(by_default or systems), help=f"some of {','.join(systems)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up-s", type=float, default=1.5)
    parser.add_argument("--duration-s", type=float, default=duration_s)
    parser.add_argument("--raw", type=output_file, help="write the figures of all rounds to this JSON file")
    options = parser.parse_args()
    names = options.systems.split(",")
    if unknown := set(names) - set(systems):
        parser.error(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(systems)}")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # an exception, so that the server is stopped
    terms = Terms(warm_up_s=options.warm_up_s, duration_s=options.duration_s)
    try:
        rounds = take_turns({name: systems[name] for name in names}, options.rounds, terms, measure)
    except (BenchmarkError, WorkerFailedError, OSError) as error:
        sys.exit(f"error: {error}")
    if options.raw is not None:
        options.raw.write_text(json.dumps(rounds, indent=1) + "\n")
    print(json.dumps(summarize(rounds)))


def dyorc(target: str, *options: str, **environment: str) -> System:
    """Returns how to start DyOrc with ``app.py:workflow`` on a free port."""
    command = [sys.executable, "-m", "dyorc.cli.main", "serve", target, "--port", "0", *options]
    return System(command=command, environment=environment)


def dyorc_modes(target: str) -> dict[str, System]:
    """Returns how to start each mode of DyOrc: replicas on Ray, one cell, two cells."""
    return {
        "dyorc": dyorc(target),
        "dyorc_cell": dyorc(target, "--in-process"),
        "dyorc_cells_2": dyorc(target, "--in-process", "--cells", "2"),
    }


def is_dyorc(system: str) -> bool:
    """Returns whether a system is one of these."""
    return system.startswith("dyorc")


def best_of(figure: str, systems: Mapping[str, Figures]) -> str | None:
    """Returns the system with the best value of a figure: the most requests per second, the least of everything else."""
    having = [name for name in systems if figure in systems[name]]
    choose = max if "rps" in figure else min
    return choose(having, key=lambda name: systems[name][figure]) if having else None


def log(text: str) -> None:
    """Prints progress."""
    print(text, file=sys.stderr, flush=True)
