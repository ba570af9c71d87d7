"""Measures every system on every workload under low, medium and high load, and writes the table.

    python -m benchmarks [--devices] [--kind quick|full] [--workloads cascade,loop] [--systems dyorc,triton] [--out FOLDER]

All systems of a workload run, but one at a time has the processor (`stage.py`): they take turns of a few seconds, in several
rounds, so that changes of the machine's speed affect all of them alike. Every answer is compared with the reference's. For each
workload, ``full`` first searches for the highest rate at which each system meets the SLO, and derives the loads from it. With
``--devices``, programs run on emulated accelerators (`benchmarks/devices`). The table is written after each workload; ``--add``
keeps the other workloads that it already holds. Progress goes to stderr; the last line of stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.output_paths import output_folder
from benchmarks.serving import ROOT
from benchmarks.table.benchmark import Benchmark, Found, log
from benchmarks.table.html_page import html_page
from benchmarks.table.page import write_pages
from benchmarks.table.plans import DEVICE_PLANS, PLANS
from benchmarks.table.reasons import REASONS, read_reasons
from benchmarks.table.records import OUR_MODES, Table, read_table, with_workloads, write_table
from benchmarks.table.summary import summary
from benchmarks.table.systems import SYSTEMS, System
from benchmarks.workloads import NAMES, workload
from dyorc.engine import engine
from loadgen.machine import commit, machine

_RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    """Runs the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures every system on every workload.")
    parser.add_argument("--devices", action="store_true", help="programs run on emulated accelerators")
    parser.add_argument("--kind", choices=sorted(PLANS), default="quick")
    parser.add_argument("--workloads", help=f"some of {','.join(NAMES)}")
    parser.add_argument("--systems", help=f"some of {','.join(SYSTEMS)}; by default all, or one peer of each kind for quick")
    parser.add_argument("--rounds", type=int, help="how many rounds there are, unless they do not agree")
    parser.add_argument("--out", type=output_folder, help="the folder for the results; by default benchmarks/results/KIND")
    parser.add_argument("--add", action="store_true", help="keep the other workloads of the existing table")
    parser.add_argument("--highest-only", action="store_true", help="only search for highest rates; implies --add")
    parser.add_argument(
        "--docs", type=output_folder, help="also write the Markdown pages into this folder, with the other table beside this one"
    )
    arguments = parser.parse_args()
    plan = (DEVICE_PLANS if arguments.devices else PLANS)[arguments.kind]
    if arguments.rounds:
        most = max(arguments.rounds, plan.rule.max_rounds)
        plan = replace(plan, rule=replace(plan.rule, min_rounds=arguments.rounds, max_rounds=most))
    if arguments.highest_only:
        plan = replace(plan, finds_highest=True, has_rounds=False)
    names = arguments.systems.split(",") if arguments.systems else list(plan.systems)
    workloads = arguments.workloads.split(",") if arguments.workloads else list(plan.workloads)
    if unknown := sorted(set(names) - set(SYSTEMS)) + sorted(set(workloads) - set(NAMES)):
        known = f"systems are {', '.join(SYSTEMS)}; workloads are {', '.join(NAMES)}"
        parser.error(f"unknown: {', '.join(unknown)}; {known}")
    systems = [SYSTEMS[name] for name in names]
    if missing := [system.name for system in systems if not system.is_installed()]:
        parser.error(f"not installed: {', '.join(missing)}; `make peers` installs them")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # an exception, so that the servers are stopped
    folder = arguments.out or results_folder(arguments.kind, on_devices=arguments.devices)
    others = read_table(folder / "table.json") if arguments.add or arguments.highest_only else None
    benchmark = Benchmark(plan, systems, [workload(name) for name in workloads], has_devices=arguments.devices)
    started_at, began_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    table = _table(benchmark.found, systems, arguments, started_at)
    for measured in benchmark.run():
        table = _table(measured, systems, arguments, started_at, time.monotonic() - began_s)
        _write(with_workloads(table, others) if others else table, folder, arguments.docs)
    print(json.dumps(summary(table, benchmark.found.failures)))
    sys.exit(1 if benchmark.found.failures else 0)


def results_folder(kind: str, *, on_devices: bool) -> Path:
    """Returns where the results of a kind of run are kept."""
    return _RESULTS / (f"{kind}-devices" if on_devices else kind)


def _table(
    measured: Found, systems: Sequence[System], arguments: argparse.Namespace, started_at: str, took_s: float = 0.0
) -> Table:
    return Table(
        kind=arguments.kind,
        on_devices=arguments.devices,
        started_at=started_at,
        took_s=round(took_s, 1),
        machine=machine(),
        versions={system.name: f"{system.package} {system.version()}" for system in systems},
        commit=commit(),
        workloads=measured.records,
        cells=measured.cells,
        highest=measured.highest,
        cannot=measured.cannot,
        notes={system.name: _note(system) for system in systems},
    )


def _note(system: System) -> str:
    """Returns how a system is configured."""
    is_compiled = system.name in OUR_MODES and not str(engine.__file__).endswith(".py")
    return f"{system.note}; engine compiled (`make compile`)" if is_compiled else system.note


def _write(table: Table, folder: Path, docs: Path | None) -> None:
    reasons = read_reasons(REASONS)
    write_table(table, folder / "table.json")
    (folder / "report.html").write_text(html_page(table, reasons), encoding="utf-8")
    if docs is not None:
        beside = results_folder(table.kind, on_devices=not table.on_devices) / "table.json"
        tables = [table, *([read_table(beside)] if beside.exists() else [])]
        write_pages(tables, reasons, docs)
    log(f"written: {folder / 'table.json'}, {folder / 'report.html'}{f', {docs}/benchmarks.md' if docs else ''}")
