"""The rates for low, medium and high load: fractions of the highest rate at which three systems meet the SLO.

So even under high load there are systems to compare with. The full benchmark finds that rate first. The quick one has no time for
that and reads the rate from a file, which this module writes:

    python -m benchmarks.table.rates benchmarks/results/full/table.json
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from benchmarks.table.records import Table, read_table

_FILE = Path(__file__).with_name("rates.toml")
_FILE_ON_DEVICES = Path(__file__).with_name("rates_on_devices.toml")
LOADS = {"low": 0.2, "medium": 0.5, "high": 0.8}
"""Fractions of that rate."""
_NUM_SYSTEMS = 3


def rates_file(*, on_devices: bool) -> Path:
    """Returns the file with the rates for programs on the processor, or on emulated accelerators."""
    return _FILE_ON_DEVICES if on_devices else _FILE


def read_rates(*, on_devices: bool = False) -> dict[str, float]:
    """Returns the rate of which the loads are fractions, in requests per second, by workload."""
    return tomllib.loads(rates_file(on_devices=on_devices).read_text())["reference_rps"]


def rates_of(reference_rps: float) -> dict[str, float]:
    """Returns the rate of each load, in requests per second."""
    return {load: round(part * reference_rps, 2) for load, part in LOADS.items()}


def reference_rps(highest: Sequence[float]) -> float:
    """Returns the rate of which the loads are fractions: the third highest, or the lowest if fewer systems met the SLO; 0 if none
    did."""
    kept = sorted((rps for rps in highest if rps > 0), reverse=True)
    return kept[:_NUM_SYSTEMS][-1] if kept else 0.0


def written(table: Table) -> str:
    """Returns the text of the rates file for a table."""
    rates: dict[str, list[float]] = {}
    for highest in table.highest:
        rates.setdefault(highest.workload, []).append(highest.rps)
    lines = [f"{name} = {reference_rps(rps):.4g}" for name, rps in rates.items()]
    about = "# Requests per second: the highest rate at which three systems met the SLO. Written by benchmarks.table.rates.\n"
    return about + "[reference_rps]\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    measured = read_table(Path(sys.argv[1]))
    file = rates_file(on_devices=measured.on_devices)
    file.write_text(written(measured))
    print(file.read_text())
