"""Asks autoparallel for its placements: runs in the environment that has what autoparallel needs, not in DyOrc's.

    PYTHONPATH=DYORC:AUTOPARALLEL python -m benchmarks.focused.planner_peers.ask_autoparallel QUESTION ANSWER

DYORC and AUTOPARALLEL are checkouts. QUESTION is what `Case.question` returns; ANSWER becomes what `placements.py` reads. No
device is needed: its process group is torch's fake one, its tensors are on the device `cpu`, and its cost model, which asks torch
for the name of a GPU, is told the cluster's speeds instead.
"""

# pyright: reportMissingImports=false
# autoparallel is in that environment alone.

import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from autoparallel import AutoParallel
from autoparallel.cost_models import compute_estimation
from autoparallel.cost_models.nccl_cost_model import h100_topo_config
from torch.distributed.tensor.placement_types import Replicate, Shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.focused.planner_peers.cases import MODELS, build

_EFFICIENCY = 0.7
"""What its cost model multiplies a device's speeds by; ours are the speeds that are reached."""


def main() -> None:
    """Reads the question, and writes the answer."""
    question = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    machines, num_devices = question["machines"], len(question["machines"]["speeds"])
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=num_devices)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (num_devices,), mesh_dim_names=("ranks",))
    began_s, began_cpu_s = time.perf_counter(), sum(os.times()[:4])
    with patch.object(compute_estimation, "_get_device_limit", lambda: _device(machines)), sdpa_kernel(SDPBackend.MATH):
        answer = _asked(question, mesh, began_s)
    answer["took_cpu_s"] = sum(os.times()[:4]) - began_cpu_s  # with the solver, a separate process
    Path(sys.argv[2]).write_text(json.dumps(answer))


def _device(machines: dict[str, Any]) -> Any:
    return compute_estimation.DeviceLimit(
        name="as given",
        ref="",
        sm=(9, 0),
        gmem_bandwidth=machines["memory_bytes_per_s"] / _EFFICIENCY,
        gemm_tflops={torch.float32: machines["flops_per_s"] / _EFFICIENCY / 1e12},
    )


def _asked(question: dict[str, Any], mesh: Any, began_s: float) -> dict[str, Any]:
    module, examples = build(question["model"])
    vocabulary = MODELS[question["model"]].sizes.get("vocabulary")

    def inputs() -> tuple[torch.Tensor, ...]:
        return tuple(
            torch.rand(t.shape) if t.is_floating_point() else torch.randint(0, vocabulary or 2, t.shape) for t in examples
        )

    machines = question["machines"]
    network = h100_topo_config(
        num_nodes=mesh.size(),
        gpus_per_node=1,
        bw_inter=machines["bytes_per_s"] / 1e9,
        has_nvswitch=False,
        net_latency=machines["latency_s"] * 1e6,
    )
    with AutoParallel(module, inputs, mesh, cost_model=network) as parallel:
        traced_s = time.perf_counter()
        parallel.add_input_constraints([(Shard(0),)] * len(examples))
        parallel.add_output_constraints([(Replicate(),)])
        if question["is_sharded"]:
            parallel.add_parameter_memory_constraint()
        parallel.optimize_placement(verbose=False)
        done_s = time.perf_counter()
        placements = parallel.sharding_optimizer.get_json()
    return {
        "mesh": list(mesh.shape),
        "took_s": done_s - began_s,
        "trace_s": traced_s - began_s,
        "solve_s": done_s - traced_s,
        "cost_s": placements["summary"]["total"] / 1e6,
        "torch": torch.__version__,
        "sources": list(_sources(placements["nodes"])),
        "nodes": list(_nodes(placements["nodes"])),
    }


def _sources(nodes: list[dict[str, Any]]) -> Any:
    num_inputs = 0
    for node in nodes:
        kind = node.get("placeholder_kind")
        if kind in ("param", "buffer", "input"):
            name = node["module_path"] if kind != "input" else f"input_{num_inputs}"
            num_inputs += kind == "input"
            yield {"name": name, "shape": node["shape"], "placement": node["placement"]}


def _nodes(nodes: list[dict[str, Any]]) -> Any:
    shapes = {node["name"]: node.get("shape") for node in nodes}
    for node in nodes:
        if node["op"] not in ("placeholder", "output") and node.get("shape") is not None:
            yield {
                "op": node["op"],
                "is_backward": node["phase"] == "backward",
                "shape": node["shape"],
                "inputs": [
                    {"shape": shapes[each["name"]], "placement": each["dst_placement"] or ""}
                    for each in node["inputs"]
                    if shapes[each["name"]] is not None
                ],
            }


if __name__ == "__main__":
    main()
