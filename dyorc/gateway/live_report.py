"""What the live page shows of the whole server, put together from the reports of its processes. Plain values, no I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec

from dyorc.engine.estimators import LATENCY_BOUNDS_NS
from dyorc.gateway.server_view import add_up_reports
from dyorc.gateway.tenants import Tenant
from dyorc.models.status import ProgramStatus
from dyorc.telemetry.levels import Levels, ProgramLevels, WorkflowLevels, sum_of, sums
from dyorc.telemetry.series import quantile_ms

Rates = dict[str, dict[str, float]]
"""Rates of now, by name and column."""


class BatchCounts(msgspec.Struct, kw_only=True):
    """Batches of one size: how many have run so far, and how long they were in the program's code, in nanoseconds."""

    count: int = 0
    infer_ns: int = 0


ByProgram = dict[str, dict[int, BatchCounts]]
"""Batches of each program, by size."""


class RetainedCounts(msgspec.Struct, kw_only=True):
    """What a process has counted so far; it must not be lost with the process."""

    levels: Levels = Levels()
    batches: ByProgram = {}
    refused: dict[str, int] = {}


class CellReport(msgspec.Struct, kw_only=True):
    """The report of one process.

    Attributes:
        levels: What it is doing now.
        in_flight: Its requests.
        programs: Its rates, by program.
        workflows: The same by workflow.
        latencies: By workflow, how many requests were answered lately, in buckets of their durations.
        tenants: What each tenant has in flight there: requests, and bytes of their bodies.
        batches: By program and size.
        jobs: The state of its jobs.
        refused: How many requests it has refused so far, by the model that they asked for.
    """

    pid: int
    levels: Levels
    in_flight: int = 0
    programs: Rates
    workflows: Rates
    latencies: dict[str, list[int]] = {}
    tenants: dict[str, tuple[int, int]]
    batches: ByProgram = {}
    jobs: dict[str, Any] = {}
    refused: dict[str, int] = {}

    def counted(self) -> RetainedCounts:
        return RetainedCounts(levels=self.levels.totals(), batches=self.batches, refused=self.refused)

    def without_backend(self) -> "CellReport":
        """Returns it without the figures of the backend, which the other processes share and report too."""
        return msgspec.structs.replace(
            self, levels=Levels(programs={}, workflows={}), programs={}, workflows={}, latencies={}, batches={}
        )


class Snapshot(msgspec.Struct, kw_only=True):
    """The whole server at one moment."""

    at_s: float
    workflows: dict[str, dict[str, Any]]
    programs: dict[str, dict[str, Any]]
    tenants: dict[str, dict[str, int]]
    jobs: dict[str, Any]
    cells: list[dict[str, Any]]
    link: dict[str, int]

    def of_tenant(self, tenant: Tenant) -> "Snapshot":
        """Returns the part that a tenant may see: its models, and what it has in flight. A key that may manage sees all."""
        if tenant.may_manage:
            return self
        return Snapshot(
            at_s=self.at_s,
            workflows={name: values for name, values in self.workflows.items() if tenant.may_use(name)},
            programs={name: values for name, values in self.programs.items() if tenant.may_use(name)},
            tenants={name: values for name, values in self.tenants.items() if name == tenant.name},
            jobs={},
            cells=[],
            link={},
        )


def snapshot_of(
    at_s: float,
    cells: Mapping[int, CellReport],
    missing: Mapping[int, RetainedCounts],
    status: Mapping[str, ProgramStatus],
    workflows: Iterable[str],
) -> Snapshot:
    """Puts the reports of processes together.

    Args:
        cells: By number.
        missing: By number, what cells that did not answer, and their predecessors, had counted.
        status: The programs' replicas in all of them.
        workflows: Shown even if they have not had a request yet.
    """
    reports = [*cells.values(), *missing.values()]
    levels = sum_of(report.levels for report in reports)
    batches = sum_batches(report.batches for report in reports)
    refused = sum((Counter(report.refused) for report in reports), Counter[str]())
    rates = _sum_rates([cell.programs for cell in cells.values()]), _sum_rates([cell.workflows for cell in cells.values()])
    return Snapshot(
        at_s=at_s,
        programs={
            name: _program(levels.programs.get(name, ProgramLevels()), batches.get(name, {}), program, rates[0].get(name, {}))
            for name, program in status.items()
        },
        workflows=_workflows(
            levels, workflows, rates[1], reduce(_sum_latencies, (cell.latencies for cell in cells.values())), refused
        ),
        tenants=_tenants(cells.values()),
        jobs=add_up_reports([cell.jobs for cell in cells.values()]),
        cells=_cells(cells, missing),
        link=levels.link,
    )


def _sum_latencies(first: dict[str, list[int]], second: dict[str, list[int]]) -> dict[str, list[int]]:
    return {name: sums(first.get(name, []), second.get(name, [])) for name in first | second}


def _workflows(
    levels: Levels, workflows: Iterable[str], rates: Rates, latencies: Mapping[str, list[int]], refused: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    values: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys([*workflows, *levels.workflows]):
        workflow = levels.workflows.get(name, WorkflowLevels())
        rate = rates.get(name, {})
        values[name] = {
            "requests_total": workflow.num_ended,
            "failed_total": workflow.num_failed,
            "refused_total": refused.get(name, 0),
            "requests_per_s": round(rate.get("requests_per_s", 0.0), 3),
            "failed_per_s": round(rate.get("failed_per_s", 0.0), 3),
            "p50_ms": quantile_ms(LATENCY_BOUNDS_NS, latencies.get(name, ()), 0.5),
            "p99_ms": quantile_ms(LATENCY_BOUNDS_NS, latencies.get(name, ()), 0.99),
            "in_flight": workflow.in_flight,
        }
    return values


def _program(
    levels: ProgramLevels, batches: Mapping[int, BatchCounts], status: ProgramStatus, rate: Mapping[str, float]
) -> dict[str, Any]:
    base_ms, per_call_ms = (None, None) if levels.fit is None else (round(part * 1e3, 4) for part in levels.fit)
    return {
        "state": status.state.value,
        "error": status.error or None,
        "replicas": [{"id": name, **replica.as_report()} for name, replica in status.replicas.items()],
        "num_wanted": levels.num_wanted,
        "num_parked_wanted": levels.num_parked_wanted,
        "reason": levels.reason,
        "forecast_per_s": None if levels.forecast_per_s is None else round(levels.forecast_per_s, 3),
        "num_queued": levels.num_queued,
        "num_running": levels.num_running,
        "calls_total": levels.num_calls,
        "calls_per_s": round(rate.get("calls_per_s", 0.0), 3),
        "batches_total": sum(levels.reasons.values()),
        "batch_sizes": {size: counts.count for size, counts in batches.items()},
        "latency_fit": {
            "base_ms": base_ms,
            "per_call_ms": per_call_ms,
            "points": [
                [size, round(counts.infer_ns / counts.count / 1e6, 4)] for size, counts in batches.items() if counts.count
            ],
        },
        "form_reasons": levels.reasons,
        "num_guesses": levels.guesses.num_made,
        "num_committed": levels.guesses.num_committed,
        "num_squashed": levels.guesses.num_squashed,
        "useful_s": round(levels.guesses.useful_s, 6),
        "wasted_s": round(levels.guesses.wasted_s, 6),
    }


def sum_batches(each: Iterable[ByProgram]) -> ByProgram:
    """Returns the batches of several processes together, in the order of their sizes."""
    totals: ByProgram = {}
    for batches in each:
        for program, by_size in batches.items():
            mine = totals.setdefault(program, {})
            for size, counts in by_size.items():
                before = mine.get(size, BatchCounts())
                mine[size] = BatchCounts(count=before.count + counts.count, infer_ns=before.infer_ns + counts.infer_ns)
    return {program: dict(sorted(by_size.items())) for program, by_size in totals.items()}


def _tenants(cells: Iterable[CellReport]) -> dict[str, dict[str, int]]:
    num_requests, num_bytes = Counter[str](), Counter[str]()
    for cell in cells:
        for name, (requests, size) in cell.tenants.items():
            num_requests[name] += requests
            num_bytes[name] += size
    return {name: {"in_flight": number, "in_flight_bytes": num_bytes[name]} for name, number in num_requests.most_common()}


def _cells(cells: Mapping[int, CellReport], missing: Iterable[int]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = [
        {"cell": number, "pid": report.pid, "in_flight": report.in_flight} for number, report in cells.items()
    ]
    entries += [{"cell": number, "pid": None, "in_flight": None} for number in missing]
    return sorted(entries, key=lambda cell: cell["cell"])


def _sum_rates(rates: Sequence[Rates]) -> Rates:
    totals: dict[str, Counter[str]] = {}
    for process_rates in rates:
        for name, values in process_rates.items():
            totals.setdefault(name, Counter()).update(values)
    return {name: dict(values) for name, values in totals.items()}
