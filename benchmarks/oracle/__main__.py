"""``python -m benchmarks.oracle WORKLOAD --rate R``: prints the oracle line of a workload at some rates."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.oracle.bound import lower_bound, saturation_rps
from benchmarks.oracle.costs import measured, parsed
from benchmarks.oracle.recording import record
from benchmarks.workloads import NAMES, workload


def main() -> None:
    """Measures costs, records requests, and prints one JSON object per rate."""
    arguments = _parser().parse_args()
    measured_workload = workload(arguments.workload)
    costs = parsed(json.loads(arguments.costs.read_text())) if arguments.costs else measured(measured_workload.name)
    trees = record(measured_workload, measured_workload.draw(arguments.recorded, arguments.seed)).trees
    limit_rps = saturation_rps(measured_workload, trees, costs, arguments.cores)
    for rate_rps in arguments.rate or [0.2 * limit_rps, 0.5 * limit_rps, 0.8 * limit_rps]:
        bound = lower_bound(measured_workload, trees, costs, rate_rps, arguments.requests, arguments.seed, arguments.cores)
        print(json.dumps({"workload": measured_workload.name, "rate_rps": rate_rps, "saturation_rps": limit_rps} | asdict(bound)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.oracle", description=__doc__)
    parser.add_argument("workload", choices=NAMES)
    parser.add_argument("--rate", type=float, action="append", help="requests per second; may be repeated")
    parser.add_argument("--requests", type=int, default=2000, help="how many arrive")
    parser.add_argument("--recorded", type=int, default=128, help="how many of them are different")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--costs", type=Path, help="a file that `benchmarks.oracle.costs` printed; measured if it is missing")
    return parser


if __name__ == "__main__":
    main()
