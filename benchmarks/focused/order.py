"""Which queue discipline has the shortest tails: every discipline on every simulated workload, on the same requests.

    python -m benchmarks.focused.order [--requests 4000] [--seeds 1] [--processes 2] [--page docs/benchmarks/order.md]

In virtual time, so the same arguments give the same result on any machine. `greedy` forms batches without foresight or guesses,
in today's order; `oracle` knows all outcomes in advance. Ratios are to the order that is the default. The last line is one JSON
object: for each discipline the geometric means, over workloads and loads, of the ratios of p50, p99, p99.9 and of the rate, the
worst of the ratios of p50 and p99 on one workload at one load, and whether it `wins`: shorter p99, p50 no longer, rate no lower.
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.output_paths import output_file
from dyorc.config import EngineConfig
from dyorc.simulation.policies import DISCIPLINES, ORACLE
from dyorc.simulation.simulate import Row, compare
from dyorc.simulation.workloads import MIXED, WORKLOADS

LOADS = (0.8, 0.95)
FIGURES = ("p50_ms", "p99_ms", "p999_ms", "throughput_rps")
DEFAULT: str = EngineConfig().queue_discipline
POLICIES = ("greedy", *[f"speculate:{name}" for name in DISCIPLINES], ORACLE)
_TOLERANCE = 0.005
"""Ratios that differ from 1 by less are equal: by so much a workload that no order can matter to differs from seed to seed."""


def mean_rows(rows: Sequence[Row]) -> list[Row]:
    """Returns a row for each workload, load and policy, with the means of the figures over the seeds."""
    keys = list(dict.fromkeys((row["workload"], row["load"], row["policy"]) for row in rows))
    means: list[Row] = []
    for key in keys:
        own = [row for row in rows if (row["workload"], row["load"], row["policy"]) == key]
        figures = {name: float(np.mean([row[name] for row in own])) for name in FIGURES}
        means.append({"workload": key[0], "load": key[1], "policy": key[2], **figures})
    return means


def judge(rows: Sequence[Row], default: str) -> dict[str, dict[str, Any]]:
    """Returns what each other policy gains and loses, as ratios to the default's figures.

    Args:
        rows: Of `mean_rows`.
    """
    of = {(row["workload"], row["load"], row["policy"]): row for row in rows}
    results: dict[str, dict[str, Any]] = {}
    for policy in dict.fromkeys(row["policy"] for row in rows):
        pairs = [(row, of[row["workload"], row["load"], default]) for row in rows if row["policy"] == policy]
        ratios = {name: [own[name] / other[name] for own, other in pairs] for name in FIGURES}
        mean = {name: float(np.exp(np.mean(np.log(each)))) for name, each in ratios.items()}
        keeps = mean["p50_ms"] <= 1 + _TOLERANCE and mean["throughput_rps"] >= 1 - _TOLERANCE
        results[policy] = {
            **{f"{name.rpartition('_')[0]}_ratio": round(value, 4) for name, value in mean.items()},
            "worst_p50_ratio": round(max(ratios["p50_ms"]), 4),
            "worst_p99_ratio": round(max(ratios["p99_ms"]), 4),
            "wins": bool(keeps and mean["p99_ms"] < 1 - _TOLERANCE),
        }
    return results


def page(rows: Sequence[Row], results: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> str:
    """Returns the page of docs/benchmarks."""
    policies = list(results)
    names = [policy.partition(":")[2] or policy for policy in policies]
    lines = [
        "# Order of calls",
        "",
        f"p50 / p99 / p99.9 in ms, {arguments.requests:,} requests, {arguments.seeds} seed{'s' * (arguments.seeds > 1)}, "
        "in the simulator (`make bench-order`). `greedy` has neither foresight nor guesses, "
        "`oracle` knows all outcomes in advance; both take",
        "the oldest request first. The rest are the [queue disciplines](../reference/operations.md#order-of-requests) of the "
        "engine as it serves.",
        "",
        f"| | load | {' | '.join(f'`{name}`' for name in names)} |",
        f"|---|---|{'---|' * len(names)}",
    ]
    for workload, load in dict.fromkeys((row["workload"], row["load"]) for row in rows):
        cells = [
            " / ".join(f"{row[name]:.0f}" for name in FIGURES[:3])
            for policy in policies
            for row in rows
            if (row["workload"], row["load"], row["policy"]) == (workload, load, policy)
        ]
        lines.append(f"| `{workload}` | {load:g} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Ratios to `{DEFAULT}`, the default: geometric means over all lines of the table, and the worst line.",
        "",
        "| | p50 | p99 | p99.9 | rate | worst p50 | worst p99 |",
        "|---|---|---|---|---|---|---|",
    ]
    keys = ("p50_ratio", "p99_ratio", "p999_ratio", "throughput_ratio", "worst_p50_ratio", "worst_p99_ratio")
    for name, result in zip(names, results.values(), strict=True):
        lines.append(f"| `{name}` | {' | '.join(f'{result[key]:.3f}' for key in keys)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--workload", action="append", help="may be repeated; all by default")
    parser.add_argument("--page", type=output_file, help="writes the tables there, as Markdown")
    arguments = parser.parse_args()
    workloads = arguments.workload or [*WORKLOADS, *MIXED]
    rows: list[Row] = []
    for seed in range(1, 1 + arguments.seeds):
        options: dict[str, Any] = {"num_requests": arguments.requests, "seed": seed, "num_processes": arguments.processes}
        for row in compare(workloads, POLICIES, LOADS, **options):
            rows.append(row)
            shown = "  ".join(f"{name} {row[name]:9.2f}" for name in FIGURES)
            print(f"{row['workload']:8} {row['load']:g} seed {seed} {row['policy']:28} {shown}", flush=True)
    means = mean_rows(rows)
    results = judge(means, f"speculate:{DEFAULT}")
    if arguments.page is not None:
        arguments.page.write_text(page(means, results, arguments))
    print(json.dumps({"requests": arguments.requests, "seeds": arguments.seeds, "default": DEFAULT, "disciplines": results}))


if __name__ == "__main__":
    main()
