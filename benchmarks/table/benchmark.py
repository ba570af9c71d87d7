"""Measures systems on workloads: starts all of them, and lets them take turns of a few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from benchmarks.devices.predict import device_kept, predicted
from benchmarks.devices.recording import recordings
from benchmarks.devices.times import on_devices
from benchmarks.oracle.line import OracleLine, oracle_line
from benchmarks.serving import BenchmarkError
from benchmarks.table.cells import cell_of
from benchmarks.table.measure import Bench, started
from benchmarks.table.plans import Plan
from benchmarks.table.pools import pool_file
from benchmarks.table.rates import rates_of, read_rates, reference_rps
from benchmarks.table.records import OUR_MODES, Cannot, Cell, Highest, WorkloadRecord
from benchmarks.table.rounds import Runs, interleaved
from benchmarks.table.speed import Speed, speed
from benchmarks.table.stage import Stage
from benchmarks.table.staircase import Bounds, climbed
from benchmarks.table.systems import System
from benchmarks.workloads.base import Workload
from loadgen.errors import WorkerFailedError
from loadgen.pool import Pool
from loadgen.results import RunResult

_START, _MIN, _MAX = 0.5, 0.03, 64.0
"""Where the search for the highest rate starts, and its bounds: fractions of the rate that a few clients reach in a closed
loop."""
_MIN_PROBE_REQUESTS = 5
_ERRORS = (BenchmarkError, WorkerFailedError, RuntimeError, OSError)


@dataclass
class Found:
    """What has been measured so far."""

    cells: list[Cell] = field(default_factory=list[Cell])
    records: list[WorkloadRecord] = field(default_factory=list[WorkloadRecord])
    highest: list[Highest] = field(default_factory=list[Highest])
    cannot: list[Cannot] = field(default_factory=list[Cannot])
    failures: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, kw_only=True)
class Case:
    """One workload, as all systems get it.

    Attributes:
        recordings: The folder with the results of its programs, if they run on emulated accelerators.
        pool_path: The file of `pool`.
    """

    workload: Workload
    pool: Pool
    pool_path: Path
    recordings: Path | None = None

    @classmethod
    def of(cls, workload: Workload, has_devices: bool) -> Case:
        """Returns the case of a workload, with models on the processor or with emulated accelerators."""
        if not has_devices:
            path = pool_file(workload.name)
            return cls(workload=workload, pool=Pool.load(path), pool_path=path)
        folder = recordings(workload.name)
        path = folder / "requests.npz"
        slower = replace(workload, slo_s=on_devices(workload.name).slo_s)
        return cls(workload=slower, pool=Pool.load(path), pool_path=path, recordings=folder)


class Benchmark:
    """One run of the benchmark."""

    def __init__(self, plan: Plan, systems: Sequence[System], workloads: Sequence[Workload], *, has_devices: bool) -> None:
        self._plan = plan
        self._systems = systems
        self._workloads = workloads
        self._has_devices = has_devices
        self.found = Found()

    def run(self) -> Iterator[Found]:
        """Measures everything; yields what has been found after each workload."""
        began_s = time.monotonic()
        for number, workload in enumerate(self._workloads, 1):
            try:
                self._measure(Case.of(workload, self._has_devices))
            except BenchmarkError as error:
                self.found.failures.append(f"{workload.name}: {error}")
                log(f"FAILED  {self.found.failures[-1]}")
            taken_s = time.monotonic() - began_s
            left_s = taken_s / number * (len(self._workloads) - number)
            log(f"[{number}/{len(self._workloads)} workloads, {taken_s / 60:.0f} min, {left_s / 60:.0f} min left]")
            yield self.found

    def _measure(self, case: Case) -> None:
        name = case.workload.name
        able = [system for system in self._systems if name not in system.cannot]
        self.found.cannot += [
            Cannot(workload=name, system=system.name, reason=system.cannot[name])
            for system in self._systems
            if name in system.cannot
        ]
        with ExitStack() as stack:
            turns = Turns(case, self._plan, self.found.failures)
            for system in able:
                turns.start(system, stack)
            highest = turns.highest() if self._plan.finds_highest else []
            self.found.highest += highest
            if not self._plan.has_rounds:
                return
            reference = reference_rps([rate.rps for rate in highest]) or read_rates(on_devices=self._has_devices)[name]
            rates = rates_of(reference)
            measured = {load: turns.rounds(load, rate_rps) for load, rate_rps in rates.items()}
        line = oracle_line(name, case.pool_path, rates, self._plan.num_oracle_requests, on_devices=self._has_devices)
        self.found.records.append(_record(case, rates, line))
        for load, runs in measured.items():
            self.found.cells += _cells(case, load, runs, line, turns.speeds)


class Turns:
    """The systems that run a workload, each of which has the processor when it is its turn.

    Attributes:
        speeds: The machine's speed right before each run, by load, system and round.
    """

    def __init__(self, case: Case, plan: Plan, failures: list[str]) -> None:
        self._case = case
        self._plan = plan
        self._failures = failures
        self._stage = Stage()
        self._benches: dict[str, Bench] = {}
        self._reached_rps: dict[str, float] = {}
        self.speeds: dict[tuple[str, str, int], Speed] = {}

    def start(self, system: System, stack: ExitStack) -> None:
        """Starts a system, and tries it; it runs until the stack is left. If it fails, the others go on."""
        case, began_s = self._case, time.monotonic()
        with ExitStack() as own:
            try:
                bench = own.enter_context(started(system, case.workload, case.pool, case.recordings))
                ready_s = time.monotonic() - began_s
                with self._stage.alone(bench):
                    self._reached_rps[system.name] = bench.warm_up()
            except _ERRORS as error:
                self._failed(system.name, error)
                return
            own.enter_context(self._stage.on_stage(bench))
            self._benches[system.name] = bench
            stack.push(own.pop_all())
        log(f"{case.workload.name:<8} {system.name:<16} ready after {ready_s:.1f} s")

    def highest(self) -> list[Highest]:
        """Returns the highest rate within the SLO of each system."""
        terms, workload = self._plan.terms, self._case.workload

        def probe(system: str, turn: int, rate_rps: float) -> RunResult | None:
            load = terms.probe(rate_rps, workload.slo_s, seed=turn)
            result = self._alone(system, lambda bench: bench.run(load))
            if result is not None:
                log(f"{workload.name:<8} turn   {turn + 1:<2}       {system:<16} {_figures(result)}")
            return result

        staircases = climbed({system: self._bounds(reached_rps) for system, reached_rps in self._reached_rps.items()}, probe)
        for system, steps in staircases.items():
            log(f"{workload.name:<8} {system:<16} {steps.highest_rps:,.1f} requests/s within {workload.slo_s * 1e3:.0f} ms")
        return [
            Highest(
                workload=workload.name,
                system=system,
                rps=steps.highest_rps,
                rates_rps=steps.rates_rps,
                limited_by_client=steps.is_client_limited,
            )
            for system, steps in staircases.items()
        ]

    def rounds(self, load: str, rate_rps: float) -> Runs:
        """Returns the runs of all systems under a load."""
        terms, slo_s = self._plan.terms, self._case.workload.slo_s

        def measure(system: str, number: int) -> RunResult | None:
            def run(bench: Bench) -> RunResult:
                self.speeds[load, system, number] = speed()
                return bench.run(terms.load(rate_rps, slo_s, seed=number))

            result = self._alone(system, run)
            if result is not None:
                log(f"{self._case.workload.name:<8} {load:<6} round {number + 1}  {system:<16} {_figures(result)}")
            return result

        systems = list(self._benches)
        return interleaved(systems, [name for name in systems if name in OUR_MODES], self._plan.rule, measure)

    def _alone(self, system: str, run: Callable[[Bench], RunResult]) -> RunResult | None:
        """Measures a system while all others are stopped. None if it fails; then it is left out from then on."""
        bench = self._benches[system]
        try:
            with self._stage.alone(bench):
                return run(bench)
        except _ERRORS as error:
            self._failed(system, error)
            del self._benches[system]
            return None

    def _bounds(self, reached_rps: float) -> Bounds:
        start_rps = _START * reached_rps
        least_rps = max(_MIN * reached_rps, _MIN_PROBE_REQUESTS / self._plan.terms.max_duration_s)
        return Bounds(start_rps=start_rps, min_rps=min(start_rps, least_rps), max_rps=_MAX * reached_rps)

    def _failed(self, system: str, error: Exception) -> None:
        self._failures.append(f"{self._case.workload.name}, {system}: {error}")
        log(f"FAILED  {self._failures[-1]}")


def _cells(case: Case, load: str, runs: Runs, line: OracleLine, speeds: Mapping[tuple[str, str, int], Speed]) -> Iterator[Cell]:
    for system, rounds in runs.items():
        if not rounds:
            continue
        of_rounds = {number: speeds[load, system, number] for number in rounds}
        cell = cell_of(case.workload.name, load, rounds, line.bounds.get(load), of_rounds)
        if case.recordings is not None:
            cell = structs.replace(cell, device_kept=device_kept(rounds, on_devices(case.workload.name).times))
            if system in OUR_MODES:
                p50_ms, p99_ms = predicted(case.workload.name, case.recordings, rounds)
                cell = structs.replace(cell, predicted_p50_ms=p50_ms, predicted_p99_ms=p99_ms)
        yield cell


def _record(case: Case, rates: dict[str, float], line: OracleLine) -> WorkloadRecord:
    chosen = case.workload
    return WorkloadRecord(
        name=chosen.name,
        summary=chosen.summary,
        is_dynamic=chosen.is_dynamic,
        slo_ms=chosen.slo_s * 1e3,
        rates=rates,
        oracle=line.bounds,
        costs=line.costs_ms,
        num_requests_in_pool=len(case.pool.inputs),
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


def log(text: str) -> None:
    """Reports progress."""
    print(text, file=sys.stderr, flush=True)
