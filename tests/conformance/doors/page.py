"""The tables as a page of documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.conformance.rows import Row

_HEAD = """# Clients of others

Written by `make conformance-doors`; do not edit. Clients that this project did not write, of other languages, of OpenAI's API
and of the Model Context Protocol, call a running `dyorc serve`; each check passes if the client gets what its own documentation
promises. Triton's Python clients are in [Conformance](../testing/conformance.md).
"""


@dataclass(frozen=True)
class Tried:
    """What became of a client.

    Attributes:
        missing: What the machine lacks for it; then there are no rows.
    """

    name: str
    rows: Sequence[Row]
    missing: str = ""

    @property
    def num_passed(self) -> int:
        """How many checks passed."""
        return sum(row.is_passed for row in self.rows)


def page(found: Sequence[Tried]) -> str:
    """Returns one table with a row for each client, then the checks of each."""
    lines = [_HEAD, "| client | checks | passed |", "|---|---|---|"]
    for one in found:
        lines.append(f"| {one.name} | {f'not tried: needs {one.missing}' if one.missing else len(one.rows)} | {one.num_passed} |")
    for one in found:
        if one.rows:
            lines += ["", f"## {one.name}", "", "| | |", "|---|---|"]
            lines += [
                f"| {row.name.replace('|', '&#124;')} | {'passed' if row.is_passed else '**failed**'} |" for row in one.rows
            ]
    return "\n".join(lines) + "\n"
