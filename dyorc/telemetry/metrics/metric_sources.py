"""Readings from the engine's statistics, from /proc and from the event loop."""

import asyncio
import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from dyorc.engine.engine_statistics import EngineStatistics, ModelRecord
from dyorc.engine.estimators import DURATION_BOUNDS_NS, Histogram
from dyorc.engine.tallies import ModelStatistics
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.metric import Metric
from dyorc.telemetry.metrics.readings import Readings

_S_PER_NS = 1e-9
OK = "ok"
"""The outcome of requests and calls that did not fail."""


def read_statistics(statistics: EngineStatistics, readings: Readings) -> None:
    """Adds the engine's counts of workflows and programs."""
    for name, record in (statistics.retired_workflows | statistics.workflows).items():
        _read_workflow(name, record, readings)
    for name, record in (statistics.retired_programs | statistics.programs).items():
        _read_program(name, record, readings)


def _read_workflow(name: str, record: ModelRecord, readings: Readings) -> None:
    totals = record.totals(0)
    _read_outcomes(catalogue.REQUESTS, name, record, totals, readings)
    readings.add_histogram(catalogue.REQUEST_DURATION, record.latency.over(DURATION_BOUNDS_NS), name, scale=_S_PER_NS)
    for code, number in record.effect_failures.items():
        readings.add(catalogue.EFFECT_FAILURES, number, name, code)
    readings.add(catalogue.WORKFLOW_CALLS, totals.queue.count, name)
    readings.add(catalogue.WORKFLOW_QUEUE, totals.queue.ns * _S_PER_NS, name)
    readings.add(catalogue.WORKFLOW_COMPUTE, totals.compute_infer.ns * _S_PER_NS, name)
    readings.add(catalogue.REPLAYS, record.num_replays, name)
    if (parts := record.parts) is not None:
        readings.add_histogram(catalogue.FIRST_PART, parts.first, name, scale=_S_PER_NS)
        readings.add_histogram(catalogue.BETWEEN_PARTS, parts.between, name, scale=_S_PER_NS)
    guesses = record.guesses
    readings.add(catalogue.WORKFLOW_GUESSES, guesses.num_made, name)
    readings.add(catalogue.WORKFLOW_COMMITTED, guesses.num_committed, name)
    readings.add(catalogue.WORKFLOW_SQUASHED, guesses.num_squashed, name)
    readings.add(catalogue.WORKFLOW_USEFUL, guesses.useful_s, name)
    readings.add(catalogue.WORKFLOW_WASTED, guesses.wasted_s, name)


def _read_program(name: str, record: ModelRecord, readings: Readings) -> None:
    totals = record.totals(0)
    _read_outcomes(catalogue.CALLS, name, record, totals, readings)
    readings.add_histogram(catalogue.CALL_QUEUE, record.waits, name, scale=_S_PER_NS)
    readings.add_histogram(catalogue.BATCH_DURATION, record.latency.over(DURATION_BOUNDS_NS), name, scale=_S_PER_NS)
    readings.add_histogram(catalogue.BATCH_SIZE, record.sizes(catalogue.BATCH_SIZE.bounds), name)
    if record.cost:
        readings.add(catalogue.BATCH_COST, record.cost, name)
    if (parts := record.parts) is not None:
        readings.add_histogram(catalogue.PROGRAM_FIRST_PART, parts.first, name, scale=_S_PER_NS)
        readings.add_histogram(catalogue.PROGRAM_BETWEEN_PARTS, parts.between, name, scale=_S_PER_NS)
    for reason, number in record.reasons.items():
        readings.add(catalogue.BATCHES, number, name, reason.lower())
    tallies = totals.batches.values()
    readings.add(catalogue.BATCH_INPUT, sum(tally.compute_input.ns for tally in tallies) * _S_PER_NS, name)
    readings.add(catalogue.BATCH_INFER, sum(tally.compute_infer.ns for tally in tallies) * _S_PER_NS, name)
    readings.add(catalogue.BATCH_OUTPUT, sum(tally.compute_output.ns for tally in tallies) * _S_PER_NS, name)
    for tier, (num_bytes, took_s) in record.moves.items():
        readings.add(catalogue.MOVED, num_bytes, name, tier)
        readings.add(catalogue.MOVED_TIME, took_s, name, tier)
    guesses, holds = record.guesses, record.holds
    readings.add(catalogue.GUESSES, guesses.num_made, name)
    readings.add(catalogue.GUESSES_COMMITTED, guesses.num_committed, name)
    readings.add(catalogue.GUESSES_SQUASHED, guesses.num_squashed, name)
    readings.add(catalogue.DEVICE_USEFUL, guesses.useful_s, name)
    readings.add(catalogue.DEVICE_WASTED, guesses.wasted_s, name)
    readings.add(catalogue.HELD_BATCHES, holds.num, name)
    readings.add(catalogue.HELD_JOINED, holds.num_joined, name)
    readings.add(catalogue.HELD_TIME, holds.held_ns * _S_PER_NS, name)


def _read_outcomes(metric: Metric, name: str, record: ModelRecord, totals: ModelStatistics, readings: Readings) -> None:
    readings.add(metric, totals.success.count, name, OK)
    for code, number in record.failures.items():
        readings.add(metric, number, name, code)


_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_UTIME, _STIME = 11, 12
"""Places in /proc/PID/stat, counted from behind the command's name, which may hold spaces."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that a process uses."""

    cpu_s: float
    resident_bytes: int
    num_files: int


def usage_of(pid: int) -> Usage | None:
    """Returns the resources that a process uses; None if it is gone, or another user's."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/statm") as file:
            pages = int(file.read().split()[1])
        num_files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    return Usage((int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S, pages * _PAGE_BYTES, num_files)


def read_own(readings: Readings) -> None:
    """Adds the resources that this process uses."""
    usage = usage_of(os.getpid())
    if usage is not None:
        readings.add(catalogue.CPU, usage.cpu_s)
        readings.add(catalogue.MEMORY, usage.resident_bytes)
        readings.add(catalogue.FILES, usage.num_files)
    else:  # no /proc
        readings.add(catalogue.CPU, time.process_time())
    readings.add(catalogue.MAX_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class ReplicaProcesses:
    """The resources that the processes of replicas use. The processor time of ended processes stays counted."""

    def __init__(self) -> None:
        self._cpu_s: dict[str, dict[int, float]] = {}
        self._ended_cpu_s: dict[str, float] = {}

    def read(self, pids: Mapping[str, set[int]], readings: Readings) -> None:
        """Adds the resources that replicas use.

        Args:
            pids: The processes on this machine, by program; this one is left out. Other programs are forgotten.
        """
        for by_program in (self._cpu_s, self._ended_cpu_s):
            for program in by_program.keys() - pids.keys():
                del by_program[program]
        for program in pids:
            usages = {pid: usage for pid in pids[program] - {os.getpid()} if (usage := usage_of(pid)) is not None}
            self._update(program, {pid: usage.cpu_s for pid, usage in usages.items()})
            cpu_s = self._ended_cpu_s.get(program, 0.0) + sum(self._cpu_s[program].values())
            readings.add(catalogue.REPLICA_CPU, cpu_s, program)
            readings.add(catalogue.REPLICA_MEMORY, sum(usage.resident_bytes for usage in usages.values()), program)
            readings.add(catalogue.REPLICA_FILES, sum(usage.num_files for usage in usages.values()), program)

    def _update(self, program: str, cpu_s: dict[int, float]) -> None:
        for pid, last_s in self._cpu_s.get(program, {}).items():
            if cpu_s.get(pid, -1.0) < last_s:  # it has ended, and its number may be another's by now
                self._ended_cpu_s[program] = self._ended_cpu_s.get(program, 0.0) + last_s
        self._cpu_s[program] = cpu_s


_INTERVAL_S = 0.25


class EventLoopLag:
    """Watches the running loop while entered."""

    def __init__(self) -> None:
        self._lags_ns = Histogram()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _INTERVAL_S
            await asyncio.sleep(_INTERVAL_S)
            self._lags_ns.add(max(0, int((loop.time() - due_s) * 1e9)))

    def measure(self, readings: Readings) -> None:
        """Adds what was measured."""
        readings.add_histogram(catalogue.LOOP_LAG, self._lags_ns, scale=1e-9)
