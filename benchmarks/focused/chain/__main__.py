"""A chain of three programs that pass 8 MB to each other: DyOrc against Ray Serve's own composition.

    python -m benchmarks.focused.chain [--systems dyorc,dyorc_empty,ray_serve,ray_serve_throughput] [--rounds 3] [--duration-s 4]

A request is a seed, the answer four floats; the programs pass each other float32 tensors of 2,000,000 values (`work.py`). They do
little more than read and write them, so that the hops count. The systems take turns, with 1 and with 4 closed-loop clients; every
answer is compared with NumPy's. The figures are medians over the rounds.

Progress goes to stderr. The last line of stdout is one JSON object: for each system "p50_ms_1", "p99_ms_1" (1 client) and
"rps_4" (4 clients); "p50_ratio" and "rps_ratio", how many times faster DyOrc is than the better of Ray Serve's two modes (with
"_empty": programs that write straight into shared memory, by `dyorc.empty`; the same programs otherwise); "programs_ms", how long
the three programs take by themselves, in sequence in one process; and "orchestrator_bytes_per_call", how many bytes DyOrc's
orchestrator exchanged with replicas per call (one client). Takes about three minutes.

Two things differ: DyOrc's requests use the Open Inference Protocol, Ray Serve's are raw bytes; and DyOrc batches up to four
calls, while Ray Serve does not, which suits it better here (`ray_serve_app.py`).
"""

from __future__ import annotations

import json
import statistics
import time
import urllib.request
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import torch

from benchmarks.focused import turns
from benchmarks.focused.chain.work import draw_pool, make, ramp, shift, total
from benchmarks.focused.ray_serve_server import ray_serve
from benchmarks.focused.turns import Rounds, Turn
from loadgen.pool import Pool
from loadgen.targets.base import TargetSpec

_APP = Path(__file__).with_name("chain.py")
_PEER = "benchmarks.focused.chain.ray_serve_app"
_PEER_OPTIONS = ("--num-cpus", "5", "--object-store-bytes", str(512 * 2**20), "--probe-bytes", "4")
_WORKFLOWS = {"dyorc": "chain", "dyorc_empty": "chain_there"}
_NUM_CLIENTS = (1, 4)
_FIGURES = ("p50_ms_1", "p99_ms_1", "rps_4")
_NUM_ALONE = 20
_NUM_COUNTED = 50
_NUM_PROGRAMS = 3

SYSTEMS = {
    **{name: turns.dyorc(f"{_APP}:{workflow}") for name, workflow in _WORKFLOWS.items()},
    "ray_serve": ray_serve(_PEER, "default", *_PEER_OPTIONS),
    "ray_serve_throughput": ray_serve(_PEER, "throughput", *_PEER_OPTIONS),
}


def measure(turn: Turn, pool: Pool) -> dict[str, float]:
    """Measures with each number of clients, and counts what passes through the orchestrator."""
    url, workflow = turn.address.url, _WORKFLOWS.get(turn.system)
    if workflow:
        spec = TargetSpec(protocol="http", url=url, model=workflow)
    else:
        spec = TargetSpec(protocol="raw", url=url, codec="benchmarks.focused.raw_floats")
    figures: dict[str, float] = {}
    for num_clients in _NUM_CLIENTS:
        figures |= turn.closed_loop(spec, pool, num_clients)
    if turn.system == "dyorc":
        figures["bytes_per_call"] = _link_bytes_per_call(url, _WORKFLOWS["dyorc"])
    return figures


def _link_bytes_per_call(url: str, workflow: str) -> float:
    """Returns how many bytes DyOrc's orchestrator and the replicas exchange per call."""

    def link_bytes() -> int:
        with urllib.request.urlopen(f"{url}/status", timeout=30) as response:
            return sum(json.load(response)["link"].values())

    body = json.dumps({"inputs": [{"name": "seed", "shape": [1], "datatype": "FP32", "data": [0.5]}]}).encode()
    request = urllib.request.Request(f"{url}/v2/models/{workflow}/infer", body)
    before = link_bytes()
    for _ in range(_NUM_COUNTED):
        with urllib.request.urlopen(request, timeout=30) as response:
            response.read()
    return (link_bytes() - before) / (_NUM_COUNTED * _NUM_PROGRAMS)


def time_programs() -> float:
    """Returns the median milliseconds of the three programs for one request, in this process."""
    constant = ramp()
    taken_ms: list[float] = []
    with torch.inference_mode():
        for seed in torch.linspace(-1.0, 1.0, _NUM_ALONE)[:, None, None]:
            began_s = time.perf_counter()
            total(shift(make(constant, seed)))
            taken_ms.append((time.perf_counter() - began_s) * 1e3)
    return statistics.median(taken_ms)


def summarize(rounds: Rounds) -> dict[str, object]:
    """Returns medians over the rounds, and how DyOrc compares."""
    medians = {name: turns.medians(figures) for name, figures in rounds.items()}
    shown = {name: {figure: figures[figure] for figure in _FIGURES} for name, figures in medians.items()}
    return {
        **shown,
        **dict(_ratios(shown)),
        "programs_ms": round(time_programs(), 3),
        "orchestrator_bytes_per_call": medians.get("dyorc", {}).get("bytes_per_call"),
    }


def _ratios(medians: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, float]]:
    peers = [figures for name, figures in medians.items() if name not in _WORKFLOWS]
    for name, suffix in (("dyorc", ""), ("dyorc_empty", "_empty")):
        ours = medians.get(name)
        if ours is not None and peers:
            yield f"p50_ratio{suffix}", round(min(peer["p50_ms_1"] for peer in peers) / ours["p50_ms_1"], 2)
            yield f"rps_ratio{suffix}", round(ours["rps_4"] / max(peer["rps_4"] for peer in peers), 2)


if __name__ == "__main__":
    turns.main(__doc__, SYSTEMS, partial(measure, pool=draw_pool()), summarize, duration_s=4.0)
