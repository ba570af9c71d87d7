"""A flash crowd: which answers its clients get, and when, with and without the gateway's shedding.

    python -m benchmarks.focused.overload [--rounds 2] [--base-rps 100] [--crowd 50] [--limit-s 0.2]

A real ``dyorc serve`` with one small program gets `base` requests a second, then for some seconds `crowd` times as many, then
`base` again. Each request says by ``Request-Timeout`` how long its client waits. Latencies count from when a request was sent, or
would have been sent with a free connection. The generator's own lateness is reported separately, since others use the machine
too.

The last line is one JSON object. For the requests that were due in the crowd, with and without shedding, it has the share of each
status (``none``: no answer in time to be counted), percentiles of all answers and of those with 200, and the share of these that
came within the limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.focused import turns
from benchmarks.focused.hostile import victims
from benchmarks.processes import adopt_orphans
from benchmarks.serving import serving
from loadgen import measures
from loadgen.load import Load
from loadgen.measures import MeasuredRequests
from loadgen.pool import Pool
from loadgen.recording import CORRECT, FIRST_ERROR, UNANSWERED
from loadgen.targets.base import TargetSpec
from loadgen.worker import WorkerPlan
from loadgen.workers import Workers

_CALM_S = 3.0
_CROWD_S = 5.0
_DRAIN_S = 10.0
_MAX_CONNECTIONS = 8192
_NICENESS = (
    -20
)  # real clients have machines of their own, so the generator takes precedence over the server, where that is allowed
_SETTING = "DYORC_GATEWAY__SHED"
_STATUSES = ("200", "503", "504")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--base-rps", type=float, default=100.0)
    parser.add_argument("--crowd", type=float, default=50.0, help="how many times as many")
    parser.add_argument("--limit-s", type=float, default=0.2, help="how long each client waits")
    options = parser.parse_args()
    adopt_orphans()
    by_mode: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    for _ in range(options.rounds):
        for name, rounds in by_mode.items():
            rounds.append(_measure(options, is_shedding=name == "with"))
            print(name, rounds[-1], file=sys.stderr, flush=True)
    print(json.dumps({name: _medians(rounds) for name, rounds in by_mode.items()}))


def _measure(options: argparse.Namespace, *, is_shedding: bool) -> dict[str, float]:
    command = turns.dyorc(f"{victims.__file__}:answer").command
    with serving(command, {_SETTING: str(is_shedding).lower()}) as (address, _), tempfile.TemporaryDirectory() as folder:
        spec = TargetSpec(
            protocol="http",
            url=address.url,
            model="answer",
            headers={"Request-Timeout": str(options.limit_s)},
            max_connections=_MAX_CONNECTIONS,
        )
        return _figures(_crowd(spec, options.base_rps, options.crowd, Path(folder)), options.limit_s)


def _crowd(spec: TargetSpec, base_rps: float, crowd: float, folder: Path) -> MeasuredRequests:
    """Returns the requests that were due while the crowd was there."""
    trace, pool = folder / "trace.txt", folder / "pool.npz"
    trace.write_text("\n".join(f"{at_s:.6f}" for at_s in _times_s(base_rps, crowd)))
    _pool().save(pool)
    load = Load(
        arrivals="trace", trace=str(trace), warm_up_s=_CALM_S, duration_s=_CROWD_S + _CALM_S, drain_s=_DRAIN_S, niceness=_NICENESS
    )
    with Workers([WorkerPlan(spec=spec, load=load, pool=str(pool), number=0)], folder) as workers:
        records = workers.run(lambda start_ns: (), 2 * _CALM_S + _CROWD_S + _DRAIN_S, None)
    return measures.select_measured(records, round(_CALM_S * 1e9), round((_CALM_S + _CROWD_S) * 1e9))


def _times_s(base_rps: float, crowd: float) -> Sequence[float]:
    """Returns when requests are due: Poisson arrivals at three successive rates."""
    rng = np.random.default_rng(0)
    times_s: list[float] = []
    start_s = 0.0
    for duration_s, rate in ((_CALM_S, base_rps), (_CROWD_S, base_rps * crowd), (_CALM_S, base_rps)):
        gaps_s = rng.exponential(1 / rate, round(2 * rate * duration_s) + 100)
        at_s = start_s + np.cumsum(gaps_s)
        start_s += duration_s
        times_s += at_s[at_s < start_s].tolist()
    return times_s


def _pool() -> Pool:
    inputs = [{"x": np.full(16, number, np.float32)} for number in range(8)]
    return Pool(inputs=inputs, answers=[{"output": tensors["x"] * 2} for tensors in inputs], branches=[])


def _figures(measured: MeasuredRequests, limit_s: float) -> dict[str, float]:
    num = len(measured.outcome)
    is_right = measured.outcome == CORRECT
    figures = {f"share_{status}": 0.0 for status in _STATUSES}
    figures["share_200"] = float(is_right.mean())
    figures["share_none"] = float((measured.outcome == UNANSWERED).mean())
    for text, count in measured.errors.items():
        status = text.removeprefix("HTTP ")[:3]
        name = f"share_{status if status in _STATUSES else 'none'}"
        figures[name] += count / num
    figures["share_wrong"] = 1.0 - sum(value for name, value in figures.items() if name.startswith("share_"))
    latency_ns = measured.latency_ns - measured.send_delay_ns
    is_answered = is_right | (measured.outcome >= FIRST_ERROR)
    for name, chosen in (("answer", is_answered), ("200", is_right)):
        if chosen.any():
            latencies = measures.quantiles(latency_ns[chosen])
            figures |= {f"{name}_p50_ms": latencies.p50, f"{name}_p90_ms": latencies.p90, f"{name}_p99_ms": latencies.p99}
    figures["200_in_time"] = float((latency_ns[is_right] <= limit_s * 1e9).mean()) if is_right.any() else 0.0
    figures["send_delay_p90_ms"] = measures.quantiles(measured.send_delay_ns).p90
    return {name: round(value, 4) for name, value in figures.items()}


def _medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for figures in rounds for name in figures)
    return {name: round(statistics.median(figures[name] for figures in rounds if name in figures), 4) for name in names}


if __name__ == "__main__":
    main()
