"""The result of a benchmark: one table, written as JSON. Latencies (`_ms`) are in milliseconds, all other durations in
seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

SCHEMA = 1
LOADS = ("low", "medium", "high")
OURS = "dyorc"
"""The name of the system that is compared with the others: DyOrc with replicas on Ray."""
OUR_CELL = "dyorc_cell"
"""The same in one process, without Ray (``dyorc serve --in-process``)."""
OUR_MODES = (OURS, OUR_CELL)
ORACLE = "oracle"
"""Not a system, but the best that a scheduler could do if it knew everything. Its figures are in `WorkloadRecord.oracle`."""


class OracleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What an oracle that knows every outcome in advance would reach under one load."""

    p50_ms: float
    p99_ms: float
    device_ms_per_request: float


class WorkloadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A workload as it was run.

    Attributes:
        rates: Requests per second, by load.
        oracle: The oracle's figures, by load.
        costs: For each program, batch sizes and how long such a batch takes alone, in milliseconds.
        commit: The measured commit, if it differs from the table's.
    """

    name: str
    summary: str
    is_dynamic: bool
    slo_ms: float
    rates: dict[str, float]
    oracle: dict[str, OracleRecord] = {}
    costs: dict[str, list[tuple[int, float]]] = {}
    num_requests_in_pool: int = 0
    commit: str = ""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One system on one workload under one load.

    Attributes:
        num_requests: Planned, over all rounds.
        p50_ms, p99_ms: Medians over the rounds.
        p50s_ms, p99s_ms: The figures of each round, in order.
        rounds: The numbers of these rounds, by which systems are paired; empty in older tables.
        python_ms, blas_ms: How long fixed work took right before each of them, as a measure of the machine's speed.
        predicted_p50_ms, predicted_p99_ms: What the simulator says of DyOrc, where programs run on emulated accelerators.
        device_kept: There also: the time that devices were occupied, relative to T(n).
        goodput_ratio, goodput_rps: Correct answers in time, as a fraction of all planned requests and per second.
        device_ms_per_request: Time in programs, per request; None where it could not be counted.
        p50_vs_oracle, p99_vs_oracle: Ratios; None where there is no oracle.
        wrong, failed, unanswered: Requests, over all rounds.
        is_client_limited: Whether the generator warned, in any round, that it may itself have been the limit.
        batch_sizes: For each program, how many batches had which size (as a string, since JSON keys are strings).
        speculation: Counts of guesses, by name.
        histogram: Latencies of all rounds in microseconds, an HDR histogram in its text form; empty if not kept.
    """

    workload: str
    system: str
    load: str
    rate_rps: float
    num_requests: int
    p50_ms: float
    p99_ms: float
    p50s_ms: list[float] = []
    p99s_ms: list[float] = []
    rounds: list[int] = []
    python_ms: list[float] = []
    blas_ms: list[float] = []
    predicted_p50_ms: float | None = None
    predicted_p99_ms: float | None = None
    device_kept: float | None = None
    goodput_ratio: float
    goodput_rps: float
    device_ms_per_request: float | None = None
    p50_vs_oracle: float | None = None
    p99_vs_oracle: float | None = None
    wrong: int = 0
    failed: int = 0
    unanswered: int = 0
    is_client_limited: bool = False
    batch_sizes: dict[str, dict[str, int]] = {}
    speculation: dict[str, float] = {}
    histogram: str = ""


class Highest(msgspec.Struct, frozen=True, kw_only=True):
    """The highest rate at which a system meets the workload's SLO.

    Attributes:
        rps: 0 if it meets it at none.
        rates_rps: The rates about which the search moved in its last turns; empty if it met the SLO in none of them.
        commit: The measured commit, if it differs from that of the workload's other figures.
    """

    workload: str
    system: str
    rps: float
    rates_rps: list[float] = []
    limited_by_client: bool = False
    commit: str = ""


class Cannot(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that a system cannot express, and why."""

    workload: str
    system: str
    reason: str


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the benchmark.

    Attributes:
        kind: "quick" or "full".
        on_devices: Whether the programs ran on emulated accelerators.
        started_at: ISO 8601, UTC.
        machine: As in `loadgen.results.RunResult`.
        versions: The version of each system.
        notes: How each system is configured.
    """

    schema: int = SCHEMA
    kind: str
    on_devices: bool = False
    started_at: str
    took_s: float
    machine: dict[str, Any]
    versions: dict[str, str]
    commit: str
    workloads: list[WorkloadRecord]
    cells: list[Cell]
    highest: list[Highest] = []
    cannot: list[Cannot] = []
    notes: dict[str, str] = {}


def with_workloads(table: Table, others: Table) -> Table:
    """Returns a table with the workloads added that only the other one has, in the other one's order.

    A table may have only the highest rates of a workload; then the other one's figures at fixed rates are kept.
    """
    ours = {record.name: record for record in table.workloads}
    measured = {rate.workload for rate in table.highest} | ours.keys()
    named = {record.name for record in others.workloads}

    def added(record: WorkloadRecord) -> WorkloadRecord:
        was_at = record.commit or others.commit
        return msgspec.structs.replace(record, commit="" if was_at == table.commit else was_at)

    return msgspec.structs.replace(
        table,
        workloads=[ours.get(record.name) or added(record) for record in others.workloads]
        + [record for record in table.workloads if record.name not in named],
        cells=table.cells + [cell for cell in others.cells if cell.workload not in ours],
        highest=[rate if rate.workload in ours else msgspec.structs.replace(rate, commit=table.commit) for rate in table.highest]
        + [rate for rate in others.highest if rate.workload not in measured],
        cannot=table.cannot + [rate for rate in others.cannot if rate.workload not in ours],
        versions=others.versions | table.versions,
        notes=others.notes | table.notes,
        took_s=table.took_s + others.took_s,
    )


def read_table(path: Path) -> Table:
    """Reads a table file.

    Raises:
        ValueError: If the file is not a table, or has a different schema.
    """
    try:
        table = msgspec.json.decode(path.read_bytes(), type=Table)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is not a table of the benchmark: {error}") from error
    if table.schema != SCHEMA:
        raise ValueError(f"{path} has schema {table.schema}, expected {SCHEMA}")
    return table


def write_table(table: Table, path: Path) -> None:
    """Writes a table file, indented, since it is kept in the repository."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n")
