"""Measures every system on every workload under low, medium and high load, and writes the table.

    python -m benchmarks [--kind quick|full] [--workloads cascade,loop] [--systems dyorc,triton] [--out FOLDER]

The systems take turns (A B A B ...), one server at a time, in several rounds, so that drift of the machine affects all of them
alike; each is stopped before the next one starts. Every answer is compared with the reference's. For each workload, ``full``
first searches for the highest rate at which each system meets the SLO, and derives the loads from it. The table is written after
each workload; ``--add`` keeps the other workloads that it already holds. Progress goes to stderr; the last line of stdout is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.oracle.line import OracleLine, oracle_line
from benchmarks.serving import ROOT, BenchmarkError
from benchmarks.table.cells import cell_of
from benchmarks.table.html_page import html_page
from benchmarks.table.measure import Bench, Terms, started
from benchmarks.table.page import page
from benchmarks.table.pools import pool_file
from benchmarks.table.rates import rates_of, read_rates, reference_rps
from benchmarks.table.reasons import REASONS, read_reasons
from benchmarks.table.records import OURS, Cannot, Cell, Highest, Table, WorkloadRecord, read_table, with_workloads, write_table
from benchmarks.table.systems import SYSTEMS, System
from benchmarks.workloads import NAMES, workload
from benchmarks.workloads.base import Workload
from loadgen.machine import commit, machine
from loadgen.pool import Pool
from loadgen.results import RunResult
from loadgen.sweep import sweep

_SWEEP_START, _SWEEP_MIN, _SWEEP_MAX = 0.5, 0.03, 64.0
"""Where the search for the highest rate starts, and its bounds: fractions of the rate that a few clients reach in a closed
loop."""
_PRECISION = 0.1
_MIN_PROBE_REQUESTS = 5


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How thorough a run of the benchmark is.

    Attributes:
        finds_highest: Whether to search for each system's highest rate within the SLO, and to derive the loads from it. If not,
            they are derived from a rate that is known.
        num_oracle_requests: With how many requests the oracle's line is simulated at each load.
        systems: The systems to measure, unless others are asked for.
    """

    terms: Terms
    num_rounds: int
    finds_highest: bool
    systems: Sequence[str] = tuple(SYSTEMS)
    num_oracle_requests: int = 2000


PLANS = {
    "quick": Plan(
        num_rounds=1,
        finds_highest=False,
        systems=("dyorc", "ray_throughput", "triton", "mosec"),
        terms=Terms(duration_s=1.0, max_duration_s=4.0, num_requests=30, probe_s=1.0, warm_up_s=0.3, drain_s=1.0),
        num_oracle_requests=600,
    ),
    "full": Plan(
        num_rounds=2,
        finds_highest=True,
        terms=Terms(duration_s=2.5, max_duration_s=5.0, num_requests=120, probe_s=1.2, drain_s=1.5),
    ),
}
"""``quick``: one peer of each kind (programs composed by a server, by the client, in one process). ``full``: everything."""


@dataclass
class _Found:
    """What has been measured so far."""

    cells: list[Cell] = field(default_factory=list[Cell])
    records: list[WorkloadRecord] = field(default_factory=list[WorkloadRecord])
    highest: list[Highest] = field(default_factory=list[Highest])
    cannot: list[Cannot] = field(default_factory=list[Cannot])
    failures: list[str] = field(default_factory=list[str])


class Benchmark:
    """One run of the benchmark."""

    def __init__(self, plan: Plan, systems: Sequence[System], workloads: Sequence[Workload]) -> None:
        self._plan = plan
        self._systems = systems
        self._workloads = workloads
        self._known_rps = read_rates()
        self._began_s = time.monotonic()
        self._num_done = 0
        self.found = _Found()

    def run(self) -> Iterator[_Found]:
        """Measures everything; yields what has been found after each workload."""
        for one in self._workloads:
            self._measure_workload(one)
            yield self.found

    def _measure_workload(self, chosen: Workload) -> None:
        path = pool_file(chosen.name)
        pool = Pool.load(path)
        able = [system for system in self._systems if chosen.name not in system.cannot]
        self.found.cannot += [
            Cannot(workload=chosen.name, system=system.name, reason=system.cannot[chosen.name])
            for system in self._systems
            if chosen.name in system.cannot
        ]
        highest: list[Highest] = []
        if self._plan.finds_highest:
            for system in able:
                self._turn(system, chosen, pool, "highest rate", lambda bench: highest.append(self._highest(bench, chosen)))
            self.found.highest += highest
        reference = reference_rps([one.rps for one in highest]) or self._known_rps[chosen.name]
        rates = rates_of(reference)
        line = oracle_line(chosen.name, path, rates, self._plan.num_oracle_requests)
        self.found.records.append(_record(chosen, pool, rates, line))
        runs: dict[tuple[str, str], list[RunResult]] = defaultdict(list)
        for round_ in range(self._plan.num_rounds):

            def measure(bench: Bench, seed: int = round_) -> None:
                for load, rate_rps in rates.items():
                    result = bench.run(self._plan.terms.load(rate_rps, chosen.slo_s, seed))
                    runs[bench.system, load].append(result)
                    _log(f"         {load:<6} {_figures(result)}")

            for system in able:
                self._turn(system, chosen, pool, f"round {round_ + 1}", measure)
        for (_, load), results in runs.items():
            self.found.cells.append(cell_of(chosen.name, load, results, line.bounds.get(load)))

    def _turn(self, system: System, chosen: Workload, pool: Pool, name: str, measure: Callable[[Bench], None]) -> None:
        """Starts a system once and measures it. If it fails, the others go on."""
        began_s = time.monotonic()
        try:
            with started(system, chosen, pool) as bench:
                ready_s = time.monotonic() - began_s
                bench.warm_up()
                _log(f"{self._progress()}  {chosen.name:<8} {system.name:<14} {name}  ready after {ready_s:.1f} s")
                measure(bench)
        except (BenchmarkError, RuntimeError, OSError) as error:
            self.found.failures.append(f"{chosen.name}, {system.name}: {error}")
            _log(f"FAILED  {self.found.failures[-1]}")
        self._num_done += 1

    def _highest(self, bench: Bench, chosen: Workload) -> Highest:
        terms, reached_rps = self._plan.terms, bench.warm_up()
        start_rps = _SWEEP_START * reached_rps
        found = sweep(
            lambda rate_rps: bench.run(terms.probe(rate_rps, chosen.slo_s, seed=7)),
            start_rps=start_rps,
            max_rps=_SWEEP_MAX * reached_rps,
            min_rps=min(start_rps, max(_SWEEP_MIN * reached_rps, _MIN_PROBE_REQUESTS / terms.max_duration_s)),
            precision=_PRECISION,
            stop_at_client_limit=False,
        )
        _log(f"         highest rate within {chosen.slo_s * 1e3:.0f} ms: {found.highest_rps:,.1f} requests/s")
        return Highest(
            workload=chosen.name, system=bench.system, rps=found.highest_rps, limited_by_client=found.limited_by_client
        )

    def _progress(self) -> str:
        num_all = len(self._workloads) * len(self._systems) * (self._plan.num_rounds + self._plan.finds_highest)
        taken_s = time.monotonic() - self._began_s
        left = f", {taken_s / self._num_done * (num_all - self._num_done) / 60:.0f} min left" if self._num_done else ""
        return f"[{self._num_done + 1}/{num_all}{left}]"


def _record(chosen: Workload, pool: Pool, rates: dict[str, float], line: OracleLine) -> WorkloadRecord:
    return WorkloadRecord(
        name=chosen.name,
        summary=chosen.summary,
        is_dynamic=chosen.is_dynamic,
        slo_ms=chosen.slo_s * 1e3,
        rates=rates,
        oracle=line.bounds,
        costs=line.costs_ms,
        num_requests_in_pool=len(pool.inputs),
    )


def _figures(result: RunResult) -> str:
    counts = result.counts
    bad = ", ".join(
        f"{number} {name}"
        for name, number in (("wrong", counts.wrong), ("failed", counts.failed), ("unanswered", counts.unanswered))
        if number
    )
    return (
        f"{result.load['rate_rps']:8.1f}/s  p50 {result.latency_ms.p50:8.2f} ms  p99 {result.latency_ms.p99:8.2f} ms  "
        f"in time {result.goodput_ratio:4.0%}  of {counts.planned} requests  {bad}"
        + (f"  (client: {result.client_warning})" if result.client_warning else "")
    )


def _summary(found: _Found) -> dict[str, object]:
    """Returns the last line: for each workload and load, the best peer's p50 and p99 divided by DyOrc's; and DyOrc's highest rate
    divided by the best peer's."""
    ratios: dict[str, dict[str, float]] = {}
    for ours in (cell for cell in found.cells if cell.system == OURS):
        peers = [cell for cell in found.cells if (cell.workload, cell.load) == (ours.workload, ours.load) and cell is not ours]
        if peers:
            ratios[f"{ours.workload}/{ours.load}"] = {
                "p50_ratio": round(min(peer.p50_ms for peer in peers) / ours.p50_ms, 3),
                "p99_ratio": round(min(peer.p99_ms for peer in peers) / ours.p99_ms, 3),
            }
    highest: dict[str, float] = {}
    for ours in (one for one in found.highest if one.system == OURS):
        best = max((one.rps for one in found.highest if one.workload == ours.workload and one is not ours), default=0.0)
        if best:
            highest[ours.workload] = round(ours.rps / best, 3)
    num_bad = sum(cell.wrong + cell.failed for cell in found.cells)
    return {"ratios": ratios, "highest_ratio": highest, "wrong_or_failed": num_bad, "failures": found.failures}


def main() -> None:
    """Runs the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures every system on every workload.")
    parser.add_argument("--kind", choices=sorted(PLANS), default="quick")
    parser.add_argument("--workloads", default=",".join(NAMES), help="some of %(default)s")
    parser.add_argument("--systems", help=f"some of {','.join(SYSTEMS)}; by default all, or one peer of each kind for quick")
    parser.add_argument("--out", type=Path, help="the folder for the results; by default benchmarks/results/KIND")
    parser.add_argument("--add", action="store_true", help="keep the other workloads of the existing table")
    parser.add_argument("--page", type=Path, help="also write this Markdown file")
    arguments = parser.parse_args()
    plan = PLANS[arguments.kind]
    names = arguments.systems.split(",") if arguments.systems else list(plan.systems)
    if unknown := sorted(set(names) - set(SYSTEMS)) + sorted(set(arguments.workloads.split(",")) - set(NAMES)):
        known = f"systems are {', '.join(SYSTEMS)}; workloads are {', '.join(NAMES)}"
        parser.error(f"unknown: {', '.join(unknown)}; {known}")
    systems = [SYSTEMS[name] for name in names]
    if missing := [system.name for system in systems if not system.is_installed()]:
        parser.error(f"not installed: {', '.join(missing)}; `make peers` installs them")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # an exception, so that the server is stopped
    folder = arguments.out or ROOT / "benchmarks" / "results" / arguments.kind
    others = read_table(folder / "table.json") if arguments.add else None
    started_at, began_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    versions = {system.name: f"{system.package} {system.version()}" for system in systems}
    found = _Found()
    for found in Benchmark(plan, systems, [workload(name) for name in arguments.workloads.split(",")]).run():
        table = Table(
            kind=arguments.kind,
            started_at=started_at,
            took_s=round(time.monotonic() - began_s, 1),
            machine=machine(),
            versions=versions,
            commit=commit(),
            workloads=found.records,
            cells=found.cells,
            highest=found.highest,
            cannot=found.cannot,
            notes={system.name: system.note for system in systems},
        )
        _write(with_workloads(table, others) if others else table, folder, arguments.page)
    print(json.dumps(_summary(found)))
    sys.exit(1 if found.failures else 0)


def _write(table: Table, folder: Path, document: Path | None) -> None:
    reasons = read_reasons(REASONS)
    write_table(table, folder / "table.json")
    (folder / "report.html").write_text(html_page(table, reasons), encoding="utf-8")
    if document is not None:
        document.write_text(page(table, reasons), encoding="utf-8")
    _log(f"written: {folder / 'table.json'}, {folder / 'report.html'}{f', {document}' if document else ''}")


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
