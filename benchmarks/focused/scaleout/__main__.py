"""How far gateways and orchestrators go.

    python -m benchmarks.focused.scaleout [--duration-s 4]

First, what one orchestrator decides, with replicas that take no time (`decisions.py`). Then requests per second through 1, 2
and 4 gateway processes before one orchestrator, beside the embedded server, with the processor time that each part takes for a
request: that tells how many gateways an orchestrator can feed, also on a machine with too few cores to try it.

The last line is one JSON object: ``decisions`` by replicas of each program, ``gateways`` by their number; 0 is the embedded
server.
"""

import argparse
import json
import subprocess
import sys

from benchmarks.focused.scaleout.parted import embedded, measure, parted

_CASES = ((1, 64), (10, 512), (100, 2048), (1000, 4096))
"""Replicas of each program, and requests in flight."""
_NUM_GATEWAYS = (1, 2, 4)


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duration-s", type=float, default=4.0, help="of each measurement")
    duration_s = parser.parse_args().duration_s
    decisions = {str(num_replicas): _decisions(num_replicas, num, duration_s) for num_replicas, num in _CASES}
    gateways: dict[str, dict[str, float]] = {}
    with embedded() as parts:
        gateways["0"] = _said("embedded", measure(parts, duration_s))
    for number in _NUM_GATEWAYS:
        with parted(number) as parts:
            gateways[str(number)] = _said(f"{number} gateways", measure(parts, duration_s))
    print(json.dumps({"decisions": decisions, "gateways": gateways}))


def _decisions(num_replicas: int, num_in_flight: int, duration_s: float) -> dict[str, float]:
    module = "benchmarks.focused.scaleout.decisions"
    command = [sys.executable, "-m", module, str(num_replicas), str(num_in_flight), str(duration_s)]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return _said(f"{num_replicas} replicas", json.loads(finished.stdout.splitlines()[-1]))


def _said(heading: str, figures: dict[str, float]) -> dict[str, float]:
    print(f"{heading}: {figures}", file=sys.stderr, flush=True)
    return figures


if __name__ == "__main__":
    main()
