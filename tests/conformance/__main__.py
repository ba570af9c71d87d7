"""`python -m tests.conformance [--servers main,closed,cell,parted,uvicorn,ocr,http2] [--only TEXT] [--write FILE]`

Starts servers, checks every promise of the protocol, prints the table of passes and, as the last line of stdout, one JSON
object: "passed", "failed", and "failures", which names each. Exits with 1 if a check fails. Needs `.venv-tritonclient`
(`make conformance` makes it). Takes two to three minutes.
"""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table as PrintedTable

from benchmarks.output_paths import output_file
from tests.conformance.report import page
from tests.conformance.rows import Row
from tests.conformance.servers import SERVERS, TRITONCLIENT, check


def _print(rows: list[Row], console: Console) -> None:
    table = PrintedTable("section", "transport", "check", "", "what went wrong", title="Conformance")
    for row in rows:
        mark = "[green]passed[/]" if row.is_passed else "[red]failed[/]"
        table.add_row(row.section, row.transport, row.name, mark, escape(row.detail))
    console.print(table)


def main() -> int:
    """Runs the checks and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default=",".join(SERVERS), help="some of %(default)s")
    parser.add_argument("--only", default="", help="only rows that have this in section, transport or name")
    parser.add_argument("--write", type=output_file, help="write the table to this Markdown file")
    arguments = parser.parse_args()
    names = arguments.servers.split(",")
    if unknown := set(names) - set(SERVERS):
        parser.error(f"no such server: {', '.join(sorted(unknown))}")
    if not TRITONCLIENT.exists():
        parser.error(f"{TRITONCLIENT} does not exist; `make conformance` makes it")
    progress = Console(stderr=True)
    rows: list[Row] = []
    written: list[Row] = []
    for name in names:
        progress.print(f"server {name!r} ...", highlight=False)
        for row in check(name, arguments.only):
            rows.append(row)
            if not SERVERS[name].repeats:
                written.append(row)
            if not row.is_passed:
                progress.print(
                    f"  failed: {row.section}, {row.transport}, {row.name}: {escape(row.detail)}", highlight=False, soft_wrap=True
                )
    _print(rows, Console(width=180))
    if arguments.write is not None:
        arguments.write.write_text(page(written))
    failures = [f"{row.section}, {row.transport}, {row.name}" for row in rows if not row.is_passed]
    print(json.dumps({"passed": len(rows) - len(failures), "failed": len(failures), "failures": failures}))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
