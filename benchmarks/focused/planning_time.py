"""How long a plan takes to find, by the number of devices: 8, 64 and 512, of one and of two kinds.

    python -m benchmarks.focused.planning_time [--planner hap] [--devices 8,64,512] [--kinds 1,2] [--layers 12] [--profile]

The model is an encoder (BERT) whose layers are all alike; its program is captured once and is the same for all clusters. Each
device is a separate machine; of two kinds, the first half is twice as fast. What is timed is the planner, and after it the
proof of its plan, each cluster in its own process: what one search leaves in memory must not slow the next.

The last line is one JSON object: for each cluster the seconds of the planner, also those of the processor alone, and of the
proof, the steps of the plan, and the simulated seconds of a step, which say whether a quicker search finds as good a plan. Exits
with 1 if a proof fails.
"""

import argparse
import gc
import json
import multiprocessing
import sys
import time
from cProfile import Profile
from pstats import Stats
from typing import Any

import torch

from dyorc.planner.cluster import Cluster
from dyorc.planner.cluster.small import uneven_cluster
from dyorc.planner.models import bert
from dyorc.planner.planners.auto import plan
from dyorc.planner.planners.baselines.follow import choices_of
from dyorc.planner.program import TensorProgram, capture
from dyorc.planner.verify import verify

_SIZES = {"hidden": 256, "heads": 8, "vocabulary": 1024, "sequence": 64, "batch": 512}
_SPEEDS = (2.0, 1.0)
"""Of the kinds of devices, the first first."""


def main() -> int:
    """Runs the benchmark, and returns the exit status."""
    arguments = _arguments()
    program = _program(arguments.layers)
    clusters = [
        _cluster(int(num_devices), int(num_kinds))
        for num_kinds in arguments.kinds.split(",")
        for num_devices in arguments.devices.split(",")
    ]
    gc.freeze()
    rows: list[dict[str, Any]] = []
    for cluster in clusters:
        with multiprocessing.get_context("fork").Pool(1) as pool:
            rows.append(pool.apply(_timed, (program, cluster, arguments)))
    sizes = {"layers": arguments.layers, **_SIZES}
    print(json.dumps({"benchmark": "planning_time", "planner": arguments.planner, "model": sizes, "clusters": rows}))
    return 1 if any(row["findings"] for row in rows) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.focused.planning_time")
    parser.add_argument("--planner", default="hap")
    parser.add_argument("--devices", default="8,64,512")
    parser.add_argument("--kinds", default="1,2")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--profile", action="store_true", help="Print where the time goes; makes all of it longer.")
    return parser.parse_args()


def _program(layers: int) -> TensorProgram:
    with torch.device("meta"):
        module, inputs = bert(layers=layers, **_SIZES)
    program = capture(module, inputs, name=f"encoder of {layers} layers")
    choices_of(program)
    return program


def _cluster(num_devices: int, num_kinds: int) -> Cluster:
    return uneven_cluster(sorted((_SPEEDS[-1 - rank % num_kinds] for rank in range(num_devices)), reverse=True))


def _timed(program: TensorProgram, cluster: Cluster, arguments: argparse.Namespace) -> dict[str, Any]:
    began_s, profile = time.perf_counter(), Profile()
    began_cpu_s = time.process_time()
    if arguments.profile:
        profile.enable()
    made = plan(program, cluster, arguments.planner)
    search_s, search_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    report = verify(program, made)
    proof_s = time.perf_counter() - began_s - search_s
    if arguments.profile:
        profile.disable()
        Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(60)
        Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(40)
    num_kinds = len({device.flops_per_s for device in cluster.devices})
    cost_s = made.provenance.cost_s or 0.0
    print(
        f"{cluster.num_ranks} devices of {num_kinds} kinds: planned in {search_s:.1f} s (of the processor {search_cpu_s:.1f} s), "
        f"proved in {proof_s:.1f} s, {cost_s * 1e3:.4g} ms a step",
        file=sys.stderr,
        flush=True,
    )
    return {
        "devices": cluster.num_ranks,
        "kinds": num_kinds,
        "search_s": round(search_s, 2),
        "search_cpu_s": round(search_cpu_s, 2),
        "proof_s": round(proof_s, 2),
        "steps": len(made.steps),
        "step_s": cost_s,
        "findings": [str(finding) for finding in report.findings],
    }


if __name__ == "__main__":
    sys.exit(main())
