"""DyOrc's goals relative to its peers, and the cells of a table in which it misses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from benchmarks.table.rate_ratios import RateRatio, bound, rate_ratios
from benchmarks.table.records import LOADS, ORACLE, OUR_MODES, Cell, Table

FIGURES = ("p50_ms", "p99_ms")
MIN_AHEAD = Fraction(38, 42)
"""On the processor, so many of all p50 and p99 are to be below every peer's: 38 of the 42 of a full table. On devices, all."""
MIN_HIGHEST_RATIO_ON_DEVICES = 1.2
"""There devices are the limit, so a scheduler that never lets them idle is hard to beat."""
HIGHEST_WORKLOADS_ON_DEVICES = ("cascade", "ocr", "guarded", "router", "loop")
"""The dynamic workloads on which that ratio counts. Others are shown, but not judged; on the processor all are."""
MAX_ORACLE_RATIO = 1.25
"""On devices only: on the processor, the oracle pays nothing for what is measured there, which is serving."""
SATURATED_RATIO = 0.5
"""Below this goodput a system cannot keep up, and its latencies mean nothing more."""
_MAX_FAILED_RATIO = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A cell in which DyOrc does not reach a goal.

    Attributes:
        against: The best peer, or the oracle; empty if DyOrc's own cell is missing or full of errors.
        figure: The name of the compared figure.
        ours, theirs: The two values of that figure.
        ratio: DyOrc's value divided by the other's.
        bound: What is uncertain about the ratio; see `benchmarks.table.rate_ratios.bound`.
        why: The reason in words, where there are no two values to compare.
    """

    workload: str
    load: str
    figure: str
    against: str = ""
    ours: float = 0.0
    theirs: float = 0.0
    ratio: float = 0.0
    bound: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One goal, whether it is met, and by how many figures."""

    name: str
    is_met: bool
    said: str
    misses: Sequence[Miss]


def goals(table: Table) -> list[Goal]:
    """Returns all goals of a table, the most important first."""
    checked = [_latency_goal(table), _rate_goal(table)]
    return [*checked, _oracle_goal(table)] if table.on_devices else checked


def counts_for_rates(table: Table, workload: str) -> bool:
    """Whether the goal of highest rates includes a workload."""
    return not table.on_devices or workload in HIGHEST_WORKLOADS_ON_DEVICES


def is_ours(system: str) -> bool:
    """Whether a system is no peer: a mode of DyOrc, or the oracle."""
    return system in OUR_MODES or system == ORACLE


def is_sound(cell: Cell) -> bool:
    """Whether a cell's latencies can be compared: it has no wrong answers and hardly any errors."""
    return cell.wrong == 0 and cell.failed <= _MAX_FAILED_RATIO * cell.num_requests


def is_saturated(cell: Cell) -> bool:
    """Whether the system could not keep up."""
    return cell.goodput_ratio < SATURATED_RATIO


def cells_of(table: Table, workload: str, load: str) -> dict[str, Cell]:
    """Returns the cells of one workload under one load, by system."""
    return {cell.system: cell for cell in table.cells if (cell.workload, cell.load) == (workload, load)}


def peers_of(cells: Mapping[str, Cell]) -> list[Cell]:
    """Returns the cells of all peers whose latencies can be compared."""
    return [cell for system, cell in cells.items() if not is_ours(system) and is_sound(cell)]


def our_cell(cells: Mapping[str, Cell]) -> Cell | None:
    """Returns the cell of DyOrc's better mode, sound ones first: the one that is ahead of every peer in more of p50 and p99, and
    of two that are in equally many, the one with the lower product of both."""
    ours = [cells[mode] for mode in OUR_MODES if mode in cells]
    peers = peers_of(cells)
    best = {figure: min([getattr(cell, figure) for cell in peers], default=float("inf")) for figure in FIGURES}

    def rank(cell: Cell) -> tuple[bool, int, float]:
        num_behind = sum(getattr(cell, figure) >= best[figure] for figure in FIGURES)
        return (not is_sound(cell), num_behind, cell.p50_ms * cell.p99_ms)

    return min(ours, key=rank, default=None)


def loads_of(table: Table, workload: str) -> list[str]:
    """Returns the loads under which a workload was measured, the usual ones first."""
    names = {cell.load for cell in table.cells if cell.workload == workload}
    return [load for load in LOADS if load in names] + sorted(names - set(LOADS))


def latency_misses(table: Table) -> list[Miss]:
    """Returns the cells in which a peer is as fast as DyOrc or faster."""
    misses: list[Miss] = []
    for workload in table.workloads:
        for load in loads_of(table, workload.name):
            cells = cells_of(table, workload.name, load)
            misses += [miss for figure in FIGURES if (miss := _latency_miss(workload.name, load, figure, cells)) is not None]
    return misses


def _latency_miss(workload: str, load: str, figure: str, cells: Mapping[str, Cell]) -> Miss | None:
    ours = our_cell(cells)
    if ours is None:
        return Miss(workload=workload, load=load, figure=figure, why="not measured")
    if not is_sound(ours):
        wrong = f"{ours.wrong} wrong and {ours.failed} failed of {ours.num_requests} requests"
        return Miss(workload=workload, load=load, figure=figure, why=wrong)
    best = min(peers_of(cells), key=lambda cell: getattr(cell, figure), default=None)
    if best is None:
        return None
    value, theirs = getattr(ours, figure), getattr(best, figure)
    if value < theirs:
        return None
    ratio = value / theirs if theirs else 0.0
    return Miss(workload=workload, load=load, figure=figure, against=best.system, ours=value, theirs=theirs, ratio=ratio)


def _latency_goal(table: Table) -> Goal:
    misses = latency_misses(table)
    total = len(FIGURES) * sum(len(loads_of(table, workload.name)) for workload in table.workloads)
    wanted = total if table.on_devices else ceil(MIN_AHEAD * total)
    where = "on every workload, under every load" if table.on_devices else f"in at least {wanted} of {total} cells"
    return Goal(
        name=f"p50 and p99 below every peer's, {where}",
        is_met=total > 0 and total - len(misses) >= wanted,
        said=f"{total - len(misses)} of {total}{_left_out(table)}",
        misses=misses,
    )


def _left_out(table: Table) -> str:
    number = sum(not is_sound(cell) for cell in table.cells if not is_ours(cell.system))
    return f"; {number} {'cell' if number == 1 else 'cells'} of peers left out because of errors" if number else ""


def _rate_goal(table: Table) -> Goal:
    wanted = [workload.name for workload in table.workloads if counts_for_rates(table, workload.name)]
    ratios = {entry.workload: entry for entry in rate_ratios(table)}
    misses: list[Miss] = []
    for workload in wanted:
        entry = ratios.get(workload)
        if entry is None:
            misses.append(Miss(workload=workload, load="", figure="highest rate", why="not measured"))
        elif not _is_ahead(entry, table.on_devices):
            misses.append(_rate_miss(entry))
    on_devices = f"of at least {MIN_HIGHEST_RATIO_ON_DEVICES:g} times the best peer's, on the dynamic workloads"
    wished = on_devices if table.on_devices else "above every peer's, on every workload"
    return Goal(
        name=f"a highest rate within the SLO {wished}",
        is_met=bool(wanted) and not misses,
        said=f"{len(wanted) - len(misses)} of {len(wanted)}",
        misses=misses,
    )


def _is_ahead(entry: RateRatio, on_devices: bool) -> bool:
    """Whether DyOrc is far enough ahead. A ratio that may really be smaller does not count."""
    if entry.ours <= 0 or entry.is_at_most:
        return False
    if entry.ratio is None:
        return True
    return entry.ratio >= MIN_HIGHEST_RATIO_ON_DEVICES if on_devices else entry.ratio > 1


def _rate_miss(entry: RateRatio) -> Miss:
    return Miss(
        workload=entry.workload,
        load="",
        figure="highest rate",
        against=entry.peer,
        ours=entry.ours,
        theirs=entry.theirs,
        ratio=entry.ratio or 0.0,
        bound=bound(entry),
    )


def _oracle_goal(table: Table) -> Goal:
    misses: list[Miss] = []
    total = 0
    for workload in table.workloads:
        cell, oracle = our_cell(cells_of(table, workload.name, "medium")), workload.oracle.get("medium")
        if cell is None or oracle is None:
            continue
        for figure in FIGURES:
            total += 1
            ours, theirs = getattr(cell, figure), getattr(oracle, figure)
            ratio = ours / theirs if theirs else float("inf")
            if ratio > MAX_ORACLE_RATIO:
                miss = Miss(
                    workload=workload.name, load="medium", figure=figure, against=ORACLE, ours=ours, theirs=theirs, ratio=ratio
                )
                misses.append(miss)
    return Goal(
        name=f"p50 and p99 within {MAX_ORACLE_RATIO:g} times the oracle's, under medium load",
        is_met=total > 0 and not misses,
        said=f"{total - len(misses)} of {total}",
        misses=misses,
    )
