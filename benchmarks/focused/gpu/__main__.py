"""What it saves that tensors stay on a GPU, that kernels are captured, and that processes share its memory.

    python -m benchmarks.focused.gpu [--systems chain_stays,chain_copies,graph,kernels,ipc,through_host] [--rounds 3]

Six servers take turns, with one closed-loop client; every answer is compared with NumPy's or torch's on the host:

* ``chain_stays``, ``chain_copies``: three programs that pass 8 MB to each other, in the server's process, with ``device="cuda"``,
  and with programs that copy by themselves.
* ``graph``, ``kernels``: a program of 180 small kernels, with and without ``cuda_graphs=True``, in the server's process.
* ``ipc``, ``through_host``: the chain on three Ray replicas on one GPU, whose results stay there (CUDA IPC) or not.

Needs one GPU, or one part of one (MIG); no link between GPUs is used. Without one it prints ``{"gpu": null, ...}`` and exits with
status 3. ``BENCHMARK_DEVICE=cpu`` tries the benchmark itself; its figures then mean nothing.

Progress goes to stderr. The last line of stdout is one JSON object: for each system "p50_ms" and "p99_ms", and for those in
the server's process "host_copies_per_request"; "ratios", how many times faster the first of each pair is at the median; and
"gpu", the device. Takes about three minutes.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.focused import turns
from benchmarks.focused.chain.work import draw_pool
from benchmarks.focused.gpu import net
from benchmarks.focused.turns import Rounds, Turn
from loadgen.pool import Pool
from loadgen.targets.base import TargetSpec

_APPS = Path(__file__).with_name("apps.py")
_NO_GPU = 3
_NUM_COUNTED = 20

MODELS = {
    "chain_stays": "chain",
    "chain_copies": "chain_copied",
    "graph": "kernels_as_graph",
    "kernels": "kernels",
    "ipc": "chain",
    "through_host": "chain",
}
PAIRS = (("chain_stays", "chain_copies"), ("graph", "kernels"), ("ipc", "through_host"))
_IN_PROCESS = ("chain_stays", "chain_copies", "graph", "kernels")
SYSTEMS = {
    **{name: turns.dyorc(f"{_APPS}:{MODELS[name]}", "--in-process") for name in _IN_PROCESS},
    "ipc": turns.dyorc(f"{_APPS}:chain"),
    "through_host": turns.dyorc(f"{_APPS}:chain", DYORC_TRANSPORT__DEVICE_BYTES="0"),
}


def measure(turn: Turn, pools: Mapping[str, Pool]) -> dict[str, float]:
    """Measures one client, and counts copies to the host."""
    model = MODELS[turn.system]
    pool = pools["kernels" if model.startswith("kernels") else "chain"]
    spec = TargetSpec(protocol="http", url=turn.address.url, model=model)
    figures = turn.closed_loop(spec, pool, 1)
    shown = {"p50_ms": figures["p50_ms_1"], "p99_ms": figures["p99_ms_1"]}
    if turn.system in _IN_PROCESS:
        shown["host_copies_per_request"] = _host_copies_per_request(turn.address.url, model, pool)
    return shown


def _host_copies_per_request(url: str, model: str, pool: Pool) -> float:
    """Returns how many results come to the host for one request, as DyOrc counts them: not what programs copy by themselves."""

    def num_copies() -> int:
        with urllib.request.urlopen(f"{url}/status", timeout=30) as response:
            return int(json.load(response)["link"].get("num_device_to_host_copies", 0))

    ((name, array),) = pool.inputs[0].items()
    tensor = {"name": name, "shape": list(array.shape), "datatype": "FP32", "data": array.reshape(-1).tolist()}
    request = urllib.request.Request(f"{url}/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}).encode())
    before = num_copies()
    for _ in range(_NUM_COUNTED):
        with urllib.request.urlopen(request, timeout=30) as response:
            response.read()
    return (num_copies() - before) / _NUM_COUNTED


def summarize(rounds: Rounds) -> dict[str, object]:
    """Returns medians over the rounds, ratios of the pairs, and the device."""
    medians = {name: turns.medians(figures) for name, figures in rounds.items()}
    ratios = {
        first: round(medians[second]["p50_ms"] / medians[first]["p50_ms"], 2)
        for first, second in PAIRS
        if first in medians and second in medians
    }
    return {**medians, "ratios": ratios, "gpu": gpu()}


def gpu() -> dict[str, Any] | None:
    """Returns what the first GPU is; None if torch sees none."""
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return {
        "name": properties.name,
        "bytes": properties.total_memory,
        "num_devices": torch.cuda.device_count(),
        "is_part": "MIG" in properties.name or visible.startswith("MIG"),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


if __name__ == "__main__":
    if "BENCHMARK_DEVICE" not in os.environ and gpu() is None and not {"-h", "--help"} & set(sys.argv):
        print(json.dumps({"gpu": None, "reason": f"torch {torch.__version__} sees no CUDA device; nothing was measured"}))
        sys.exit(_NO_GPU)
    chosen = {"chain": draw_pool(), "kernels": net.draw_pool()}
    turns.main(__doc__, SYSTEMS, partial(measure, pools=chosen), summarize, duration_s=4.0)
