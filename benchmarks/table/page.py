"""Writes docs/benchmarks.md, a page for each table in docs/benchmarks/, and the same with pictures, from the stored tables.

Run as ``python -m benchmarks.table.page benchmarks/results/full/table.json benchmarks/results/full-devices/table.json``. A page
with pictures is written beside each table, as report.html.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.table.device_parts import models_table, predictions
from benchmarks.table.goals import Goal, cells_of, counts_for_rates, goals, loads_of
from benchmarks.table.overview import NOTE, overview
from benchmarks.table.rate_ratios import rate_ratios
from benchmarks.table.reasons import REASONS, read_reasons, reasons_for, reasons_of_table
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
    systems_of,
    workload_table,
)

_ON_PROCESSOR = """What does serving cost? Models, servers and the load generator share two cores. Models are tiny, so most of
what is measured is the servers themselves: their protocol, their hops between processes, their interpreter."""
_ON_DEVICES = """How well does a server use devices? Each program has an emulated accelerator of its own, which is occupied as
long as a published GPU takes for the batch, while the processor is free. What counts is which batches are formed, what waits
for what, and what is started ahead. This is the case of a server with GPUs, as far as a machine without any can show it: there
is one device for each program, devices do not share memory or a bus, and tensors still pass through the host."""
_HOW_TO_READ = f"""Each workload has an SLO, the longest time that an answer may take. Requests arrive at random times, at
three mean rates: 0.2, 0.5 and 0.8 of the highest rate at which three of the systems meet the SLO ([how the benchmark is
made](../decisions/0017-the-benchmark.md)).

The first line of a cell shows p50 / p99 in milliseconds: half of the answers, and 99 % of them, took no longer, counted from
the moment at which the request was due. The second line shows the share of all planned requests with a right answer within the
SLO, the processor time that the programs took per request, in milliseconds ("dev"), and p50 / p99 relative to [an oracle that
knows every outcome in advance](../decisions/0016-the-oracle-line.md). A third line shows errors, if there were any.

The last line of a peer's cell, where there is one, is its p50 relative to that of DyOrc's better mode: the median over the
rounds, each of which measures all systems within a minute or two, and an interval of order statistics for it (with at least 95 %
confidence from six rounds on, 75 % with three). Systems take turns of a few seconds; all of them run, but only one gets the
processor, and the others are stopped meanwhile. Cells whose rounds do not agree are measured again.

For each load, the best p50 and p99 are bold. {SATURATED} marks a system that could not keep up: fewer than half of its planned
requests got a right answer in time, so its latencies mean nothing more. "Generator was the limit" means that the load generator
itself may have been too slow. Latencies are not compared if a cell has any wrong answer or more than 1 % of errors."""


def page(table: Table, reasons: Mapping[str, str]) -> str:
    """Returns the Markdown of a table's own page."""
    outcomes = goals(table)
    parts = [
        "# Programs on emulated accelerators" if table.on_devices else "# Programs on the processor",
        NOTE,
        _ON_DEVICES if table.on_devices else _ON_PROCESSOR,
        f"{_origin(table)} {_summary(outcomes)}",
        *_highest(table),
        "## Goals",
        "\n".join(f"* {'Met' if goal.is_met else '**Missed**'} (reached in {goal.said}): {goal.name}." for goal in outcomes),
        *_losses(table, outcomes, reasons_of_table(reasons, table.on_devices)),
        "## How to read the tables",
        _HOW_TO_READ,
        *(_workload(table, workload) for workload in table.workloads),
        "## What was run, and where",
        _where(table),
        *(["## How long programs take", *models_table(table)] if table.on_devices else []),
        *predictions(table),
        *_agreed(table),
    ]
    return "\n\n".join(parts) + "\n"


def pages(tables: Sequence[Table], reasons: Mapping[str, str]) -> dict[str, str]:
    """Returns all pages, by their paths below docs/."""
    by_place = sorted(tables, key=lambda table: table.on_devices)
    details = {f"benchmarks/{'accelerators' if table.on_devices else 'processor'}.md": page(table, reasons) for table in by_place}
    return {"benchmarks.md": overview(by_place)} | details


def write_pages(tables: Sequence[Table], reasons: Mapping[str, str], docs: Path) -> None:
    """Writes all pages into the folder of the documentation."""
    for path, text in pages(tables, reasons).items():
        (docs / path).parent.mkdir(parents=True, exist_ok=True)
        (docs / path).write_text(text, encoding="utf-8")


def main(
    tables: Annotated[list[Path], typer.Argument(help="The tables to read: on the processor, on devices, or both.")],
    docs: Annotated[Path, typer.Option("--docs", help="The folder of the Markdown pages.")] = Path("docs"),
    reasons: Annotated[Path, typer.Option("--reasons", help="The TOML file that says why goals are missed.")] = REASONS,
) -> None:
    """Writes the pages, and one with pictures beside each table."""
    from benchmarks.table.html_page import html_page

    try:
        read = {path: read_table(path) for path in tables}
        why = read_reasons(reasons)
        write_pages(list(read.values()), why, docs)
        for path, measured in read.items():
            (path.parent / "report.html").write_text(html_page(measured, why), encoding="utf-8")
    except (OSError, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(str(docs / "benchmarks.md"))


def _origin(table: Table) -> str:
    return f"The figures come from the {plain(table.kind)} benchmark of {_day(table.started_at)}, {_took(table.took_s)}."


def _day(started_at: str) -> str:
    return plain(started_at.partition("T")[0])


def _fact(name: str, value: object) -> str:
    """One fact about the machine, in words where its name is known."""
    match name, value:
        case "num_cores", _:
            return f"{plain(str(value))} cores"
        case "memory_bytes", int():
            return f"{value / 1e9:.1f} GB of memory"
        case "processor" | "kernel", _:
            return plain(str(value))
        case _:
            return f"{plain(name)}: {plain(str(value))}"


def _took(seconds: float) -> str:
    return f"which took {seconds / 60:.0f} minutes" if seconds >= 120 else f"which took {seconds:.0f} seconds"


def _summary(outcomes: Sequence[Goal]) -> str:
    missed = [goal for goal in outcomes if not goal.is_met]
    if not missed:
        return "DyOrc meets all its goals."
    return f"DyOrc meets {len(outcomes) - len(missed)} of its {len(outcomes)} goals ([where it loses](#where-dyorc-loses))."


def _where(table: Table) -> str:
    machine = "; ".join(_fact(name, value) for name, value in table.machine.items())
    others = [f"{record.name} at {plain(record.commit)}" for record in table.workloads if record.commit]
    later = {highest.workload: highest.commit for highest in table.highest if highest.commit}
    others += [f"the highest rates of {name} at {plain(commit)}" for name, commit in later.items()]
    elsewhere = ", ".join(others)
    commit = f"Commit {plain(table.commit)}{f'; {elsewhere}' if elsewhere else ''}. " if table.commit else ""
    rows = [
        [plain(shown_name(name)), plain(table.versions.get(name, "")), plain(table.notes.get(name, ""))]
        for name in systems_of(table)  # not all that have a version: a run may leave some of them out
    ]
    head = f"{commit}All systems run the same programs on the same machine. {_turns(table)} {machine}."
    lines = ["| | version | how it is configured |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n\n".join([head, "\n".join(lines)]) if rows else head


def _turns(table: Table) -> str:
    if any(cell.rounds for cell in table.cells):
        return "They take turns of a few seconds."
    return "They were measured one after the other: this table is older than the turns of seconds that are described above."


def _workload(table: Table, workload: WorkloadRecord) -> str:
    kind = "The data decides which programs run." if workload.is_dynamic else "Every request runs the same programs."
    drawn = f" {workload.num_requests_in_pool} different requests." if workload.num_requests_in_pool else ""
    facts = f"{plain(workload.summary[:1].upper() + workload.summary[1:])}. {kind} SLO {workload.slo_ms:g} ms.{drawn}"
    speed = _speed(table, workload.name)
    heading = f"## {plain(workload.name)}"
    return "\n\n".join([heading, facts, workload_table(table, workload), *([speed] if speed else [])])


def _speed(table: Table, workload: str) -> str:
    """Returns how fast the machine was under each load, from fixed work that was timed before each run."""
    said: list[str] = []
    for load in loads_of(table, workload):
        cells = cells_of(table, workload, load).values()
        python = [ms for cell in cells for ms in cell.python_ms]
        blas = [ms for cell in cells for ms in cell.blas_ms]
        if python and blas:
            said.append(f"{load} {min(python):.1f} to {max(python):.1f} and {min(blas):.2f} to {max(blas):.2f}")
    return f"A fixed loop of Python and a fixed product of matrices took, in milliseconds: {'; '.join(said)}." if said else ""


def _highest(table: Table) -> list[str]:
    if not table.highest:
        return []
    others = [entry for entry in rate_ratios(table) if not counts_for_rates(table, entry.workload)]
    named = " and ".join(f"{plain(entry.workload)} (ratio {ratio_text(entry)})" for entry in others)
    notes = [f"The goal below does not count {named}."] if named else []
    explained = (
        "The highest rate at which at least 99 % of all planned requests got a right answer within the SLO, and none a wrong one."
        " Systems take turns: each goes a step up after a turn in which it met that, and a step down after one in which it did"
        " not; the figure is the mean of the last six rates, and the range beside a ratio that of its last six turns."
        " Where the load generator was the limit, a system might reach more: ≥ marks such a figure, or a ratio that may be larger"
        " because DyOrc might; ≤ marks a ratio that may be smaller because a peer might; ≈ marks a ratio of which both are true."
    )
    if any(entry.low is None and entry.ratio is not None for entry in rate_ratios(table)):
        notes.append(
            "A row without a range is older: there, systems were searched one after another, minutes apart, so its ratio depends"
            " on how the machine's speed changed meanwhile."
        )
    return ["## Highest rates within the SLO", " ".join([explained, *notes]), highest_table(table)]


def _losses(table: Table, outcomes: Sequence[Goal], reasons: Mapping[str, str]) -> list[str]:
    missed = [goal for goal in outcomes if goal.misses]
    if not missed:
        return []
    parts = ["## Where DyOrc loses"]
    for goal in missed:
        parts += [f"The goal: {goal.name}. Missed here:", misses_table(goal.misses)]
    known = reasons_for(reasons, [miss for goal in missed for miss in goal.misses])
    why = "\n".join(f"* **{plain(where)}**: {' '.join(text.split())}" for where, text in known.items())
    return [*parts, "### Why", why] if why else parts


def _agreed(table: Table) -> list[str]:
    agreed = agreement_of_rounds(table)
    if not agreed:
        return []
    head, *rows = agreement_rows(agreed)
    note = "The ratio of DyOrc's figure to each peer's in the first round, compared with the same ratio in the last."
    return ["## How well two rounds agree", note, markdown(head, [[plain(text) for text in row] for row in rows])]


if __name__ == "__main__":
    typer.run(main)
