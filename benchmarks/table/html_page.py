"""The benchmark's page with pictures, in one self-contained file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.table.goals import Goal, Miss, cells_of, goals, is_saturated, loads_of
from benchmarks.table.picture import highest_picture
from benchmarks.table.reasons import reasons_for, reasons_of_table
from benchmarks.table.records import Cell, Table, WorkloadRecord
from benchmarks.table.repeat import agreement_of_rounds, agreement_rows
from benchmarks.table.tables import SATURATED, figure_name, shown_name, systems_of
from loadgen.report.bars import batch_chart, speculation_charts
from loadgen.report.charts import Curve, LoadLine, cdf_chart, load_chart
from loadgen.report.parts import details, document, paragraph, section, table, tiles, warning
from loadgen.tables import milliseconds, percent

_CURVES_AT = "medium"
_HEAD = (
    "system",
    "load",
    "rate/s",
    "p50 ms",
    "spread",
    "p99 ms",
    "spread",
    "goodput %",
    "goodput/s",
    "device ms",
    "p50 /oracle",
    "p99 /oracle",
)
_ERRORS = ("wrong", "failed", "no answer")


def html_page(measured: Table, reasons: Mapping[str, str]) -> str:
    """Returns one HTML document without scripts that loads nothing from elsewhere."""
    styles = {system: style for style, system in enumerate(systems_of(measured))}
    checked_goals = goals(measured)
    subtitle = f"{measured.kind} benchmark, {measured.started_at}, {measured.took_s / 60:.1f} minutes"
    return document(
        "DyOrc beside its peers",
        [
            paragraph(subtitle, is_soft=True),
            tiles([(_goal_name(goal), goal.said) for goal in checked_goals]),
            _warnings(measured),
            section("Highest rates within the SLO", highest_picture(measured), _highest(measured)),
            *(_workload(measured, workload, styles) for workload in measured.workloads),
            section(
                "Where DyOrc loses",
                *(_losses(goal) for goal in checked_goals if goal.misses),
                _why(checked_goals, reasons_of_table(reasons, measured.on_devices)),
            ),
            _agreed(measured),
            _what_was_run(measured),
        ],
    )


def _goal_name(goal: Goal) -> str:
    return f"{'met' if goal.is_met else 'missed'}: {goal.name}"


def _warnings(measured: Table) -> str:
    limited = [
        f"{cell.workload}, {cell.load}, {shown_name(cell.system)}: the load generator may have been too slow"
        for cell in measured.cells
        if cell.is_client_limited
    ]
    return warning("Limited by the load generator", limited)


def _highest(measured: Table) -> str:
    rows = [
        [entry.workload, shown_name(entry.system), f"{'≥ ' if entry.limited_by_client else ''}{entry.rps:,.1f}"]
        for entry in measured.highest
    ]
    return details("In figures", table(["workload", "system", "requests/s"], rows)) if rows else ""


def _workload(measured: Table, workload: WorkloadRecord, styles: Mapping[str, int]) -> str:
    loads = loads_of(measured, workload.name)
    cells = [cell for load in loads for cell in cells_of(measured, workload.name, load).values()]
    lines = [
        LoadLine(
            name=shown_name(system),
            style=style,
            points=[(cell.rate_rps, cell.p50_ms, cell.p99_ms) for cell in cells if cell.system == system],
        )
        for system, style in styles.items()
    ]
    shown_at = _CURVES_AT if _CURVES_AT in loads else next(iter(loads), "")
    shown = [cell for cell in cells if cell.load == shown_at]
    curves = [Curve(name=shown_name(cell.system), style=styles[cell.system], histogram=cell.histogram) for cell in shown]
    cannot = [f"{shown_name(entry.system)}: {entry.reason}" for entry in measured.cannot if entry.workload == workload.name]
    name = workload.name
    return section(
        name,
        paragraph(f"{workload.summary}; SLO {workload.slo_ms:g} ms", is_soft=True),
        table([*_HEAD, *_ERRORS], [_row(cell) for cell in cells], bad=_ERRORS),
        warning("Cannot", cannot),
        section("Latency against load", load_chart(lines, name=f"{name}: latency against load", slo_ms=workload.slo_ms), level=3),
        section(f"Latency, {shown_at} load", cdf_chart(curves, name=f"{name}: latency", slo_ms=workload.slo_ms), level=3),
        section(f"Batches, {shown_at} load", *_batches(shown, styles), level=3),
        section(f"Speculation, {shown_at} load", *_speculation(shown, styles), level=3),
        _costs(workload),
    )


def _row(cell: Cell) -> list[str]:
    return [
        shown_name(cell.system) + (f" {SATURATED}" if is_saturated(cell) else ""),
        cell.load,
        f"{cell.rate_rps:,.5g}",
        milliseconds(cell.p50_ms),
        _spread(cell.p50s_ms),
        milliseconds(cell.p99_ms),
        _spread(cell.p99s_ms),
        percent(cell.goodput_ratio),
        f"{cell.goodput_rps:,.1f}",
        *(
            "" if value is None else f"{value:.2f}"
            for value in (cell.device_ms_per_request, cell.p50_vs_oracle, cell.p99_vs_oracle)
        ),
        *(f"{number:,}" for number in (cell.wrong, cell.failed, cell.unanswered)),
    ]


def _spread(of_rounds: Sequence[float]) -> str:
    """How far apart the rounds are: the largest value divided by the smallest, minus 1."""
    return f"{max(of_rounds) / min(of_rounds) - 1:.0%}" if len(of_rounds) > 1 else ""


def _batches(shown: Sequence[Cell], styles: Mapping[str, int]) -> list[str]:
    programs = dict.fromkeys(program for cell in shown for program in cell.batch_sizes)
    return [
        batch_chart(
            program, {shown_name(cell.system): (styles[cell.system], cell.batch_sizes.get(program, {})) for cell in shown}
        )
        for program in programs
    ]


def _speculation(shown: Sequence[Cell], styles: Mapping[str, int]) -> list[str]:
    return speculation_charts({shown_name(cell.system): (styles[cell.system], cell.speculation) for cell in shown})


def _costs(workload: WorkloadRecord) -> str:
    rows = [[program, f"{size}", milliseconds(ms)] for program, costs in workload.costs.items() for size, ms in costs]
    return details("How long a batch takes alone", table(["program", "size", "ms"], rows)) if rows else ""


def _losses(goal: Goal) -> str:
    rows = [_miss(miss) for miss in goal.misses]
    return section(f"The goal: {goal.name}", table(["", "figure", "DyOrc", "against", "ratio"], rows, is_text=True), level=3)


def _why(checked_goals: Sequence[Goal], reasons: Mapping[str, str]) -> str:
    rows = [list(pair) for pair in reasons_for(reasons, [miss for goal in checked_goals for miss in goal.misses]).items()]
    return section("Why", table(["", ""], rows, is_text=True), level=3) if rows else ""


def _miss(miss: Miss) -> list[str]:
    where = [f"{miss.workload}, {miss.load}" if miss.load else miss.workload, figure_name(miss.figure)]
    if miss.why:
        return [*where, "", "", miss.why]
    return [*where, f"{miss.ours:,.4g}", f"{shown_name(miss.against)} {miss.theirs:,.4g}", f"{miss.bound}{miss.ratio:.2f} x"]


def _agreed(measured: Table) -> str:
    agreed = agreement_of_rounds(measured)
    if not agreed:
        return ""
    head, *rows = agreement_rows(agreed)
    return section("How well two rounds agree", table(head, rows, is_text=True))


def _what_was_run(measured: Table) -> str:
    facts = [[name, str(value)] for name, value in measured.machine.items()] + [["commit", measured.commit]]
    configured = [
        [shown_name(name), measured.versions.get(name, ""), measured.notes.get(name, "")] for name in systems_of(measured)
    ]
    return details(
        "What was run",
        table(["", ""], facts, is_text=True),
        table(["system", "version", "how it is configured"], configured, is_text=True),
    )
