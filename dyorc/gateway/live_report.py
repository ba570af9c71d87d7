"""What the live page shows of the whole server, put together from what its processes say. Plain values, no I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec

from dyorc.engine.estimators import DURATION_BOUNDS_NS
from dyorc.gateway.server_view import added_up
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


class Counted(msgspec.Struct, kw_only=True):
    """What a process has counted so far, which must not be lost with it."""

    levels: Levels = Levels()
    batches: ByProgram = {}
    refused: dict[str, int] = {}


class CellReport(msgspec.Struct, kw_only=True):
    """What one process says of itself.

    Attributes:
        levels: What it is doing now.
        in_flight: Its requests.
        programs: Its rates, by program.
        workflows: The same by workflow.
        latencies: Of each workflow, the requests answered lately by how long they took, in buckets.
        tenants: What each tenant has in flight there: requests, and bytes of their bodies.
        batches: Those of each program, by size.
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

    def counted(self) -> Counted:
        """Returns what it has counted so far."""
        return Counted(levels=self.levels.totals(), batches=self.batches, refused=self.refused)

    def without_backend(self) -> "CellReport":
        """Returns what is its own: the backend that it shares says the same to the others."""
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
            workflows={name: one for name, one in self.workflows.items() if tenant.may_use(name)},
            programs={name: one for name, one in self.programs.items() if tenant.may_use(name)},
            tenants={name: one for name, one in self.tenants.items() if name == tenant.name},
            jobs={},
            cells=[],
            link={},
        )


def snapshot_of(
    at_s: float,
    cells: Mapping[int, CellReport],
    missing: Mapping[int, Counted],
    status: Mapping[str, ProgramStatus],
    workflows: Iterable[str],
) -> Snapshot:
    """Puts together what processes say.

    Args:
        cells: By number.
        missing: The numbers of those that did not answer, and what they, or those before them, had counted.
        status: The programs' replicas in all of them.
        workflows: Those to show even if they have not had a request yet.
    """
    levels = sum_of(one.levels for one in (*cells.values(), *missing.values()))
    batches = together([one.batches for one in (*cells.values(), *missing.values())])
    refused = sum((Counter(one.refused) for one in (*cells.values(), *missing.values())), Counter[str]())
    rates = _added([cell.programs for cell in cells.values()]), _added([cell.workflows for cell in cells.values()])
    return Snapshot(
        at_s=at_s,
        programs={
            name: _program(levels.programs.get(name, ProgramLevels()), batches.get(name, {}), one, rates[0].get(name, {}))
            for name, one in status.items()
        },
        workflows=_workflows(levels, workflows, rates[1], reduce(_joined, (cell.latencies for cell in cells.values())), refused),
        tenants=_tenants(cells.values()),
        jobs=added_up([cell.jobs for cell in cells.values()]),
        cells=_cells(cells, missing),
        link=levels.link,
    )


def _joined(one: dict[str, list[int]], other: dict[str, list[int]]) -> dict[str, list[int]]:
    return {name: sums(one.get(name, []), other.get(name, [])) for name in one | other}


def _workflows(
    levels: Levels, workflows: Iterable[str], rates: Rates, latencies: Mapping[str, list[int]], refused: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys([*workflows, *levels.workflows]):
        one = levels.workflows.get(name, WorkflowLevels())
        rate = rates.get(name, {})
        found[name] = {
            "requests_total": one.num_ended,
            "failed_total": one.num_failed,
            "refused_total": refused.get(name, 0),
            "requests_per_s": round(rate.get("requests_per_s", 0.0), 3),
            "failed_per_s": round(rate.get("failed_per_s", 0.0), 3),
            "p50_ms": quantile_ms(DURATION_BOUNDS_NS, latencies.get(name, ()), 0.5),
            "p99_ms": quantile_ms(DURATION_BOUNDS_NS, latencies.get(name, ()), 0.99),
            "in_flight": one.in_flight,
        }
    return found


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
        "batch_sizes": {size: one.count for size, one in batches.items()},
        "latency_fit": {
            "base_ms": base_ms,
            "per_call_ms": per_call_ms,
            "points": [[size, round(one.infer_ns / one.count / 1e6, 4)] for size, one in batches.items() if one.count],
        },
        "form_reasons": levels.reasons,
        "num_guesses": levels.guesses.num_made,
        "num_committed": levels.guesses.num_committed,
        "num_squashed": levels.guesses.num_squashed,
        "useful_s": round(levels.guesses.useful_s, 6),
        "wasted_s": round(levels.guesses.wasted_s, 6),
    }


def together(each: Iterable[ByProgram]) -> ByProgram:
    """Returns the batches of several processes together, in the order of their sizes."""
    found: ByProgram = {}
    for batches in each:
        for program, by_size in batches.items():
            mine = found.setdefault(program, {})
            for size, one in by_size.items():
                before = mine.get(size, BatchCounts())
                mine[size] = BatchCounts(count=before.count + one.count, infer_ns=before.infer_ns + one.infer_ns)
    return {program: dict(sorted(by_size.items())) for program, by_size in found.items()}


def _tenants(cells: Iterable[CellReport]) -> dict[str, dict[str, int]]:
    num_requests, num_bytes = Counter[str](), Counter[str]()
    for cell in cells:
        for name, (requests, size) in cell.tenants.items():
            num_requests[name] += requests
            num_bytes[name] += size
    return {name: {"in_flight": number, "in_flight_bytes": num_bytes[name]} for name, number in num_requests.most_common()}


def _cells(cells: Mapping[int, CellReport], missing: Iterable[int]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"cell": number, "pid": one.pid, "in_flight": one.in_flight} for number, one in cells.items()]
    found += [{"cell": number, "pid": None, "in_flight": None} for number in missing]
    return sorted(found, key=lambda cell: cell["cell"])


def _added(rates: Sequence[Rates]) -> Rates:
    found: dict[str, Counter[str]] = {}
    for one in rates:
        for name, values in one.items():
            found.setdefault(name, Counter()).update(values)
    return {name: dict(values) for name, values in found.items()}
