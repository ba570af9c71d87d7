"""The rates that low, medium and high load stand for: fractions of the highest rate at which three systems keep the SLO.

So even under high load there is somebody to compare with. The full benchmark finds that rate first. For the quick one, which has
no time for it, they are kept in a file; this makes it:

    python -m benchmarks.table.rates benchmarks/results/full/table.json
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from benchmarks.table.records import Table, read_table

_FILE = Path(__file__).with_name("rates.toml")
LOADS = {"low": 0.2, "medium": 0.5, "high": 0.8}
"""Parts of that rate."""
_NUM_SYSTEMS = 3


def read_rates() -> dict[str, float]:
    """For each workload the rate that the loads are parts of, in requests a second."""
    return tomllib.loads(_FILE.read_text())["reference_rps"]


def rates_of(reference_rps: float) -> dict[str, float]:
    """The rates of the loads, in requests a second."""
    return {load: round(part * reference_rps, 2) for load, part in LOADS.items()}


def reference_rps(highest: Sequence[float]) -> float:
    """What the loads are parts of: the third of the highest rates, or the lowest if fewer systems kept the SLO; 0 if none did."""
    kept = sorted((rps for rps in highest if rps > 0), reverse=True)
    return kept[:_NUM_SYSTEMS][-1] if kept else 0.0


def written(table: Table) -> str:
    """The file that a table makes."""
    found: dict[str, list[float]] = {}
    for one in table.highest:
        found.setdefault(one.workload, []).append(one.rps)
    lines = [f"{name} = {reference_rps(rps):.4g}" for name, rps in found.items()]
    about = "# Requests a second: the highest rate at which three systems kept the SLO. Made by benchmarks.table.rates.\n"
    return about + "[reference_rps]\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    _FILE.write_text(written(read_table(Path(sys.argv[1]))))
    print(_FILE.read_text())
