"""Made-up tables of the benchmark."""

from __future__ import annotations

from functools import cache
from typing import Any

from benchmarks.table.records import LOADS, Cannot, Cell, Highest, OracleRecord, Table, WorkloadRecord
from tests.unit.loadgen.made_results import histogram, latencies

RATES = {"low": 50.0, "medium": 100.0, "high": 200.0}


def workload(name: str = "cascade", **changes: Any) -> WorkloadRecord:
    facts: dict[str, Any] = {
        "summary": "a small net, then a large one",
        "is_dynamic": True,
        "slo_ms": 25.0,
        "rates": RATES,
        "oracle": {
            load: OracleRecord(p50_ms=p50_ms, p99_ms=2 * p50_ms, device_ms_per_request=1.0)
            for load, p50_ms in zip(LOADS, (2.0, 4.0, 6.0), strict=True)
        },
        "costs": {"small": [(1, 0.2), (8, 0.5)]},
        "num_requests_in_pool": 64,
    }
    return WorkloadRecord(name=name, **(facts | changes))


def cell(system: str, p50_ms: float, p99_ms: float, *, name: str = "cascade", load: str = "low", **changes: Any) -> Cell:
    facts: dict[str, Any] = {
        "rate_rps": RATES[load],
        "num_requests": 1000,
        "goodput_ratio": 1.0,
        "goodput_rps": RATES[load],
        "device_ms_per_request": 1.1,
        "p50_vs_oracle": p50_ms / 4,
        "p99_vs_oracle": p99_ms / 8,
        "batch_sizes": {"small": {"1": 10, "4": 5}},
        "histogram": histogram(latencies(500, median_ms=p50_ms)),
    }
    return Cell(workload=name, system=system, load=load, p50_ms=p50_ms, p99_ms=p99_ms, **(facts | changes))


def table(**changes: Any) -> Table:
    """Makes a table in which DyOrc is ahead of its two peers everywhere, and near the oracle."""
    figures = {"dyorc": (4.4, 9.0), "ray": (12.0, 30.0), "triton": (6.0, 14.0)}
    facts: dict[str, Any] = {
        "kind": "quick",
        "started_at": "2026-01-02T03:04:05+00:00",
        "took_s": 600.0,
        "machine": {"processor": "a processor", "cores": 2},
        "versions": {"dyorc": "0.1.0", "ray": "2.60", "triton": "2.51"},
        "commit": "abc123",
        "workloads": [workload()],
        "cells": [cell(system, *both, load=load) for load in LOADS for system, both in figures.items()],
        "highest": [
            Highest(workload="cascade", system="dyorc", rps=900.0),
            Highest(workload="cascade", system="ray", rps=150.0),
            Highest(workload="cascade", system="triton", rps=400.0),
        ],
        "cannot": [],
        "notes": {"ray": "throughput mode"},
    }
    return Table(**(facts | changes))


@cache
def large_table() -> Table:
    """Makes a table as large as a real one, with every kind of value."""
    names = ("cascade", "ocr", "guarded", "router", "loop", "chain", "fanout")
    systems = {"dyorc": 1.0, "ray": 3.0, "bentoml": 2.2, "litserve": 2.0, "mosec": 1.6, "triton": 1.2}
    cells: list[Cell] = []
    highest: list[Highest] = []
    for number, name in enumerate(names):
        for at, (system, slower) in enumerate(systems.items()):
            if (name, system) == ("loop", "mosec"):
                continue
            slower = 0.8 if (name, system) == ("chain", "triton") else slower
            rps = round(1000 / (number + 1) / slower, 1)
            highest.append(
                Highest(workload=name, system=system, rps=rps, limited_by_client=(name, system) == ("cascade", "dyorc"))
            )
            for step, load in enumerate(LOADS):
                is_slow = system == "ray" and load == "high"
                cells.append(
                    cell(
                        system,
                        4.2 * slower * (1 + step / 2) * (20 if is_slow else 1),
                        9.0 * slower * (1 + step) * (20 if is_slow else 1),
                        name=name,
                        load=load,
                        goodput_ratio=0.2 if is_slow else 0.999,
                        failed=at if is_slow else 0,
                        p50s_ms=[4.2 * slower, 4.3 * slower],
                        p99s_ms=[9.0 * slower, 9.9 * slower],
                        is_client_limited=(name, system, load) == ("cascade", "dyorc", "high"),
                        speculation={"committed": 300, "wasted": 20} if system == "dyorc" else {},
                        batch_sizes={"small": {"1": 100, "4": 50, "16": 10 * at}, "large": {"1": 30, "8": 10}},
                    )
                )
    cannot = [Cannot(workload="loop", system="mosec", reason="a pipeline of stages has no way back <b>")]
    return table(
        workloads=[workload(name, is_dynamic=name != "chain") for name in names], cells=cells, highest=highest, cannot=cannot
    )
