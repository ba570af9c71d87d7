"""Trains a small GPT on two ranks, one half as fast, by the plan of each planner.

    python -m benchmarks.focused.planners [--steps 200] [--rounds 4] [--slowness 1,2] [--mbytes-per-s 50] [--size full|quick]
                                          [--planners dp_even,dp_proportional,hap,duplex_hap] [--no-overlap]

The slow rank does all its work twice, which is the same on every machine. Links let so many bytes pass in a second, also the same
everywhere. The ranks are measured first, and the planners and the simulator know only that. Of each plan, the order of steps that
the simulator finds quicker is run: the planner's own, or with communication as early as possible. Planners take turns: each
trains a part of its steps in each round, and goes on from its checkpoint in the next, so that what disturbs the machine disturbs
all.

The last line is one JSON object: for each planner the median seconds of a step, those of each round, which tell how quiet the
machine was, the seconds that the simulator predicts, what the verifier finds, and the losses' largest difference from those of
one device. Exits with 1 if losses differ or the verifier finds something.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.focused.planners.model import LEARNING_RATE, Task, losses_on_one_device, task
from dyorc.planner.cluster import Cluster
from dyorc.planner.measure import Effort, measure_cluster
from dyorc.planner.plan import Plan
from dyorc.planner.planners.auto import plan
from dyorc.planner.runtime import LinkShape, RankOptions, Ranks, Trained, Training, train_on
from dyorc.planner.simulate import simulate
from dyorc.planner.verify import verify

_EFFORT = Effort(num_repeats=7, chain=4, messages=(1 << 12, 1 << 16, 1 << 19))
_WARM_UP_STEPS = 3
"""Of each round: not part of the medians."""
_SAME_LOSS = 1e-3
"""Up to which losses count as equal: ranks add up in another order, in float32, and training makes little of it into more."""


def main() -> int:
    """Runs the benchmark, and returns the exit status."""
    arguments = _arguments()
    torch.set_num_threads(1)
    trained_task = task(arguments.size)
    slowness = tuple(float(part) for part in arguments.slowness.split(","))
    num_ranks = len(slowness)
    link = LinkShape(bytes_per_s=arguments.mbytes_per_s * 1e6)
    links = {(a, b): link for a in range(num_ranks) for b in range(num_ranks) if a != b}
    options = RankOptions(num_ranks=num_ranks, device="cpu", slowness=slowness, links=links)
    cluster = measure_cluster(
        options, effort=_EFFORT, progress=lambda what, done, of: _say(f"measuring {what}, {done + 1} of {of}")
    )
    for device in cluster.devices:
        rates = f"{device.flops_per_s / 1e9:.2f} Gflop/s, {device.memory_bytes_per_s / 1e9:.2f} GB/s"
        _say(f"{device.machine}: {rates}, {device.overhead_s * 1e6:.0f} us for each operation")
    plans = _plans(arguments.planners.split(","), trained_task, cluster)
    with tempfile.TemporaryDirectory(prefix="dyorc-planners-") as folder, Ranks(options) as ranks:
        trained = _rounds(ranks, trained_task, plans, arguments, Path(folder))
    report = _report(trained_task, plans, trained, cluster, arguments)
    print(json.dumps(report))
    return 0 if report["losses_equal"] and not any(row["findings"] for row in report["planners"].values()) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.focused.planners")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--slowness", default="1,2")
    parser.add_argument("--mbytes-per-s", type=float, default=50.0)
    parser.add_argument("--size", choices=("full", "quick"), default="full")
    parser.add_argument("--planners", default="dp_even,dp_proportional,hap,duplex_hap")
    parser.add_argument("--overlap", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def _plans(names: Sequence[str], trained_task: Task, cluster: Cluster) -> dict[str, tuple[Plan, float]]:
    """Returns each planner's plan, and the seconds it took."""
    plans: dict[str, tuple[Plan, float]] = {}
    for name in names:
        began_s = time.perf_counter()
        made = plan(trained_task.program, cluster, name)
        plans[name] = made, time.perf_counter() - began_s
        _say(f"{name}: planned in {plans[name][1]:.1f} s, {len(made.steps)} steps")
    return plans


def _rounds(
    ranks: Ranks, trained_task: Task, plans: Mapping[str, tuple[Plan, float]], arguments: argparse.Namespace, folder: Path
) -> dict[str, list[Trained]]:
    trained: dict[str, list[Trained]] = {name: [] for name in plans}
    for number in range(arguments.rounds):
        for name, (made, _) in plans.items():
            training = Training(
                steps=arguments.steps * (number + 1) // arguments.rounds,
                learning_rate=LEARNING_RATE,
                overlap=arguments.overlap,
                resume=folder / name if number else None,
                checkpoint=folder / name,
            )
            part = train_on(ranks, made, trained_task.program, trained_task.sources, trained_task.batch, training)
            trained[name].append(part)
            _say(f"round {number + 1}, {name}: {_step_s([part]) * 1e3:.1f} ms, loss {part.losses[-1]:.3f}")
    return trained


def _step_s(parts: Sequence[Trained]) -> float:
    return statistics.median(seconds for part in parts for seconds in part.step_s[_WARM_UP_STEPS:])


def _report(
    trained_task: Task,
    plans: Mapping[str, tuple[Plan, float]],
    trained: Mapping[str, Sequence[Trained]],
    cluster: Cluster,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    expected = losses_on_one_device(trained_task, arguments.steps)
    rows: dict[str, Any] = {}
    for name, (made, search_s) in plans.items():
        losses = [loss for part in trained[name] for loss in part.losses]
        measured_s = _step_s(trained[name])
        predicted_s = simulate(made, trained_task.program, cluster, overlap=arguments.overlap).total_s
        difference = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
        _say(
            f"{name}: {measured_s * 1e3:.1f} ms measured, {predicted_s * 1e3:.1f} ms predicted, losses differ by {difference:.1e}"
        )
        rows[name] = {
            "step_s": round(measured_s, 5),
            "step_s_of_rounds": [round(_step_s([part]), 5) for part in trained[name]],
            "predicted_s": round(predicted_s, 5),
            "predicted_over_measured": round(predicted_s / measured_s, 3),
            "search_s": round(search_s, 2),
            "findings": [str(finding) for finding in verify(trained_task.program, made).findings],
            "peak_mb": [round(size / 1e6, 1) for size in trained[name][-1].peak_bytes],
            "last_loss": round(losses[-1], 4),
            "max_loss_difference": difference,
        }
    return {
        "benchmark": "planners",
        "steps": arguments.steps,
        "slowness": arguments.slowness,
        "mbytes_per_s": arguments.mbytes_per_s,
        "overlap": arguments.overlap,
        "model": dict(trained_task.sizes),
        "gflops": [round(device.flops_per_s / 1e9, 2) for device in cluster.devices],
        "losses_equal": all(row["max_loss_difference"] < _SAME_LOSS for row in rows.values()),
        "first_loss": round(expected[0], 4),
        "planners": rows,
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
