"""DyOrc's scaling policy beside others, simulated on traces of an hour: misses caused by cold starts, and replica-seconds.

    python -m benchmarks.focused.scaling [--kinds bursty,flash] [--seed 1] [--processes 2] [--picture docs/img/scaling.png]

Policies, traces, what is counted: docs/concepts/scaling.md. A trace has 4 requests a second, seven of ten to `assist`, the
others to `read`. It meets the goal next to Ray Serve's rule (`reactive`, and `reactive0` without its delays) if `predictive` has
at most a tenth of its misses for at most 1.1 times its replica-seconds, or no more misses for at most 0.7 times. Both are said
twice: parked replicas, which hold only memory, count nothing, or as much as warm ones.

Tables go to stderr. The last line of stdout is one JSON object. Takes about five minutes on two cores.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

from benchmarks.output_paths import output_file
from dyorc.cli.simulate_scaling import table
from dyorc.simulation.pictures import draw_scaling
from dyorc.simulation.scaling.policy_comparison import ORACLE, PREDICTIVE, PolicyComparison, compare
from dyorc.simulation.scaling.replay import Scene
from dyorc.simulation.scaling.scaling_results import ScalingResult
from loadgen.traces import TraceKind, TracePlan, draw_trace

_RATE_RPS = 4.0
_WEIGHTS = {"assist": 7.0, "read": 3.0}
_REACTIVE = ("reactive", "reactive0")
_PARKED_WEIGHTS = {"parked_free": 0.0, "parked_full": 1.0}


def compared(kind: TraceKind, seed: int) -> PolicyComparison:
    """Replays one trace under every policy."""
    return compare(Scene(requests=draw_trace(TracePlan(kind=kind, rate_rps=_RATE_RPS, seed=seed, weights=_WEIGHTS)), seed=seed))


def judged(comparison: PolicyComparison) -> dict[str, Any]:
    """Returns a trace's figures, what they say of the goal, and how far the oracle is."""
    results = comparison.results
    ours, oracle = results[PREDICTIVE], results[ORACLE]
    return {
        **comparison.as_object(),
        "beside": {name: _beside(ours, results[name]) for name in _REACTIVE},
        "cost_over_oracle": {name: round(ours.cost_s(weight) / oracle.warm_s, 3) for name, weight in _PARKED_WEIGHTS.items()},
    }


def _beside(ours: ScalingResult, theirs: ScalingResult) -> dict[str, Any]:
    costs = {name: ours.cost_s(weight) / theirs.warm_s for name, weight in _PARKED_WEIGHTS.items()}
    return {
        "cold_misses": [ours.cold_misses, theirs.cold_misses],
        "cost_ratio": {name: round(cost, 3) for name, cost in costs.items()},
        "is_met": {name: _is_met(ours.cold_misses, theirs.cold_misses, cost) for name, cost in costs.items()},
    }


def _is_met(our_misses: int, their_misses: int, cost_ratio: float) -> bool:
    is_better = 10 * our_misses <= their_misses and cost_ratio <= 1.1
    return is_better or (our_misses <= their_misses and cost_ratio <= 0.7)


def main() -> None:
    """Replays all traces, and prints tables and figures."""
    arguments = _arguments()
    kinds: Sequence[TraceKind] = [TraceKind(kind) for kind in arguments.kinds.split(",")]
    comparisons: dict[str, PolicyComparison] = {}
    # Not forked: a child must not inherit threads of numeric libraries.
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        for kind, comparison in zip(kinds, pool.map(partial(compared, seed=arguments.seed), kinds), strict=True):
            comparisons[kind] = comparison
            print(f"{kind}\n{table(list(comparison.results.values()))}\n", file=sys.stderr, flush=True)
    if arguments.picture is not None:
        draw_scaling(comparisons, arguments.picture)
    traces = {kind: judged(comparison) for kind, comparison in comparisons.items()}
    met = {
        weight: [trace["beside"][name]["is_met"][weight] for trace in traces.values() for name in _REACTIVE]
        for weight in _PARKED_WEIGHTS
    }
    goals = {weight: f"{sum(goals_met)} of {len(goals_met)}" for weight, goals_met in met.items()}
    print(json.dumps({"traces": traces, "num_goals_met": goals}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(TraceKind), help="kinds of traces")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--picture", type=output_file, help="draw into this file; needs matplotlib")
    return parser.parse_args()


if __name__ == "__main__":
    main()
