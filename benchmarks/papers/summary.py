"""The table with which the page begins: how many rows of each system come out."""

import re
from collections.abc import Callable, Mapping, Sequence

from benchmarks.papers.table import Kind, Relation, Table

SYSTEMS: Mapping[str, str] = {
    "hap": "divides each operation among unlike devices, in shares as uneven as they are",
    "hidup": "runs two microbatches in turns, so that one communicates while the other computes",
    "tag": "searches for each group of operations where it goes, guided by a trained network",
    "superscaler": "keeps data dependencies under any split of operations; plans as constraints",
    "trainverify": "proves that a plan computes what its model does",
    "joint": "chooses the machines of operations together with the bandwidth between machines",
    "tessel": "finds the order of a pipeline's blocks with the least idle time",
    "coconet": "fuses collectives with the computation around them",
    "crossover": "lets one training communicate while another computes",
    "adama": "adds gradients up in the optimizer's averages, and frees them at once",
    "evomoe": "lets experts grow out of one, and a gate grow sparse",
    "ngra": "trains graph networks chunk by chunk, on graphs that do not fit",
    "gnn": "says which stage of a graph network takes longest, and what to do",
    "channels": "picks for each pair of devices how tensors go from one to the other",
}
"""What each does, in a few words."""

_COLUMNS: Mapping[str, Callable[[Table], int]] = {
    "rows": lambda table: len(table.rows),
    "equal": lambda table: table.count(Relation.EQUAL),
    "same sign": lambda table: table.count(Relation.SAME_SIGN, Kind.PUBLISHED),
    "differs": lambda table: table.count(Relation.DIFFERS, Kind.PUBLISHED),
    "not here": lambda table: table.count(Relation.NOT_HERE),
    "ours alone": lambda table: table.count(Relation.OURS_ALONE),
}
_APART = {Kind.FITTED: "fitted, agree", Kind.OWN: "own reference, agree"}
"""What the summary counts: published figures, and of each other kind, how many agree."""


def summary_of(tables: Sequence[Table]) -> str:
    """A row for each system: what it does, and how many of its rows come out."""
    names = [*_COLUMNS, *_APART.values()]
    lines = ["| system | what it does |" + "".join(f" {name} |" for name in names) + " command |"]
    lines.append("|---|---|" + "--:|" * len(names) + "---|")
    for table in tables:
        title = f"[{table.title.split(' (')[0]}](#{_anchor(table.title)})"
        lines.append(f"| {title} | {SYSTEMS[table.name]} |{_counts([table])} `python -m benchmarks.papers {table.name}` |")
    lines.append(f"| all | |{_counts(tables)} `python -m benchmarks.papers all` |")
    return "\n".join(lines)


def _counts(tables: Sequence[Table]) -> str:
    cells = [str(sum(map(count, tables)) or "") for count in _COLUMNS.values()]
    for kind in _APART:
        agree, of = (sum(map(count, tables)) for count in (_agreeing(kind), _compared(kind)))
        cells.append(f"{agree} of {of}" if of else "")
    return "".join(f" {cell} |" for cell in cells)


def _agreeing(kind: Kind) -> Callable[[Table], int]:
    return lambda table: table.count(Relation.AGREES, kind)


def _compared(kind: Kind) -> Callable[[Table], int]:
    return lambda table: table.num_compared(kind)


def _anchor(title: str) -> str:
    """How a heading is linked to."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
