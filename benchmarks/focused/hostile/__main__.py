"""How much misbehaving clients disturb others: the 99th percentile of a well-behaved client alone and beside them.

``python -m benchmarks.focused.hostile [--systems dyorc,dyorc_cells_2] [--rounds N] [--attacks idle,slow,deaf]``. On a real
``dyorc serve``, with replicas on Ray and with two cells: 10,000 idle connections, 1,000 slow senders, or 50 clients that do not
read answers of 4 MB; between these attacks the client is alone. The last line is one JSON object, by mode; the goal is a ratio
of at most 1.5 for each.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.focused import turns
from benchmarks.focused.hostile.beside import BOTH_MODES, Attack, Probe, measure
from benchmarks.focused.turns import System
from benchmarks.serving import serving

_VICTIMS = Path(__file__).with_name("victims.py")
_SYSTEMS = turns.dyorc_modes(f"{_VICTIMS}:answer")
_NUM_ATTACKERS = {"idle": 10_000, "slow": 1000, "deaf": 50}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", default=BOTH_MODES, help=f"some of {','.join(_SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duration-s", type=float, default=6.0)
    parser.add_argument("--attacks", default=",".join(_NUM_ATTACKERS), help="some of %(default)s")
    parser.add_argument("--scale", type=float, default=1.0, help="for a quick try: the fraction of attackers to start")
    options = parser.parse_args()
    print(json.dumps({name: _measured(_SYSTEMS[name], options) for name in options.systems.split(",")}))


def _measured(system: System, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures of one mode."""
    figures = {}
    with serving([*system.command, f"{_VICTIMS}:answer_at_length"], system.environment) as (address, _):
        probe = Probe(url=address.url, duration_s=options.duration_s, headers={})
        for name in options.attacks.split(","):
            num = max(2, round(_NUM_ATTACKERS[name] * options.scale))
            figures[name] = measure(Attack(name=name, arguments=[name, address.url, str(num)]), probe, options.rounds)
    return {**figures, "worst_p99_ratio": max(case["p99_ratio"] for case in figures.values())}


if __name__ == "__main__":
    main()
