"""`python -m tests.zoo [--models a,b] [--libraries timm] [--plans none|quick|usual|every] [--resume] [--write PAGE]`

Captures each model of the zoo, compares the program with the module, plans it, runs the plans on two and four ranks, and compares
again, each with a time limit. What came of each model is kept after each. Prints a table and, as the last line of stdout, one
JSON object. Exits with 1 if a program or a plan is not equal.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from benchmarks.output_paths import output_file
from tests.zoo.models import LIBRARIES, entries
from tests.zoo.planning import EVERY, QUICK, USUAL, Case
from tests.zoo.report import Row, counts_of, is_captured, is_wrong, page_of, versions
from tests.zoo.supervising import Supervisor

_CASES: dict[str, Sequence[Case]] = {"none": (), "quick": QUICK, "usual": USUAL, "every": EVERY}
FEW = (
    "transformers/bert",
    "transformers/llama",
    "transformers/t5",
    "torchvision/resnet18",
    "timm/vit_tiny_patch16_224",
    "diffusers/UNet2DModel",
)
"""One of each kind, for a short run."""


def main() -> int:
    """Checks models and returns the exit status."""
    arguments = _arguments()
    names = [name for name in entries(arguments.libraries.split(",")) if _is_chosen(name, arguments.models)]
    before: list[dict[str, Any]] = json.loads(arguments.output.read_text())["rows"] if arguments.resume else []
    rows: dict[str, dict[str, Any]] = {row["name"]: row for row in before}
    left = [name for name in names if name not in rows]
    began_s = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt), Supervisor(arguments.limit) as supervisor:
        for number, name in enumerate(left, 1):
            row = rows[name] = supervisor.check(name, _CASES[arguments.plans])
            print(f"{number}/{len(left)} {_said(row)} ({time.monotonic() - began_s:.0f} s)", file=sys.stderr, flush=True)
            _keep(arguments.output, list(rows.values()))
    ended = [rows[name] for name in names if name in rows]
    Console(width=160).print(_table(ended))
    if arguments.write:
        arguments.write.write_text(page_of(ended, len(names) - len(ended)))
    counts = counts_of(ended)
    took_s = round(time.monotonic() - began_s, 1)
    print(json.dumps({"check": "zoo", **counts, "not_tried": len(names) - len(ended), "took_s": took_s, "versions": versions()}))
    return 1 if counts["wrong"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo")
    parser.add_argument("--models", default="", help="names or parts of names, or `few`; all if empty")
    parser.add_argument("--libraries", default=",".join(LIBRARIES), help="some of %(default)s")
    parser.add_argument("--plans", choices=_CASES, default="usual", help="which planners and clusters")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a capture, and for each plan; %(default)s")
    parser.add_argument("--output", type=output_file, default="benchmarks/results/planners/zoo.json", help="rows; %(default)s")
    parser.add_argument("--resume", action="store_true", help="leave out what is in the output already")
    parser.add_argument("--write", type=output_file, help="write the page to this file")
    return parser.parse_args()


def _is_chosen(name: str, models: str) -> bool:
    parts = FEW if models == "few" else models.split(",")
    return any(part == name if "/" in part else part in name for part in parts)


def _keep(output: Path, rows: list[dict[str, Any]]) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_suffix(".part")
    part.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    part.replace(output)


def _said(row: Row) -> str:
    capture = row["capture"]
    if not is_captured(row):
        return f"{row['name']}: {capture['refused'] or 'WRONG ' + format(capture['error'], '.1e') + ' ' + capture['where']}"
    bad = [
        f"{plan['planner']} on {plan['cluster']}: {plan['trouble'] or format(plan['error'], '.1e') + ' ' + plan['where']}"
        for plan in row["plans"]
        if not plan["is_equal"] and not plan["refused"]
    ]
    none = [f"no plan by {plan['planner']} on {plan['cluster']}: {plan['refused']}" for plan in row["plans"] if plan["refused"]]
    equal = sum(plan["is_equal"] for plan in row["plans"])
    return "; ".join([f"{row['name']}: captured, {equal} plans equal", *(f"WRONG {each}" for each in bad), *none])


def _table(rows: Sequence[Row]) -> Table:
    columns = [Column(name, justify="right") for name in ("models", "captured", "plans", "equal", "no plan")]
    table = Table("library", *columns, title="Models of other libraries", box=None)
    counts = counts_of(rows)
    for name, own in [*counts["libraries"].items(), ("all", counts)]:
        table.add_row(name, *(str(own[key]) for key in ("models", "captured", "plans", "plans_equal", "no_plan")))
    for row in rows:
        if is_wrong(row):
            table.add_section()
            table.add_row(_said(row))
    return table


if __name__ == "__main__":
    sys.exit(main())
