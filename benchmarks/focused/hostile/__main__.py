"""How much misbehaving clients disturb others: the 99th percentile of a well-behaved client alone and beside them.

``python -m benchmarks.focused.hostile [--rounds N] [--duration-s S] [--attacks idle,slow,deaf]``. On a real ``dyorc serve``:
10,000 idle connections, 1,000 slow senders, or 50 clients that do not read answers of 4 MB; between these attacks the client is
alone. The last line is one JSON object; the goal is a ratio of at most 1.5 for each.
"""

import argparse
import json
from pathlib import Path

from benchmarks.focused import turns
from benchmarks.focused.hostile.beside import Attack, Probe, measure
from benchmarks.serving import serving

_VICTIMS = Path(__file__).with_name("victims.py")
_NUM_ATTACKERS = {"idle": 10_000, "slow": 1000, "deaf": 50}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duration-s", type=float, default=6.0)
    parser.add_argument("--attacks", default=",".join(_NUM_ATTACKERS), help="some of %(default)s")
    parser.add_argument("--scale", type=float, default=1.0, help="for a quick try: the fraction of attackers to start")
    options = parser.parse_args()
    figures = {}
    with serving([*turns.dyorc(f"{_VICTIMS}:answer").command, f"{_VICTIMS}:answer_at_length"]) as (address, _):
        probe = Probe(url=address.url, duration_s=options.duration_s, headers={})
        for name in options.attacks.split(","):
            num = max(2, round(_NUM_ATTACKERS[name] * options.scale))
            figures[name] = measure(Attack(name=name, arguments=[name, address.url, str(num)]), probe, options.rounds)
    print(json.dumps({**figures, "worst_p99_ratio": max(one["p99_ratio"] for one in figures.values())}))


if __name__ == "__main__":
    main()
