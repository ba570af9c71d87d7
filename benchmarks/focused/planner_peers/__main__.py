"""Plans the same models on the same clusters by our planners and by others, and prices all plans in one simulator.

    python -m benchmarks.focused.planner_peers [--size quick|full] [--only TEXT] [--output FILE]
                                               [--autoparallel FOLDER] [--sailor LIBRARY]

FOLDER is a checkout of meta-pytorch/autoparallel, which needs the environment `.venv-peers/autoparallel`; LIBRARY is the planner
of eth-easl/sailor, as its Makefile compiles it. What is not given is not asked. The other planners run in processes of their own,
and what they choose becomes a plan like any other: the verifier proves it, the simulator prices it, in the better of two orders.

`--only` takes the cases whose names contain the text. `--output` keeps the results of cases that the file has and this run does
not. The last line is one JSON object. Exits with 1 if a plan is not proved.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.focused.planner_peers.asking import Answer, Ask, NoAnswerError, autoparallel, sailor
from benchmarks.focused.planner_peers.cases import CASES, Case, Machines, build
from benchmarks.output_paths import output_file
from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster, Device, Link
from dyorc.planner.plan import Plan
from dyorc.planner.planners.auto import plan
from dyorc.planner.planners.pricing import PricedPlan, price_plan
from dyorc.planner.program import TensorProgram, capture
from dyorc.planner.verify import verify

_OURS = ("dp_even", "dp_proportional", "zero", "megatron", "hap", "auto")
_MEMORY_BYTES = 40 << 30


def main() -> int:
    """Runs the benchmark, and returns the exit status."""
    arguments = _arguments()
    torch.set_num_threads(1)
    peers = _peers(arguments)
    rows = _known(arguments.output)
    for case in CASES[arguments.size]:
        if arguments.only in case.name:
            rows[case.name] = _row(case, peers)
            _write(arguments, rows)
    report = _write(arguments, rows)
    print(json.dumps(report))
    planners = [each for row in report["cases"] for each in row["planners"].values()]
    return 0 if all(each.get("is_proved", True) for each in planners) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.focused.planner_peers")
    parser.add_argument("--size", choices=CASES, default="full")
    parser.add_argument("--only", default="")
    parser.add_argument("--output", type=output_file)
    parser.add_argument("--autoparallel", type=Path)
    parser.add_argument("--sailor", type=Path)
    return parser.parse_args()


def _peers(arguments: argparse.Namespace) -> dict[str, Ask]:
    peers: dict[str, Ask] = {}
    if arguments.autoparallel:
        source = arguments.autoparallel.resolve()
        peers["autoparallel"] = autoparallel(source, is_sharded=False)
        peers["autoparallel-sharded"] = autoparallel(source, is_sharded=True)
    if arguments.sailor:
        peers["sailor"] = sailor(arguments.sailor.resolve())
    return peers


def _known(path: Path | None) -> dict[str, Any]:
    if path is None or not path.exists():
        return {}
    return {row["case"]: row for row in json.loads(path.read_text())["cases"]}


def _write(arguments: argparse.Namespace, rows: Mapping[str, Any]) -> dict[str, Any]:
    sources = {"autoparallel": arguments.autoparallel, "sailor": arguments.sailor and arguments.sailor.parent}
    report = {
        "benchmark": "planner_peers",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commits": {name: _commit(folder) for name, folder in sources.items() if folder},
        "cases": [rows[name] for name in dict.fromkeys(case.name for cases in CASES.values() for case in cases) if name in rows],
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    return report


def _commit(folder: Path) -> str:
    done = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _row(case: Case, peers: Mapping[str, Ask]) -> dict[str, Any]:
    program = capture(*build(case.model), name=case.model)
    cluster = _cluster(case.machines)
    row: dict[str, Any] = {}
    for name in _OURS:
        row[name] = _judged(case, name, program, cluster, [_ours(name, program, cluster)])
    for name, ask in peers.items():
        try:
            row[name] = _judged(case, name, program, cluster, ask(case, program, cluster))
        except (NoAnswerError, PlanError) as error:
            row[name] = {"no_plan": str(error)}
            _say(f"{case.name}: {name}: {error}")
    return {"case": case.name, "model": case.model, "cluster": case.machines.name, "planners": row}


def _ours(name: str, program: TensorProgram, cluster: Cluster) -> Answer:
    began_s, began_cpu_s = time.perf_counter(), sum(os.times()[:4])
    made = plan(program, cluster, name)
    return Answer(
        plan=made,
        search_s=time.perf_counter() - began_s,
        search_cpu_s=sum(os.times()[:4]) - began_cpu_s,
        expected_s=made.provenance.cost_s or 0.0,
    )


def _cluster(machines: Machines) -> Cluster:
    devices = tuple(
        Device(
            name=f"{speed:g}x",
            machine=f"machine-{rank}",
            flops_per_s=speed * machines.flops_per_s,
            memory_bytes=_MEMORY_BYTES,
            memory_bytes_per_s=speed * machines.memory_bytes_per_s,
            overhead_s=machines.overhead_s,
        )
        for rank, speed in enumerate(machines.speeds)
    )
    link = Link(source="", target="", bytes_per_s=machines.bytes_per_s, latency_s=machines.latency_s)
    return Cluster(name=machines.name, devices=devices, links=(), between_all=link)


def _judged(case: Case, name: str, program: TensorProgram, cluster: Cluster, answers: Sequence[Answer]) -> dict[str, Any]:
    """Prices a planner's choice, and says what the best of its other plans would have cost here."""
    prices = [price_plan(answer.plan, program, cluster) for answer in answers]
    chosen, price = answers[0], prices[0]
    row: dict[str, Any] = {
        "step_s": round(price.simulation.total_s, 7),
        "expected_s": round(chosen.expected_s, 7),
        "search_s": round(chosen.search_s, 3),
        "search_cpu_s": round(chosen.search_cpu_s, 3),
        "is_proved": _is_proved(program, chosen.plan),
        "does_fit": price.does_fit,
        "peak_gb": _peak_gb(price),
    }
    if len(answers) > 1:
        best = min(range(len(prices)), key=lambda index: prices[index].rank)
        row["best_of_its_plans_s"] = round(prices[best].simulation.total_s, 7)
    if name == "auto":
        row["chosen"] = chosen.plan.provenance.planner
    _say(f"{case.name}: {name}: {row['step_s'] * 1e3:.2f} ms, planned in {row['search_cpu_s']:.1f} s of a core")
    return row | dict(chosen.more)


def _is_proved(program: TensorProgram, plan: Plan) -> bool:
    return verify(program, plan).is_proved


def _peak_gb(price: PricedPlan) -> float:
    return round(max(price.simulation.peak_bytes) / 1e9, 2)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
