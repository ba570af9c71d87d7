"""How long until a replica that is decided on can work, next to Ray Serve's own autoscaling from zero.

    python -m benchmarks.focused.coldstart [--rounds 3] [--weights-mb 200] [--no-default]

The program is a torch net whose weights lie in the page cache. DyOrc: from the decision until the replica has joined, with its
weights read, without a fork server (``cold_s``), with one (``fork_s``), and if the replica is parked (``parked_s``). Ray Serve:
an application with ``min_replicas=0`` gets a request; until its answer, with the defaults of its autoscaling
(``ray_serve_default_s``) and with its delays at zero (``ray_serve_zero_delay_s``). ``second_replica_ratio`` is what a second
replica adds to the memory of all, by the memory that only it uses; the goal is less than 1.2.

Medians of the rounds; Ray Serve's defaults are measured once. The last line of stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.focused.coldstart import ours, program
from benchmarks.processes import adopt_orphans

_MB = 2**20
_ZERO_DELAY = '{"upscale_delay_s": 0, "look_back_period_s": 1, "metrics_interval_s": 0.1}'
_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured.

    Attributes:
        starts: Of DyOrc, one for each round.
        theirs: Seconds until each of Ray Serve's applications has answered: ``zero0``, ``zero1``, ..., and perhaps ``default``.
    """

    starts: Sequence[ours.Starts]
    theirs: Mapping[str, float]


def main(arguments: Sequence[str] | None = None, measure: Callable[[argparse.Namespace], Measured] | None = None) -> None:
    """Measures and prints.

    Args:
        arguments: The command line; None: that of this process.
        measure: Measures in place of real replicas.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--weights-mb", type=int, default=200)
    parser.add_argument("--no-default", action="store_true", help="leave out Ray Serve's defaults, which take half a minute")
    options = parser.parse_args(arguments)
    print(json.dumps(_figures((measure or _measure)(options))))


def _measure(options: argparse.Namespace) -> Measured:
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name:
        folder = Path(name)
        weights = folder / "weights.safetensors"
        program.write_weights(weights, options.weights_mb * _MB)
        os.environ[program.WEIGHTS] = str(weights)
        starts = [_ours(folder, weights, number) for number in range(options.rounds)]
        return Measured(starts, _ray_serve(folder, options.rounds, has_default=not options.no_default))


def _ours(folder: Path, weights: Path, number: int) -> ours.Starts:
    place = folder / str(number)
    place.mkdir()
    starts = asyncio.run(ours.measure(place, weights))
    print(f"round {number + 1}: {starts}", file=sys.stderr, flush=True)
    return starts


def _ray_serve(folder: Path, num_rounds: int, *, has_default: bool) -> dict[str, float]:
    """Returns the seconds until each application has answered, by its name."""
    configs = [f"zero{number}={_ZERO_DELAY}" for number in range(num_rounds)]
    if has_default:
        configs.append("default={}")
    command = [sys.executable, "-m", "benchmarks.focused.coldstart.ray_serve", str(folder), *configs]
    environment = os.environ | {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True)
    figures: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    print(f"Ray Serve: {figures}", file=sys.stderr, flush=True)
    return figures


def _figures(measured: Measured) -> dict[str, float | None]:
    starts, theirs = measured.starts, measured.theirs
    zero = [value for name, value in theirs.items() if name.startswith("zero")]
    return {
        "cold_s": round(statistics.median(start.cold_s for start in starts), 3),
        "fork_s": round(statistics.median(start.fork_s for start in starts), 3),
        "parked_s": round(statistics.median(start.parked_s for start in starts), 3),
        "ray_serve_default_s": round(theirs["default"], 3) if "default" in theirs else None,
        "ray_serve_zero_delay_s": round(statistics.median(zero), 3),
        "second_replica_mb": round(statistics.median(start.second_bytes for start in starts) / _MB, 1),
        "second_replica_ratio": round(statistics.median(start.second_bytes / start.second_own_bytes for start in starts), 3),
    }


if __name__ == "__main__":
    main()
