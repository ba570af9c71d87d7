"""The gateway beside a real Triton server: one small program, the same requests, the same client.

    python -m benchmarks.focused.gateway [--systems dyorc,dyorc_cell,dyorc_cells_2,pytriton,native] [--rounds 3] [--duration-s 3]

float32[1024] plus one, at most 32 in a batch, 4 KiB requests as binary tensors; over HTTP and gRPC, with 1 and with 32
closed-loop clients, each with its own connection (over gRPC: `light_grpc.py`). Every answer is checked. Triton runs the
program in its Python back end, as DyOrc runs it in Python:

    pytriton          the way `nvidia-pytriton` serves a Python function
    native            a model repository for the same server binary, without PyTriton: one process and one hop less. Dynamic
                      batching, no queue delay: the starting point of Triton's documentation
    native_plain      without dynamic batching: best for one client, since nothing can batch
    native_delay      dynamic batching that waits 200 us for more
    native_two        dynamic batching, two instances of the model, so two processes for the program; DyOrc always has one

The systems take turns, in several rounds, so that changes on the machine affect all of them alike. Figures are medians over the
rounds.

DyOrc runs in each of its modes: with replicas on Ray, in one cell, and in two (`docs/concepts/cells.md`). In "..._nghttp2", gRPC
is answered by nghttp2 in place of grpcio (`GATEWAY__GRPC_SERVER`); HTTP is not measured again there.

Progress goes to stderr. The last line of stdout is one JSON object: "dyorc" (the best of its modes, for each figure by itself),
"triton" (PyTriton) and "triton_native" (the best of the native settings, likewise) with "http_p50_ms_1", "http_rps_32",
"grpc_p50_ms_1", "grpc_rps_32"; "ratios" and "ratios_native", how many times better DyOrc is (above 1: better); "dyorc_modes" and
"native_settings", what is behind each of those figures; "systems", all of them; "client_cpu_ratio", the largest fraction of a
core that the clients used. Takes about eight minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.focused import turns
from benchmarks.focused.gateway import light_grpc
from benchmarks.focused.turns import Rounds, System, Turn
from benchmarks.serving import ROOT
from loadgen.pool import Pool
from loadgen.targets.base import TargetSpec

_MODEL = "plus_one"
_TRITON_PYTHON = ROOT / ".venv-peers" / "triton" / "bin" / "python"
_TRITON_MODULE = "benchmarks.focused.gateway.triton_server"
_FIGURES = ("http_p50_ms_1", "http_rps_32", "grpc_p50_ms_1", "grpc_rps_32")
_NUM_CLIENTS = (1, 32)
_NUM_INPUTS = 64


def _triton(*options: str) -> System:
    return System(command=[str(_TRITON_PYTHON), "-m", _TRITON_MODULE, *options])


_DYORC = turns.dyorc_modes(f"{Path(__file__).with_name('plus_one.py')}:{_MODEL}")
_NGHTTP2 = "_nghttp2"
SYSTEMS = {
    **_DYORC,
    **{
        name + _NGHTTP2: replace(system, environment={**system.environment, "DYORC_GATEWAY__GRPC_SERVER": "nghttp2"})
        for name, system in _DYORC.items()
    },
    "pytriton": _triton("--kind", "pytriton"),
    "native": _triton(),
    "native_plain": _triton("--max-queue-delay-us", "-1"),
    "native_delay": _triton("--max-queue-delay-us", "200"),
    "native_two": _triton("--num-instances", "2"),
}
_BY_DEFAULT = (*_DYORC, "dyorc_cell_nghttp2", "dyorc_cells_2_nghttp2", "pytriton", "native", "native_plain", "native_two")


def draw_pool() -> Pool:
    """Returns requests with their expected answers."""
    inputs = np.random.default_rng(7).standard_normal((_NUM_INPUTS, 1024)).astype(np.float32)
    return Pool(inputs=[{"x": x} for x in inputs], answers=[{"output": x + np.float32(1)} for x in inputs])


def measure(turn: Turn, pool: Pool) -> dict[str, float]:
    """Measures over each protocol that the system speaks, with few and with many clients."""
    address = turn.address
    urls = {} if turn.system.endswith(_NGHTTP2) else {"http": address.url}
    if address.grpc_port is not None:
        urls["grpc"] = f"{address.host}:{address.grpc_port}"
    figures: dict[str, float] = {}
    for name, url in urls.items():
        spec = TargetSpec(
            protocol="http" if name == "http" else light_grpc.PROTOCOL,
            url=url,
            model=_MODEL,
            has_batch_dim=not turns.is_dyorc(turn.system),  # where Triton batches, clients send that dimension
        )
        for num_clients in _NUM_CLIENTS:
            figures |= turn.closed_loop(spec, pool, num_clients, name)
    return figures


def summarize(rounds: Rounds) -> dict[str, object]:
    """Returns medians over the rounds, and how DyOrc compares."""
    medians = {name: turns.medians(figures) for name, figures in rounds.items()}
    systems = {name: {figure: figures[figure] for figure in _FIGURES if figure in figures} for name, figures in medians.items()}
    native = {name: figures for name, figures in systems.items() if name.startswith("native")}
    best = {figure: name for figure in _FIGURES if (name := turns.best_of(figure, native)) is not None}
    modes = {name: figures for name, figures in systems.items() if turns.is_dyorc(name)}
    best_modes = {figure: name for figure in _FIGURES if (name := turns.best_of(figure, modes)) is not None}
    ours, triton = {figure: modes[name][figure] for figure, name in best_modes.items()}, systems.get("pytriton", {})
    triton_native = {figure: systems[name][figure] for figure, name in best.items()}
    return {
        "dyorc": ours,
        "triton": triton,
        "triton_native": triton_native,
        "ratios": _ratios(ours, triton),
        "ratios_native": _ratios(ours, triton_native),
        "native_settings": best,
        "dyorc_modes": best_modes,
        "systems": systems,
        "client_cpu_ratio": max(value for figures in medians.values() for name, value in figures.items() if "cpu_" in name),
    }


def _ratios(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    return {
        figure: round(ours[figure] / theirs[figure] if "rps" in figure else theirs[figure] / ours[figure], 3)
        for figure in _FIGURES
        if figure in ours and figure in theirs
    }


if __name__ == "__main__":
    turns.main(__doc__, SYSTEMS, partial(measure, pool=draw_pool()), summarize, duration_s=3.0, by_default=_BY_DEFAULT)
