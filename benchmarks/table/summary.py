"""The last line of the benchmark: one JSON object."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.table.goals import FIGURES, cells_of, is_saturated, loads_of, our_cell, peers_of
from benchmarks.table.pairs import paired
from benchmarks.table.rate_ratios import rate_ratios
from benchmarks.table.records import Cell, Table


def summary(table: Table, failures: Sequence[str]) -> dict[str, object]:
    """Returns, for each workload and load, the figures of DyOrc's better mode, and its ratios to the best peer and the oracle."""
    return {
        "on_devices": table.on_devices,
        "cells": {
            f"{workload.name}/{load}": figures
            for workload in table.workloads
            for load in loads_of(table, workload.name)
            if (figures := _of_cells(cells_of(table, workload.name, load))) is not None
        },
        "highest_ratio": {entry.workload: entry.ratio and round(entry.ratio, 3) for entry in rate_ratios(table)},
        "wrong_or_failed": sum(cell.wrong + cell.failed for cell in table.cells),
        "failures": list(failures),
    }


def _of_cells(cells: dict[str, Cell]) -> dict[str, object] | None:
    ours = our_cell(cells)
    if ours is None:
        return None
    peers = [cell for cell in peers_of(cells) if not is_saturated(cell)]
    figures: dict[str, object] = {"mode": ours.system, "p50_ms": round(ours.p50_ms, 3), "p99_ms": round(ours.p99_ms, 3)}
    for figure in FIGURES if peers else ():
        name = figure.removesuffix("_ms")
        best = min(peers, key=lambda cell: getattr(cell, figure))
        figures[f"{name}_ratio"] = round(getattr(best, figure) / getattr(ours, figure), 3)
        figures[f"{name}_best_peer"] = best.system
        pair = paired(ours, best, name)
        if pair is not None:
            figures[f"{name}_paired"] = [round(value, 3) for value in (pair.median, pair.low, pair.high)]
    for name in ("p50", "p99"):
        ratio, said = getattr(ours, f"{name}_vs_oracle"), getattr(ours, f"predicted_{name}_ms")
        if ratio is not None:
            figures[f"{name}_vs_oracle"] = round(ratio, 3)
        if said is not None:
            figures[f"{name}_predicted_ms"] = round(said, 3)
    return figures
