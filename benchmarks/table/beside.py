"""Both tables side by side: programs on the processor, and on emulated accelerators."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.table.goals import cells_of, is_saturated, loads_of, our_cell, peers_of
from benchmarks.table.rate_ratios import rate_ratios
from benchmarks.table.records import Table
from benchmarks.table.tables import markdown, place_names, plain, ratio_text, shown_name
from loadgen.tables import milliseconds

_NONE = "not measured"


def side_by_side(tables: Sequence[Table]) -> list[str]:
    """Returns a heading, and a table with DyOrc's better mode and the best peer in each cell of all tables."""
    places = dict.fromkeys(
        (workload.name, load) for table in tables for workload in table.workloads for load in loads_of(table, workload.name)
    )
    head = [""]
    for name in place_names(tables):
        head += [f"DyOrc, {name}", "best peer", "ratio"]
    rows = [
        [f"{plain(workload)}, {load}", *(text for table in tables for text in _latencies(table, workload, load))]
        for workload, load in places
    ]
    ratios = [{entry.workload: entry for entry in rate_ratios(table)} for table in tables]
    for workload in dict.fromkeys(name for by_workload in ratios for name in by_workload):
        row = [f"{plain(workload)}, highest rate"]
        for by_workload in ratios:
            entry = by_workload.get(workload)
            row += [_NONE, "", ""] if entry is None else [
                _rate(entry.ours), f"{_rate(entry.theirs)} ({plain(shown_name(entry.peer))})", ratio_text(entry)
            ]  # fmt: skip
        rows.append(row)
    return ["## Side by side", _HOW_TO_READ, markdown(head, rows)]


_HOW_TO_READ = """DyOrc's better mode beside the peer that is best at each figure: p50 / p99 in milliseconds, and requests/s for
the highest rate within the SLO. The better mode is the one that is ahead of all peers in more of p50 and p99, or, of two that are
in equally many, the one with the lower product of both; for rates, the one with the higher rate. A ratio is the peer's latency
divided by DyOrc's, or DyOrc's rate divided by the peer's: above 1, DyOrc is ahead."""


def _latencies(table: Table, workload: str, load: str) -> list[str]:
    cells = cells_of(table, workload, load)
    ours = our_cell(cells)
    if ours is None:
        return [_NONE, "", ""]
    mine = f"{milliseconds(ours.p50_ms)} / {milliseconds(ours.p99_ms)}"
    peers = [cell for cell in peers_of(cells) if not is_saturated(cell)]
    if not peers:
        return [mine, "none keeps up", ""]
    p50, p99 = min(peers, key=lambda cell: cell.p50_ms), min(peers, key=lambda cell: cell.p99_ms)
    names = " / ".join(dict.fromkeys(plain(shown_name(cell.system)) for cell in (p50, p99)))
    return [
        mine,
        f"{milliseconds(p50.p50_ms)} / {milliseconds(p99.p99_ms)} ({names})",
        f"{p50.p50_ms / ours.p50_ms:.2f} / {p99.p99_ms / ours.p99_ms:.2f}",
    ]


def _rate(rps: float) -> str:
    return f"{rps:,.0f}" if rps >= 100 else f"{rps:.3g}"
