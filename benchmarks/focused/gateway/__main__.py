"""The gateway beside a real Triton server: one small program, the same requests, the same client.

    python -m benchmarks.focused.gateway [--systems dyorc,pytriton,native,native_plain,native_two] [--rounds 3] [--duration-s 3]

float32[1024] plus one, at most 32 in a batch, 4 KiB requests as binary tensors; over HTTP and gRPC, with 1 and with 32
closed-loop clients, each with a connection of its own (`load.py`; every answer is checked). Triton runs the program in its Python
back end, as DyOrc runs it in Python:

    pytriton          as `nvidia-pytriton` serves a Python function
    native            a model repository for the same server binary, without PyTriton: one process and one hop less. Dynamic
                      batching, no queue delay: what Triton's documentation starts from
    native_plain      without dynamic batching: best for one client, since nothing can batch
    native_delay      dynamic batching that waits 200 us for more
    native_two        dynamic batching, two instances of the model, so two processes for the program; DyOrc always has one

Only one server runs at a time, since neither costs nothing while it idles (Ray's own processes least of all); they take turns,
several rounds of them, so that all meet the same neighbours. Each load is warmed up. Figures are medians over the rounds.

Progress goes to stderr. The last line of stdout is one JSON object: "dyorc", "triton" (PyTriton) and "triton_native" (the best of
the native settings, for each figure by itself) with "http_p50_ms_1", "http_rps_32", "grpc_p50_ms_1", "grpc_rps_32"; "ratios" and
"ratios_native", how many times better DyOrc is (above 1: better); "native_settings", which setting each of those figures is from;
"systems", all settings; "client_cpu_ratio", the largest part of a core that the clients used. Takes about six minutes.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.processes import adopt_orphans
from benchmarks.serving import ROOT, Address, BenchmarkError, serving

_HERE = Path(__file__).resolve().parent
_TRITON_PYTHON = ROOT / ".venv-peers" / "triton" / "bin" / "python"
_FIGURES = ("http_p50_ms_1", "http_rps_32", "grpc_p50_ms_1", "grpc_rps_32")
_LOADS = (("http", 1), ("http", 32), ("grpc", 1), ("grpc", 32))
_NUM_INPUTS = 64


def _triton(*options: str) -> list[str]:
    return [str(_TRITON_PYTHON), str(_HERE / "triton_server.py"), *options]


SYSTEMS: dict[str, list[str]] = {
    "dyorc": [sys.executable, "-m", "dyorc.cli", "serve", f"{_HERE / 'plus_one.py'}:plus_one", "--port", "0"],
    "pytriton": _triton("--kind", "pytriton"),
    "native": _triton(),
    "native_plain": _triton("--max-queue-delay-us", "-1"),
    "native_delay": _triton("--max-queue-delay-us", "200"),
    "native_two": _triton("--num-instances", "2"),
}
_DEFAULT_SYSTEMS = "dyorc,pytriton,native,native_plain,native_two"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run of the client."""

    system: str
    round: int
    transport: str
    num_clients: int
    p50_ms: float
    p99_ms: float
    rps: float
    client_cpu_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How each server is measured."""

    pool: Path
    warm_up_s: float
    duration_s: float


def measure(name: str, round_: int, terms: Terms) -> list[Measurement]:
    """Starts one system and measures it with each load that it can take."""
    started_s = time.monotonic()
    found: list[Measurement] = []
    with serving(SYSTEMS[name]) as (address, _):
        _log(f"round {round_}  {name:<13} ready after {time.monotonic() - started_s:4.1f} s")
        for transport, num_clients in _LOADS:
            if transport == "grpc" and address.grpc_port is None:
                _log(f"round {round_}  {name:<13} has no gRPC")
                continue
            figures = _run_load(name, address, transport, num_clients, terms)
            one = Measurement(system=name, round=round_, transport=transport, num_clients=num_clients, **figures)
            found.append(one)
            _log(
                f"round {round_}  {name:<13} {transport} {num_clients:>2} clients: p50 {one.p50_ms:7.3f} ms, "
                f"p99 {one.p99_ms:7.3f} ms, {one.rps:8.1f} requests/s, client {one.client_cpu_ratio:.0%} of a core"
            )
    return found


def _run_load(name: str, address: Address, transport: str, num_clients: int, terms: Terms) -> dict[str, float]:
    options = {
        "--transport": transport,
        "--host": address.host,
        "--port": address.grpc_port if transport == "grpc" else address.http_port,
        "--model": "plus_one",
        "--num-clients": num_clients,
        "--pool": terms.pool,
        "--warm-up-s": terms.warm_up_s,
        "--duration-s": terms.duration_s,
    }
    command = [sys.executable, "-m", "benchmarks.focused.gateway.load", *(str(word) for pair in options.items() for word in pair)]
    if name != "dyorc":
        command.append("--has-batch-dim")  # where Triton batches, clients send that dimension; DyOrc's shapes are of one item
    finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if finished.returncode != 0:
        raise BenchmarkError(f"{name}, {transport}, {num_clients} clients: {finished.stderr.strip()}")
    return json.loads(finished.stdout)


def summarize(measurements: Sequence[Measurement]) -> dict[str, object]:
    """Medians over the rounds, and how DyOrc compares."""
    names = dict.fromkeys(one.system for one in measurements)
    systems = {name: _medians([one for one in measurements if one.system == name]) for name in names}
    native = [name for name in names if name.startswith("native")]
    best = {figure: found for figure in _FIGURES if (found := _best(figure, native, systems)) is not None}
    ours, triton = systems.get("dyorc", {}), systems.get("pytriton", {})
    triton_native = {figure: systems[name][figure] for figure, name in best.items()}
    return {
        "dyorc": ours,
        "triton": triton,
        "triton_native": triton_native,
        "ratios": _ratios(ours, triton),
        "ratios_native": _ratios(ours, triton_native),
        "native_settings": best,
        "systems": systems,
        "client_cpu_ratio": max(one.client_cpu_ratio for one in measurements),
    }


def _medians(measurements: Iterable[Measurement]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for one in measurements:
        figure = "p50_ms_1" if one.num_clients == 1 else "rps_32"
        values.setdefault(f"{one.transport}_{figure}", []).append(one.p50_ms if one.num_clients == 1 else one.rps)
    return {figure: round(statistics.median(found), 3) for figure, found in values.items()}


def _best(figure: str, peers: Iterable[str], systems: Mapping[str, Mapping[str, float]]) -> str | None:
    having = [name for name in peers if figure in systems[name]]
    choose = max if "rps" in figure else min
    return choose(having, key=lambda name: systems[name][figure]) if having else None


def _ratios(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    return {
        figure: round(ours[figure] / theirs[figure] if "rps" in figure else theirs[figure] / ours[figure], 3)
        for figure in _FIGURES
        if figure in ours and figure in theirs
    }


def main() -> None:
    """Runs all rounds and prints the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default=_DEFAULT_SYSTEMS, help=f"some of {','.join(SYSTEMS)}; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up-s", type=float, default=1.0)
    parser.add_argument("--duration-s", type=float, default=3.0)
    parser.add_argument("--raw", type=Path, help="write every measurement to this JSON file")
    arguments = parser.parse_args()
    names = arguments.systems.split(",")
    if unknown := set(names) - set(SYSTEMS):
        parser.error(f"no such system: {', '.join(sorted(unknown))}")
    if not _TRITON_PYTHON.exists() and names != ["dyorc"]:
        parser.error(f"{_TRITON_PYTHON} is not there; `make bench-gateway` makes it")
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # an exception, so that the server is stopped
    with tempfile.TemporaryDirectory(prefix="gateway-") as folder:
        terms = Terms(pool=Path(folder) / "pool.npz", warm_up_s=arguments.warm_up_s, duration_s=arguments.duration_s)
        inputs = np.random.default_rng(7).standard_normal((_NUM_INPUTS, 1024)).astype(np.float32)
        np.savez(terms.pool, inputs=inputs, answers=inputs + np.float32(1))
        try:
            measurements = [
                one for round_ in range(1, arguments.rounds + 1) for name in names for one in measure(name, round_, terms)
            ]
        except BenchmarkError as error:
            sys.exit(str(error))
    if arguments.raw is not None:
        arguments.raw.write_text(json.dumps([asdict(one) for one in measurements], indent=1) + "\n")
    print(json.dumps(summarize(measurements)))


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
