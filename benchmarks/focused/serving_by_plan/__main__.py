"""Answers batches by MiniLM on one process, on two replicas, and on two ranks by the plans of Megatron and of a pipeline.

    python -m benchmarks.focused.serving_by_plan [--rounds 4] [--duration-s 1.5] [--output FILE]

All take turns, so that what disturbs the machine disturbs all. Latency is that of one batch at a time; throughput is of as many
batches as can be on their way. Needs two cores that nothing else uses.

The last line is one JSON object: for each system the medians over the rounds, the figures of each round, which tell how quiet the
machine was, and the bytes of the weights that each process holds. Exits with 1 if answers differ from those of one process.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from benchmarks.focused.serving_by_plan.systems import Group, OneProcess, Replicas, System, model, weights_bytes
from benchmarks.output_paths import output_file
from dyorc.planner.cluster import load_cluster
from dyorc.planner.plan import Collective, Plan, Transfer
from dyorc.planner.planners import FOR_INFERENCE, PLANNERS
from dyorc.planner.program import capture_inference

_CLUSTER = Path("examples/router/two_cores.toml")
_BATCHES = (1, 8, 32)
_NUM_LATENCIES = 15
_SAME = 1e-5


def main() -> int:
    """Runs the benchmark, and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--duration-s", type=float, default=1.5)
    parser.add_argument("--output", type=output_file)
    options = parser.parse_args()
    plans = _plans()
    torch.manual_seed(0)
    tokens = {size: torch.randint(1, 30_000, (size, 32)) for size in _BATCHES}
    systems: dict[str, System] = {
        "one_process_1_thread": OneProcess(1),
        "one_process_2_threads": OneProcess(2),
        "two_replicas": Replicas(2),
        **{name: Group(plan) for name, plan in plans.items()},
    }
    try:
        differences = {name: _difference(system, systems["one_process_1_thread"], tokens) for name, system in systems.items()}
        rounds = _rounds(systems, tokens, options.rounds, options.duration_s)
    finally:
        for system in systems.values():
            system.close()
    summary = {
        "systems": {name: _medians(figures) for name, figures in rounds.items()},
        "plans": {name: _about(plan) for name, plan in plans.items()},
        "differences": differences,
        "rounds": rounds,
        "num_cores": os.cpu_count(),
    }
    if options.output:
        options.output.write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary))
    return int(max(differences.values()) > _SAME)


def _plans() -> dict[str, Plan]:
    with torch.device("meta"):
        program = capture_inference(model().Bert(), (torch.zeros(max(_BATCHES), 32, dtype=torch.int64),))
    cluster = load_cluster(_CLUSTER)
    return {name: PLANNERS[name](program, cluster) for name in FOR_INFERENCE}


def _difference(system: System, other: System, tokens: Mapping[int, torch.Tensor]) -> float:
    return max(float((system.answer(batch) - other.answer(batch)).abs().max()) for batch in tokens.values())


def _rounds(
    systems: Mapping[str, System], tokens: Mapping[int, torch.Tensor], num_rounds: int, duration_s: float
) -> dict[str, list[dict[str, float]]]:
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
    for number in range(num_rounds):
        for name, system in systems.items():
            figures = {"latency_ms_1": _latency_ms(system, tokens[1])}
            for size in _BATCHES[1:]:
                figures[f"samples_per_s_{size}"] = size * system.batches_per_s(tokens[size], duration_s)
            rounds[name].append({key: round(value, 3) for key, value in figures.items()})
            print(f"round {number + 1}  {name:<22} {rounds[name][-1]}", file=sys.stderr, flush=True)
    return rounds


def _latency_ms(system: System, tokens: torch.Tensor) -> float:
    system.answer(tokens)
    taken_s: list[float] = []
    for _ in range(_NUM_LATENCIES):
        began_s = time.perf_counter()
        system.answer(tokens)
        taken_s.append(time.perf_counter() - began_s)
    return 1e3 * statistics.median(taken_s)


def _medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(figures[key] for figures in rounds), 2) for key in rounds[0]}


def _about(plan: Plan) -> dict[str, object]:
    moves = [step for step in plan.steps if isinstance(step, Collective) and step.kind not in ("slice", "mask")]
    transfers = [step for step in plan.steps if isinstance(step, Transfer)]
    return {"weights_bytes": weights_bytes(plan), "num_collectives": len(moves), "num_transfers": len(transfers)}


if __name__ == "__main__":
    sys.exit(main())
