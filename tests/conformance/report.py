"""The rows as a page of documentation, without anything that changes from run to run."""

from __future__ import annotations

from collections.abc import Sequence

from tests.conformance.rows import Row

_HEAD = """# Conformance

Written by `make conformance`; do not edit. Each row is a promise of the
[Open Inference Protocol](https://github.com/kserve/open-inference-protocol) v2 with Triton's extensions, tried against a running
`dyorc serve`: by the four clients of `tritonclient` (`http`, `http.aio`, `grpc`, `grpc.aio`), by its generated gRPC stubs, and by
hand where a client cannot send what is to be refused. The numbers in front are those of `tests/conformance`: 3.1 routes, 3.2
inference and statuses, 3.3 binary data and compression, 3.4 gRPC, 3.5 shared memory, 3.7 what `perf_analyzer` does at its start.

`/metrics` is not in it.
"""


def page(rows: Sequence[Row]) -> str:
    """Returns the table: one line for each check, one column for each transport."""
    sections = sorted({row.section for row in rows})
    lines = [_HEAD, f"{sum(row.is_passed for row in rows)} of {len(rows)} checks pass.", ""]
    for section in sections:
        lines += _section(section, [row for row in rows if row.section == section])
    return "\n".join(lines).rstrip() + "\n"


def _section(section: str, rows: Sequence[Row]) -> list[str]:
    transports = list(dict.fromkeys(row.transport for row in rows))
    passed = {(row.name, row.transport): row.is_passed for row in rows}
    lines = [f"## {section}", "", f"| | {' | '.join(transports)} |", f"|---|{'---|' * len(transports)}"]
    for name in dict.fromkeys(row.name for row in rows):
        marks = [{True: "passed", False: "**failed**", None: ""}[passed.get((name, transport))] for transport in transports]
        lines.append(f"| {name.replace('|', chr(92) + '|')} | {' | '.join(marks)} |")
    return [*lines, ""]
