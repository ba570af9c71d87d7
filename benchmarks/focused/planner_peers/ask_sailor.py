"""Asks Sailor's planner for its plans: runs in its own environment, which needs no packages.

    python ask_sailor.py QUESTION ANSWER

QUESTION is what `sailor_files.write` returns, with the path of Sailor's compiled planner; ANSWER becomes what `stages.py` reads.
Its planner is a library in C++ that reads files and needs no device. It prints its search to stdout.
"""

import json
import os
import sys
import time
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

_MAX_PLANS = 50
"""How many of its plans, best first, are passed on."""


def main() -> None:
    """Reads the question, and writes the answer."""
    question = json.loads(Path(sys.argv[1]).read_text())
    library = _loaded(question["library"])
    files = question["files"]
    began_s, began_cpu_s = time.perf_counter(), sum(os.times()[:4])
    planner = library.SailorPlanner(
        files["profiles"],
        files["network"],
        files["training"],
        files["memory"],
        files["prices"],
        len(question["devices"]) > 1,
        False,  # float32
        files["quotas"],
        "throughput",
    )
    plans = planner.get_sorted_plans({question["zone"]: question["devices"]}, 0.0, 0.0)
    took = {"took_s": time.perf_counter() - began_s, "took_cpu_s": sum(os.times()[:4]) - began_cpu_s}
    kinds = sorted(question["devices"])
    answer = took | {"num_plans": len(plans), "plans": [_plan(each, kinds) for each in plans[:_MAX_PLANS]]}
    Path(sys.argv[2]).write_text(json.dumps(answer))


def _loaded(path: str) -> Any:
    loader = ExtensionFileLoader("libplanner", path)
    spec = spec_from_loader("libplanner", loader)
    assert spec is not None
    library = module_from_spec(spec)
    loader.exec_module(library)
    return library


def _plan(sailor_plan: Any, kinds: list[str]) -> dict[str, Any]:
    return {
        "layers": [list(stage) for stage in sailor_plan.get_stages()],
        "samples": sailor_plan.get_mbs(),
        "step_s": sailor_plan.get_Tpp(),
        "replicas": [
            [{"kind": kinds[kind], "tensor_parallel": degree} for kind, degree, _ in stage]
            for stage in sailor_plan.get_config_per_stage()
        ],
    }


if __name__ == "__main__":
    main()
