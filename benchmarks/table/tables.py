"""The benchmark's tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.table.goals import Miss, cells_of, is_ours, is_saturated, is_sound, loads_of, our_cell
from benchmarks.table.pairs import paired
from benchmarks.table.rate_ratios import RateRatio, bound, rate_ratios
from benchmarks.table.records import ORACLE, OUR_CELL, OUR_MODES, OURS, Cell, Table, WorkloadRecord
from loadgen.tables import milliseconds, percent

SATURATED = "†"
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#])")
_FIGURE_NAMES = {"p50_ms": "p50", "p99_ms": "p99", "highest rate": "highest rate"}


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table with its first column aligned left and the others right. Cells must be Markdown; `plain` escapes text."""
    lines = [f"| {' | '.join(head)} |", "|".join(["", "---", *["--:"] * (len(head) - 1), ""])]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def plain(text: str) -> str:
    """Returns text on one line, escaped so that nothing in it has a meaning in Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split())).replace("&", "&amp;").replace("\\<", "&lt;").replace("\\>", "&gt;")


def place_names(tables: Sequence[Table]) -> list[str]:
    """Returns where the programs of each table ran, for the heads of columns."""
    return ["on accelerators" if table.on_devices else "on the processor" for table in tables]


def shown_name(system: str) -> str:
    """Returns a system's name as people write it."""
    return {OURS: "DyOrc", OUR_CELL: "DyOrc, one process", ORACLE: "oracle"}.get(system, system)


def figure_name(figure: str) -> str:
    """Returns a figure's name as people write it."""
    return _FIGURE_NAMES.get(figure, figure)


def systems_of(table: Table) -> list[str]:
    """Returns all systems of a table: DyOrc first, then its peers in their order in the table."""
    systems = dict.fromkeys(
        [cell.system for cell in table.cells]
        + [entry.system for entry in table.highest]
        + [entry.system for entry in table.cannot]
    )
    return [mode for mode in OUR_MODES if mode in systems] + [system for system in systems if system not in (*OUR_MODES, ORACLE)]


def workload_table(table: Table, workload: WorkloadRecord) -> str:
    """Returns a row for each system. Each load has two lines: latencies; then goodput, device time and ratios to the oracle."""
    loads = loads_of(table, workload.name)
    head = [plain(workload.name), *(f"{load}: {_rate(workload.rates.get(load, 0.0))}/s" for load in loads)]
    cells = {load: cells_of(table, workload.name, load) for load in loads}
    bests = {load: best_of(cells[load]) for load in loads}
    ours = {load: our_cell(cells[load]) for load in loads}
    reasons = {entry.system: entry.reason for entry in table.cannot if entry.workload == workload.name}
    rows: list[list[str]] = []
    for system in systems_of(table):
        if any(system in cells[load] for load in loads):
            rows.append([_system(system), *(_cell(cells[load].get(system), bests[load], ours[load]) for load in loads)])
        elif system in reasons:
            rows.append([_system(system), *["cannot"] * len(loads)])
        else:
            rows.append([_system(system), *["not measured"] * len(loads)])
    if workload.oracle:
        rows.append(["*oracle*", *(_oracle(workload, load) for load in loads)])
    notes = [f"{plain(shown_name(system))} cannot: {plain(why)}." for system, why in reasons.items()]
    return "\n\n".join([markdown(head, rows), *notes])


def best_of(cells: Mapping[str, Cell]) -> dict[str, float]:
    """Returns the lowest p50 and p99 among the systems whose latencies can be compared."""
    sound = [cell for system, cell in cells.items() if system != ORACLE and is_sound(cell)]
    return {figure: min(getattr(cell, figure) for cell in sound) for figure in ("p50_ms", "p99_ms")} if sound else {}


def highest_table(table: Table) -> str:
    """Returns a row for each workload: each system's highest rate within the SLO, and the ratio of DyOrc's to the best peer's."""
    systems = [system for system in systems_of(table) if any(entry.system == system for entry in table.highest)]
    ratios = {entry.workload: entry for entry in rate_ratios(table)}
    rows: list[list[str]] = []
    for workload in table.workloads:
        rates = {entry.system: entry for entry in table.highest if entry.workload == workload.name}
        if not rates:
            continue
        best = max(entry.rps for entry in rates.values())
        row = [f"{plain(workload.name)} ({workload.slo_ms:g} ms)"]
        for system in systems:
            entry = rates.get(system)
            if entry is None:
                row.append("cannot" if _cannot(table, workload.name, system) else "not measured")
                continue
            text = f"{'≥ ' if entry.limited_by_client else ''}{_rate(entry.rps)}"
            row.append(f"**{text}**" if entry.rps == best and best else text)
        ratio = ratios.get(workload.name)
        rows.append([*row, ratio_text(ratio) if ratio else ""])
    return markdown(["requests/s", *(_system(system) for system in systems), "DyOrc / best peer"], rows)


def ratio_text(entry: RateRatio) -> str:
    """Returns a ratio of rates, marked with what is uncertain about it."""
    if entry.ratio is None:
        return "no peer meets the SLO"
    between = "" if entry.low is None or entry.high is None else f" ({entry.low:.2f} to {entry.high:.2f})"
    return f"{bound(entry)}{entry.ratio:.2f}{between}"


def misses_table(misses: Iterable[Miss]) -> str:
    """Returns a row for each miss: where it is, the two values, and their ratio."""
    rows: list[list[str]] = []
    for miss in misses:
        form = _rate if miss.figure == "highest rate" else milliseconds
        where = [f"{plain(miss.workload)}{', ' + miss.load if miss.load else ''}", figure_name(miss.figure)]
        if miss.why:
            rows.append([*where, "", "", miss.why])
        else:
            theirs = f"{plain(shown_name(miss.against))} {form(miss.theirs)}"
            rows.append([*where, form(miss.ours), theirs, f"{miss.bound}{miss.ratio:.2f} x"])
    return markdown(["", "figure", "DyOrc", "against", "ratio"], rows)


def _cell(cell: Cell | None, best: Mapping[str, float], ours: Cell | None) -> str:
    if cell is None:
        return "not measured"
    latencies = " / ".join(_best(getattr(cell, figure), best.get(figure)) for figure in ("p50_ms", "p99_ms"))
    more = [f"{percent(cell.goodput_ratio)} %"]
    more += [f"{cell.device_ms_per_request:.2f} dev"] if cell.device_ms_per_request is not None else []
    if cell.p50_vs_oracle is not None and cell.p99_vs_oracle is not None:
        more.append(f"{cell.p50_vs_oracle:.2f} / {cell.p99_vs_oracle:.2f} x")
    errors = {"wrong": cell.wrong, "failed": cell.failed, "unanswered": cell.unanswered}
    lines = [latencies + (f" {SATURATED}" if is_saturated(cell) else ""), " · ".join(more)]
    lines += [", ".join(f"{number:,} {name}" for name, number in errors.items() if number)] if any(errors.values()) else []
    lines += ["generator was the limit"] if cell.is_client_limited else []
    lines += [_paired(cell, ours)] if ours is not None and not is_ours(cell.system) and not is_saturated(cell) else []
    return "<br>".join(line for line in lines if line)


def _paired(cell: Cell, ours: Cell) -> str:
    """Returns how much longer a peer's answers take than DyOrc's, round by round."""
    pair = paired(ours, cell, "p50")
    if pair is None or pair.num_rounds < 2:
        return ""
    return f"DyOrc x {pair.median:.2f} ({pair.low:.2f} to {pair.high:.2f})"


def _best(value: float, best: float | None) -> str:
    return f"**{milliseconds(value)}**" if value == best else milliseconds(value)


def _oracle(workload: WorkloadRecord, load: str) -> str:
    line = workload.oracle.get(load)
    return f"{milliseconds(line.p50_ms)} / {milliseconds(line.p99_ms)}<br>{line.device_ms_per_request:.2f} dev" if line else ""


def _cannot(table: Table, workload: str, system: str) -> bool:
    return any((entry.workload, entry.system) == (workload, system) for entry in table.cannot)


def _system(system: str) -> str:
    return plain(shown_name(system))


def _rate(rps: float) -> str:
    return f"{rps:,.0f}" if rps >= 100 else f"{rps:.3g}"
