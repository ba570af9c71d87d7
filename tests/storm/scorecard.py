"""The scorecard: figures of each shape and fault, the bounds that they have to keep, and the page that shows them.

A card is plain JSON, so that runs of a day can be added up. Every number in it is a sum, but for those whose name says `longest`.
"""

import datetime
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.storm.driver import ShapeResult

MAX_LOG_LINES = 50
"""Lines that one fault may leave in the logs of all processes together, on average. An input that crashes two cells leaves 46."""
_ZERO = ("wrong", "lost", "doubled", "unexplained", "late", "leaks", "broken")
"""Figures that have to be 0."""

Card = dict[str, Any]


def card_of(results: list[ShapeResult], skipped: dict[str, str]) -> Card:
    """Returns the card of a run."""
    broken_off = {result.shape: [result.broken_off] for result in results if result.broken_off}
    return {"shapes": {result.shape: _of_shape(result) for result in results}, "skipped": skipped, "broken_off": broken_off}


def _of_shape(result: ShapeResult) -> Card:
    books = result.settlement
    faults: dict[str, Card] = {}
    for strike in result.strikes:
        for at, name in enumerate(strike.names):
            row = faults.setdefault(name, _empty_row())
            row["times"] += 1
            row["log_lines"] = round(row["log_lines"] + strike.num_lines / len(strike.names), 1)
            if at:
                continue  # what else came of several together counts as the first one's
            row["failed"] = dict(Counter(row["failed"]) + strike.failed)
            row["unexplained"] += len(strike.unexplained)
            row["late"] += strike.is_late
            row["longest_back_s"] = max(row["longest_back_s"], strike.back_s or 0.0)
            row["longest_bound_s"] = max(row["longest_bound_s"], round(strike.bound_s, 1))
            row["longest_share"] = max(row["longest_share"], strike.share_of_bound)
            row["longest_wait_s"] = max(row["longest_wait_s"], round(strike.longest_s, 2))
    return {
        "faults": faults,
        "runs": 1,
        "seconds": result.seconds,
        "requests": result.num_requests,
        "answers": result.num_answers,
        "jobs": dict(books.num_jobs),
        "wrong": len(result.wrong) + len(books.wrong),
        "lost": len(books.lost),
        "doubled": len(books.doubled),
        "leaks": len(result.leaks),
        "broken": len(result.broken),
    }


def _empty_row() -> Card:
    longest = {"longest_back_s": 0.0, "longest_bound_s": 0.0, "longest_share": 0.0, "longest_wait_s": 0.0}
    return {"times": 0, "failed": {}, "unexplained": 0, "late": 0, "log_lines": 0, **longest}


def violations_of(card: Card) -> list[str]:
    """Returns every figure that is beyond its bound."""
    violations = [f"{shape}: broken off {reason}" for shape, reasons in card.get("broken_off", {}).items() for reason in reasons]
    for shape, figures in card["shapes"].items():
        violations += [f"{shape}: {name} is {figures[name]}, expected 0" for name in _ZERO if figures.get(name)]
        for fault, row in figures["faults"].items():
            violations += [f"{shape}, {fault}: {name} is {row[name]}, expected 0" for name in _ZERO if row.get(name)]
            if row["log_lines"] > MAX_LOG_LINES * row["times"]:
                violations.append(f"{shape}, {fault}: {row['log_lines']} lines for {row['times']}, at most {MAX_LOG_LINES} each")
    return violations


def added(card: Any, other: Any, name: str = "") -> Any:
    """Returns two cards as one."""
    if isinstance(card, dict):
        both = {key: added(card[key], other[key], key) for key in card if key in other}  # pyright: ignore[reportUnknownVariableType]
        return {**card, **other, **both}
    if isinstance(card, str):
        return other
    if isinstance(card, list):
        return [*card, *other]  # pyright: ignore[reportUnknownVariableType]
    return max(card, other) if name.startswith("longest") else round(card + other, 1)


def add_to_day(card: Card, folder: Path, day: datetime.date) -> None:
    """Adds a card to those of a day, and writes its page."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{day}.json"
    if path.exists():
        card = added(json.loads(path.read_text()), card)
    path.write_text(json.dumps(card, indent=1) + "\n")
    (folder / f"{day}.md").write_text(page_of(card, day))


_OF_SHAPES = (
    "shape",
    "faults",
    "requests",
    "failed",
    "jobs",
    "wrong",
    "lost",
    "doubled",
    "unexplained",
    "late",
    "leaks",
    "broken",
)
_OF_FAULTS = (
    "fault",
    "times",
    "requests that failed",
    "until all were answered again",
    "bound",
    "closest to its bound",
    "longest wait",
    "lines in logs, each",
)


def page_of(card: Card, day: datetime.date) -> str:
    """Returns a card as a page."""
    shapes: Card = card["shapes"]
    num_faults = sum(row["times"] for figures in shapes.values() for row in figures["faults"].values())
    num_requests = sum(figures["requests"] for figures in shapes.values())
    violations = violations_of(card)
    verdict = f"**Beyond their bounds: {len(violations)}**, below." if violations else "**No figure is beyond its bound.**"
    skipped = [f"* {shape}: skipped: {reason}" for shape, reason in card["skipped"].items() if shape not in shapes]
    broken_off = " and ".join(card.get("broken_off", {}))
    lines = [
        f"# Storm of {day}",
        "",
        *([f"**Not whole: {broken_off} broke off, below.**", ""] if broken_off else []),
        f"{num_faults:,} faults, {num_requests:,} requests. {verdict} [What it does](../storm.md).",
        "",
        *_table(_OF_SHAPES, [_row_of_shape(shape, figures) for shape, figures in shapes.items()]),
        "",
        *skipped,
    ]
    for shape, figures in shapes.items():
        rows = [_row_of_fault(fault, row) for fault, row in sorted(figures["faults"].items())]
        lines += ["", f"## {shape}", "", *_table(_OF_FAULTS, rows)]
    if violations:
        lines += ["", "## Beyond bounds", "", *(f"* {text}" for text in violations)]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _row_of_shape(shape: str, figures: Card) -> list[Any]:
    times, unexplained, late = (sum(row[name] for row in figures["faults"].values()) for name in ("times", "unexplained", "late"))
    num_failed, num_jobs = figures["requests"] - figures["answers"], sum(figures["jobs"].values())
    books = [figures[name] for name in ("wrong", "lost", "doubled")]
    return [
        shape,
        times,
        figures["requests"],
        num_failed,
        num_jobs,
        *books,
        unexplained,
        late,
        figures["leaks"],
        figures["broken"],
    ]


def _row_of_fault(fault: str, row: Card) -> list[Any]:
    failed = ", ".join(f"{number:,} `{code}`" for code, number in sorted(row["failed"].items())) or "none"
    num_lines = f"{row['log_lines'] / row['times']:.1f}"
    if not row["longest_bound_s"]:
        return [fault, row["times"], *["with others"] * (len(_OF_FAULTS) - 3), num_lines]
    back_s, bound_s, wait_s = (f"{row[name]:.1f} s" for name in ("longest_back_s", "longest_bound_s", "longest_wait_s"))
    return [fault, row["times"], failed, back_s, bound_s, f"{row['longest_share']:.0%}", wait_s, num_lines]


def _table(head: Sequence[str], rows: list[list[Any]]) -> list[str]:
    cells = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]
