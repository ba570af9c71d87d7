"""Writes docs/benchmarks.md, and a page of the same with pictures, from a table of the benchmark.

Run as ``python -m benchmarks.table.page benchmarks/results/full/table.json -o docs/benchmarks.md``. The page with pictures goes
beside the table, as report.html.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.table.goals import Goal, goals
from benchmarks.table.rate_ratios import rate_ratios
from benchmarks.table.reasons import REASONS, read_reasons, reasons_for
from benchmarks.table.records import Table, WorkloadRecord, read_table
from benchmarks.table.repeat import agreement_of_rounds, agreement_rows
from benchmarks.table.tables import (
    SATURATED,
    highest_table,
    markdown,
    misses_table,
    plain,
    ratio_text,
    shown_name,
    workload_table,
)

_HOW = """    make peers        # each peer into an environment of its own, .venv-peers/
    make bench        # one peer of each kind; less than 15 minutes
    make bench-full   # all peers, two rounds, highest rates; 100 minutes; writes this page
    python -m benchmarks --help                            # single workloads and systems
    python -m benchmarks.table.repeat A/table.json [B/table.json]  # how well its rounds agree, or two runs"""
_HOW_TO_READ = f"""In each cell: p50 / p99 in milliseconds, counted from the time at which a request was due; below it
the share of all planned requests that were answered rightly within the workload's SLO, milliseconds on the device for each
request ("dev"), and p50 / p99 relative to an oracle that knows every outcome beforehand. The best of each load is bold;
{SATURATED} marks a system that could not follow (fewer than half of the answers right and in time), so that its latencies say
only that. Errors are listed where there are any. Latencies of a cell with wrong answers, or with more than 1 % of errors, are
not compared with others."""


def page(table: Table, reasons: Mapping[str, str]) -> str:
    """The whole Markdown document."""
    found = goals(table)
    parts = [
        "# DyOrc beside its peers",
        "<!-- Written by `python -m benchmarks.table.page`; change that, not this. -->",
        f"The {plain(table.kind)} benchmark of {plain(table.started_at)}, {_took(table.took_s)}. {_summary(found)}",
        "## How to run it",
        _HOW,
        "## What was run, and where",
        _where(table),
        "## Latency at three loads",
        _HOW_TO_READ,
        *(_workload(table, workload) for workload in table.workloads),
        *_highest(table),
        "## Goals",
        *(f"* {'Met' if goal.is_met else '**Missed**'} ({goal.said}): {goal.name}." for goal in found),
        *_losses(found, reasons),
        *_agreed(table),
    ]
    return "\n\n".join(parts).replace(".\n\n* ", ".\n* ") + "\n"


def main(
    table: Annotated[Path, typer.Argument(help="A table.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The Markdown file to write.")] = Path("docs/benchmarks.md"),
    html: Annotated[Path | None, typer.Option("--html", help="The HTML file; report.html beside the table by default.")] = None,
    reasons: Annotated[Path, typer.Option("--reasons", help="Why goals are missed, in TOML.")] = REASONS,
) -> None:
    """Writes both documents."""
    from benchmarks.table.html_page import html_page

    try:
        measured = read_table(table)
        why = read_reasons(reasons)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page(measured, why), encoding="utf-8")
        drawn = html or table.parent / "report.html"
        drawn.write_text(html_page(measured, why), encoding="utf-8")
    except (OSError, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{out}, {drawn}")


def _took(seconds: float) -> str:
    return f"which took {seconds / 60:.0f} minutes" if seconds >= 120 else f"which took {seconds:.0f} seconds"


def _summary(found: Sequence[Goal]) -> str:
    missed = [goal for goal in found if not goal.is_met]
    if not missed:
        return "All goals are met."
    return f"{len(found) - len(missed)} of {len(found)} goals are met; [where DyOrc loses](#where-dyorc-loses)."


def _where(table: Table) -> str:
    machine = "; ".join(f"{plain(name)}: {plain(str(value))}" for name, value in table.machine.items())
    elsewhere = ", ".join(f"{record.name} at {plain(record.commit)}" for record in table.workloads if record.commit)
    commit = f"Commit {plain(table.commit)}{f'; {elsewhere}' if elsewhere else ''}. " if table.commit else ""
    systems = list(dict.fromkeys([*table.versions, *table.notes]))
    rows = [[plain(shown_name(name)), plain(table.versions.get(name, "")), plain(table.notes.get(name, ""))] for name in systems]
    head = f"{commit}All systems run the same programs on the same machine, one after the other. {machine}."
    lines = ["| | version | how it is configured |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n\n".join([head, "\n".join(lines)]) if rows else head


def _workload(table: Table, workload: WorkloadRecord) -> str:
    kind = "The data decides what runs." if workload.is_dynamic else "Always the same programs."
    drawn = f" {workload.num_requests_in_pool} different requests." if workload.num_requests_in_pool else ""
    facts = f"{plain(workload.summary[:1].upper() + workload.summary[1:])}. {kind} SLO {workload.slo_ms:g} ms.{drawn}"
    return "\n\n".join([f"### {plain(workload.name)}", facts, workload_table(table, workload)])


def _highest(table: Table) -> list[str]:
    if not table.highest:
        return []
    others = [entry for entry in rate_ratios(table) if entry.workload == "fanout"]
    told = [f"On fanout the ratio is {ratio_text(entry)}." for entry in others]
    explained = (
        "At this rate at least 99 % of all planned requests were answered rightly within the SLO, and none wrongly. ≥: the load"
        " generator was the limit, the system may do more; ≤: a peer may; ≈: both may."
    )
    return ["## Highest rates within the SLO", " ".join([explained, *told]), highest_table(table)]


def _losses(found: Sequence[Goal], reasons: Mapping[str, str]) -> list[str]:
    missed = [goal for goal in found if goal.misses]
    if not missed:
        return []
    parts = ["## Where DyOrc loses"]
    for goal in missed:
        parts += [f"Expected: {goal.name}. Not so here:", misses_table(goal.misses)]
    known = reasons_for(reasons, [miss for goal in missed for miss in goal.misses])
    why = "\n".join(f"* **{plain(where)}**: {' '.join(text.split())}" for where, text in known.items())
    return [*parts, "### Why", why] if why else parts


def _agreed(table: Table) -> list[str]:
    agreed = agreement_of_rounds(table)
    if not agreed:
        return []
    head, *rows = agreement_rows(agreed)
    told = "The ratios of DyOrc to each peer in the first round and in the last, for which all servers are started anew."
    return ["## How well two rounds agree", told, markdown(head, [[plain(text) for text in row] for row in rows])]


if __name__ == "__main__":
    typer.run(main)
