"""The head of the benchmark's pages, docs/benchmarks.md: what was compared, the result, the losses."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.table.beside import side_by_side
from benchmarks.table.goals import goals, is_ours
from benchmarks.table.rate_ratios import RateRatio, rate_ratios
from benchmarks.table.records import OUR_MODES, Table
from benchmarks.table.tables import markdown, plain
from benchmarks.table.tails import tails

NOTE = "<!-- Written by `python -m benchmarks.table.page`; change benchmarks/table, not this page. -->"
_COMPARED = """**What was compared.** Seven workloads of real models, in which the data decides which model runs next: a
cascade, a guard beside a generator, a router to experts, a loop, OCR, a fan-out, a chain that passes 8 MB. DyOrc and five other
servers ran the same programs on the same two shared cores, in turns of seconds. Once the models ran on the processor and were
tiny: what does *serving* cost? Once each program had an emulated accelerator, busy as long as a published GPU: how well are
*devices* used? No GPU was there."""
_PICTURE = "![Highest rate of each server on each workload, relative to the best peer](img/benchmarks.svg)"
_WHY = """Two reasons come up most. Where models take microseconds, a gateway in Rust (Mosec) or C++ (Triton) that answers
whole requests in one process is faster than ours in Python. Where requests differ widely in length, a server that finishes
one batch of requests before the next has a lower p99. And two cores leave little room for guesses."""
_MORE = """* [On the processor](benchmarks/processor.md) and [on emulated accelerators](benchmarks/accelerators.md): every figure,
  each loss and its reason, versions, how to read the tables.
* [Focused measurements](benchmarks/focused.md): the cost of a request, guessing, tensors, endurance, cold starts.
* [Order of calls](benchmarks/order.md): tails under each queue discipline, in the simulator.
* [How the benchmark is made](decisions/0017-the-benchmark.md), and the [oracle](decisions/0016-the-oracle-line.md) that knows
  every outcome."""
_HOW = """    make peers        # installs each peer into an environment of its own, in .venv-peers/
    make bench        # one peer of each kind; less than 15 minutes
    make bench-full   # all peers, several rounds, highest rates; two hours; writes these pages
    make bench-devices-quick  # emulated accelerators, two peers, three workloads; a few minutes
    make bench-devices        # all of them; two hours; writes these pages
    python -m benchmarks --help                            # how to run single workloads and systems
    python -m benchmarks.table.repeat A/table.json [B/table.json]  # compares the rounds of one run, or two runs"""


def overview(tables: Sequence[Table]) -> str:
    """Returns the Markdown of the head page, of the table on the processor, on emulated accelerators, or both."""
    parts = [
        "# Benchmarks",
        NOTE,
        _COMPARED,
        "**The result.** Highest rate within each workload's time limit, DyOrc's divided by the other server's:",
        _against_each(tables),
        _PICTURE,
        f"**The losses.** {' '.join(_losses(table) for table in tables)}",
        _WHY,
        "## Where to go on",
        _MORE,
        *side_by_side(tables),
        *tails(tables),
        "## How to run it",
        _HOW,
    ]
    return "\n\n".join(parts) + "\n"


def place(table: Table) -> str:
    """Returns where the programs of a table ran, in words."""
    return "on emulated accelerators" if table.on_devices else "on the processor"


def _against_each(tables: Sequence[Table]) -> str:
    peers = list(dict.fromkeys(entry.system for table in tables for entry in table.highest if not is_ours(entry.system)))
    return markdown(
        ["", *(place(table) for table in tables)],
        [[plain(peer), *(_range(_ratios(table, peer)) for table in tables)] for peer in peers],
    )


def _ratios(table: Table, peer: str) -> dict[str, float]:
    """Returns DyOrc's highest rate divided by the peer's, by workload; infinite where the peer has none within the limit."""
    ratios: dict[str, float] = {}
    for workload in table.workloads:
        rates = {entry.system: entry.rps for entry in table.highest if entry.workload == workload.name}
        ours = max((rates[mode] for mode in OUR_MODES if mode in rates), default=None)
        if ours is not None and peer in rates:
            ratios[workload.name] = ours / rates[peer] if rates[peer] else float("inf")
    return ratios


def _range(ratios: dict[str, float]) -> str:
    if not ratios:
        return "not measured"
    kept = {name: ratio for name, ratio in ratios.items() if ratio != float("inf")}
    never = [plain(name) for name in ratios if name not in kept]
    parts: list[str] = []
    if kept:
        low, high = min(kept, key=kept.__getitem__), max(kept, key=kept.__getitem__)
        ends = f"{_short(kept[low])} ({plain(low)})"
        parts.append(ends if low == high else f"{ends} to {_short(kept[high])} ({plain(high)})")
    if never:
        parts.append(f"{' and '.join(never)}: never within the limit")
    return "; ".join(parts)


def _short(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2f}"


def _losses(table: Table) -> str:
    latencies = goals(table)[0]
    ratios = [entry for entry in rate_ratios(table) if entry.ratio is not None]
    behind = [entry for entry in ratios if entry.ratio is not None and round(entry.ratio, 2) <= 1]
    where = place(table)
    reached = latencies.said.partition(";")[0]
    rates = f"its rate is the highest on {len(ratios) - len(behind)} of {len(ratios)} workloads"
    named = f", and not on {_listed(behind)}" if behind else ""
    wished = latencies.name.removeprefix("p50 and p99 below every peer's, ")
    return (
        f"{where[0].upper()}{where[1:]}, {rates}{named}; p50 and p99 are below every peer's in {reached} cells"
        f"{' (the goal' if not latencies.is_met else ''}{f': {wished})' if not latencies.is_met else ''}."
    )


def _listed(entries: Sequence[RateRatio]) -> str:
    named = [f"{plain(entry.workload)} ({entry.ratio or 0:.2f} of {plain(entry.peer)}'s)" for entry in entries]
    return f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else named[0]
