"""`python -m tests.conformance.doors [--doors go,openai,mcp] [--write docs/reference/conformance.md]`

Tries clients of others against a server that it starts, and prints, as the last line of stdout, one JSON object:
"passed", "failed", "failures", and "missing", the clients that the machine lacks something for. Exits with 1 if a check fails.
`make conformance-doors` gets what npm and PyPI have.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks.output_paths import output_file
from tests.conformance.doors import (
    browser,
    curl,
    frameworks_door,
    go,
    inspector_door,
    javascript,
    load_generators_door,
    mcp_sdk_door,
    openai_door,
)
from tests.conformance.doors.doors import Addresses, Door, served
from tests.conformance.doors.page import Tried, page
from tests.conformance.rows import Row, complain

DOORS = {
    "go": go.DOOR,
    "javascript": javascript.DOOR,
    "browser": browser.DOOR,
    "curl": curl.DOOR,
    "openai": openai_door.DOOR,
    "litellm": frameworks_door.LITELLM,
    "langchain": frameworks_door.LANGCHAIN,
    "aiperf": load_generators_door.AIPERF,
    "guidellm": load_generators_door.GUIDELLM,
    "mcp": mcp_sdk_door.DOOR,
    "inspector": inspector_door.DOOR,
}


def try_door(door: Door, addresses: Addresses) -> Tried:
    """Runs a client's checks, if the machine has what it needs."""
    missing = door.find_missing()
    if missing:
        return Tried(door.name, [], missing)
    with tempfile.TemporaryDirectory(prefix="door-") as folder:
        rows: list[Row] = []
        try:
            rows.extend(door.check(addresses, Path(folder)))
        except Exception as error:  # such as a compiler's
            rows.append(Row("doors", door.name, "runs", False, f"{type(error).__name__}: {error}"[:400]))
        return Tried(door.name, rows)


def try_all(doors: Iterable[Door]) -> list[Tried]:
    """Runs the checks of some clients on one server."""
    with served() as addresses:
        return [try_door(door, addresses) for door in doors]


def main() -> int:
    """Runs the checks and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doors", default=",".join(DOORS), help="some of %(default)s")
    parser.add_argument("--write", type=output_file, help="write the table to this Markdown file")
    arguments = parser.parse_args()
    names = arguments.doors.split(",")
    if unknown := set(names) - set(DOORS):
        parser.error(f"no such door: {', '.join(sorted(unknown))}, expected some of {', '.join(DOORS)}")
    tables = try_all([DOORS[name] for name in names])
    for one in tables:
        result = f"not tried: needs {one.missing}" if one.missing else f"{one.num_passed} of {len(one.rows)}"
        complain(f"{one.name}: {result}")
    failures = [row for one in tables for row in one.rows if not row.is_passed]
    for row in failures:
        complain(f"  failed: {row.transport}, {row.name}: {row.detail}")
    if arguments.write is not None:
        arguments.write.write_text(page(tables))
    summary = {
        "passed": sum(one.num_passed for one in tables),
        "failed": len(failures),
        "failures": [f"{row.transport}, {row.name}" for row in failures],
        "missing": {one.name: one.missing for one in tables if one.missing},
    }
    print(json.dumps(summary))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
