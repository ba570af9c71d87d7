"""Scaling on a real server, with real programs over HTTP.

    python -m benchmarks.focused.scaling_live [--parts dyorc,dyorc_thrifty,kills,branch,ray_serve_default,...]
        [--duration-s 300] [--cycle-s 15] [--rate-rps 8] [--steady-s 60] [--kills-s 120] [--requests 10] [--seed 0]

dyorc, dyorc_thrifty: the guarded example gets a load that goes on and off, and then a constant one. How many requests are lost or
late, how often replicas come and go, how long they are warm and parked, and whether their number settles under the constant load.
With its defaults, DyOrc keeps a replica through short pauses; the thrifty one keeps none, so replicas come and go with each.

ray_serve_default, ..._zero_delay, ..._quick: the same trace, with the same programs, on Ray Serve with its autoscaler:
with its defaults, with its delays at zero, and as quick as it can be made. All may scale to zero (`settings.py`).

kills: kill -9 of the fork server, of parked replicas and of warming ones, while the load goes on and off.

branch: the first request that takes a branch which is scaled to zero, parked or without a process, after an upstream that takes
longer than the branch takes to load, or to be forked and to load.

Progress goes to stderr. The last line of stdout is one JSON object with the figures of each part. Takes 35 minutes.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Mapping

from benchmarks.focused.scaling_live.branch import measure_branch
from benchmarks.focused.scaling_live.kills import measure_kills
from benchmarks.focused.scaling_live.on_off import DYORC, PEERS, Steady, measure_dyorc, measure_peer
from benchmarks.focused.scaling_live.traffic import OnOff
from benchmarks.serving import BenchmarkError
from loadgen.errors import WorkerFailedError


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="", help="comma-separated; all without it")
    parser.add_argument("--duration-s", type=float, default=300.0, help="of the on/off load")
    parser.add_argument("--cycle-s", type=float, default=15.0, help="once on and off, on average")
    parser.add_argument("--rate-rps", type=float, default=8.0, help="on average; two and a half times as many while it is on")
    parser.add_argument("--steady-s", type=float, default=60.0, help="of the constant load")
    parser.add_argument("--kills-s", type=float, default=120.0, help="of the load that is killed under")
    parser.add_argument("--requests", type=int, default=10, help="that find the branch warm, parked, and cold")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    parts = _parts(options)
    chosen = options.parts.split(",") if options.parts else list(parts)
    if unknown := set(chosen) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # an exception, so that the server is stopped
    try:
        print(json.dumps({name: parts[name]() for name in chosen}))
    except (BenchmarkError, WorkerFailedError, OSError) as error:
        sys.exit(f"error: {error}")


def _parts(options: argparse.Namespace) -> Mapping[str, Callable[[], Mapping[str, object]]]:
    load = OnOff(duration_s=options.duration_s, cycle_s=options.cycle_s, rate_rps=options.rate_rps, seed=options.seed)
    steady = Steady(rate_rps=options.rate_rps, duration_s=options.steady_s)
    return {
        **{name: lambda name=name: measure_dyorc(name, load, steady) for name in DYORC},
        "kills": lambda: measure_kills(options.kills_s, options.seed),
        "branch": lambda: measure_branch(options.requests),
        **{name: lambda name=name: measure_peer(name, load) for name in PEERS},
    }


if __name__ == "__main__":
    main()
