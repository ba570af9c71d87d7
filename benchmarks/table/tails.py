"""How long tails are, beside what the data alone ask for: p99 divided by p50, under medium load."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.table.goals import cells_of, is_saturated, our_cell, peers_of
from benchmarks.table.records import Cell, Table, WorkloadRecord
from benchmarks.table.tables import markdown, place_names, plain, shown_name

MAX_RATIO = 2.5
"""The goal."""
_LOAD = "medium"
_WHAT_IT_IS = f"""p99 divided by p50 under medium load; the goal is at most {MAX_RATIO:g}. Where requests differ in length, no
server can have a short p50 and a ratio near 1: the oracle, which knows every outcome and pays for nothing but the models, shows
what the requests themselves ask for. A server that makes short requests wait for long ones has a lower ratio, and a higher p50.
The peer is the one with the lowest p99."""


def tails(tables: Sequence[Table]) -> list[str]:
    """Returns a heading, and a table with the ratios of DyOrc's better mode, the peer with the lowest p99, and the oracle."""
    head = ["", *(text for place in place_names(tables) for text in (f"DyOrc, {place}", "peer", "oracle"))]
    by_name = [{workload.name: workload for workload in table.workloads} for table in tables]
    names = dict.fromkeys(name for workloads in by_name for name in workloads)
    rows = [
        [
            plain(name),
            *(text for table, each in zip(tables, by_name, strict=True) for text in _ratios(table, each.get(name))),
        ]
        for name in names
    ]
    return ["## Tails", _WHAT_IT_IS, markdown(head, rows)]


def _ratios(table: Table, workload: WorkloadRecord | None) -> list[str]:
    """Returns the three ratios of one workload, as text."""
    cells = {} if workload is None else cells_of(table, workload.name, _LOAD)
    ours = our_cell(cells)
    if workload is None or ours is None:
        return ["not measured", "", ""]
    peer = min((cell for cell in peers_of(cells) if not is_saturated(cell)), key=lambda cell: cell.p99_ms, default=None)
    oracle = workload.oracle.get(_LOAD)
    return [
        _ratio(ours),
        "none keeps up" if peer is None else f"{_ratio(peer)} ({plain(shown_name(peer.system))})",
        "" if oracle is None else f"{oracle.p99_ms / oracle.p50_ms:.1f}",
    ]


def _ratio(cell: Cell) -> str:
    return f"{cell.p99_ms / cell.p50_ms:.1f}"
