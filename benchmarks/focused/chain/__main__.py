"""A chain of three programs with 8 MB between them: DyOrc against Ray Serve's own composition.

    python -m benchmarks.focused.chain [--systems dyorc,dyorc_empty,ray_serve,ray_serve_throughput] [--rounds 3] [--duration-s 4]

A request is a seed, the answer four floats; between the programs go float32 tensors of 2,000,000 values (`chain_work.py`).
The programs do little more than read and write them, so that the hops count. The systems take turns, only one server runs at a
time, with 1 and with 4 closed-loop clients; every answer is compared with NumPy's. The figures are medians over the rounds.

Progress goes to stderr. The last line of stdout is one JSON object: for each system "p50_ms_1", "p99_ms_1" (1 client) and
"rps_4" (4 clients); "p50_ratio" and "rps_ratio", how many times faster DyOrc is than the better of Ray Serve's two modes (with
"_empty": programs that write straight into shared memory, by `dyorc.empty`; the same programs otherwise);
"programs_ms", what the three programs take on their own, one after the other in one process; and
"orchestrator_bytes_per_call", what DyOrc's orchestrator received from and sent to replicas for a call, in bytes (one client).
Takes about three minutes.

Not the same for all: DyOrc's requests are in the Open Inference Protocol, Ray Serve's are raw bytes; DyOrc batches up to four
calls, Ray Serve does not, which is better for it here (`ray_chain_app.py`).
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
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.focused.chain.chain_work import draw_pool, make, ramp, shift, total
from benchmarks.focused.overhead.__main__ import System
from benchmarks.processes import adopt_orphans
from benchmarks.serving import BenchmarkError, serving

_HERE = Path(__file__).resolve().parent
_OVERHEAD = _HERE.parent / "overhead"

_NUM_CLIENTS = (1, 4)
_FIGURES = ("p50_ms_1", "p99_ms_1", "rps_4")
_NUM_ALONE = 20
_NUM_COUNTED = 50
_NUM_PROGRAMS = 3


def _ray_serve(mode: str) -> System:
    command = [sys.executable, str(_OVERHEAD / "ray_serve_server.py"), str(_HERE / "ray_chain_app.py"), "--mode", mode]
    command += ["--num-cpus", "5", "--object-store-bytes", str(512 * 2**20), "--probe-bytes", "4"]
    return System(command=command, protocol="raw", path="/")


def _dyorc(workflow: str) -> System:
    command = [sys.executable, "-m", "dyorc.cli", "serve", f"{_HERE / 'chain.py'}:{workflow}", "--port", "0"]
    return System(command=command, protocol="oip", path=f"/v2/models/{workflow}/infer")


SYSTEMS = {
    "dyorc": _dyorc("chain"),
    "dyorc_empty": _dyorc("chain_there"),
    "ray_serve": _ray_serve("default"),
    "ray_serve_throughput": _ray_serve("throughput"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How each server is measured."""

    pool: Path
    warm_up_s: float
    duration_s: float


def measure(name: str, round_: int, load: Load) -> dict[str, float]:
    """Starts one system; its figures with each number of clients."""
    system = SYSTEMS[name]
    started_s = time.monotonic()
    figures: dict[str, float] = {}
    with serving(system.command) as (address, _):
        host, port = address.host, address.http_port
        _log(f"round {round_}  {name:<21} ready after {time.monotonic() - started_s:4.1f} s")
        for num_clients in _NUM_CLIENTS:
            found = _run_client(system, host, port, num_clients, load)
            figures |= {f"{figure}_{num_clients}": value for figure, value in found.items()}
            if name == "dyorc" and num_clients == 1:
                figures["bytes_per_call"] = _link_bytes_per_call(host, port)
            _log(
                f"round {round_}  {name:<21} {num_clients} clients: p50 {found['p50_ms']:8.2f} ms, "
                f"p99 {found['p99_ms']:8.2f} ms, {found['rps']:6.1f} requests/s"
            )
    return figures


def _run_client(system: System, host: str, port: int, num_clients: int, load: Load) -> dict[str, float]:
    options = {
        "--host": host,
        "--port": port,
        "--path": system.path,
        "--protocol": system.protocol,
        "--input-name": "seed",
        "--num-clients": num_clients,
        "--pool": load.pool,
        "--warm-up-s": load.warm_up_s,
        "--duration-s": load.duration_s,
    }
    command = [sys.executable, str(_OVERHEAD / "client.py"), *(str(word) for pair in options.items() for word in pair)]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode != 0:
        raise BenchmarkError(finished.stderr.strip())
    return json.loads(finished.stdout)


def _link_bytes_per_call(host: str, port: int) -> float:
    """What goes between DyOrc's orchestrator and the replicas for one call, in bytes."""

    def link_bytes() -> int:
        with urllib.request.urlopen(f"http://{host}:{port}/status", timeout=30) as response:
            return sum(json.load(response)["link"].values())

    body = json.dumps({"inputs": [{"name": "seed", "shape": [1], "datatype": "FP32", "data": [0.5]}]}).encode()
    request = urllib.request.Request(f"http://{host}:{port}{SYSTEMS['dyorc'].path}", body)
    before = link_bytes()
    for _ in range(_NUM_COUNTED):
        with urllib.request.urlopen(request, timeout=30) as response:
            response.read()
    return (link_bytes() - before) / (_NUM_COUNTED * _NUM_PROGRAMS)


def time_programs() -> float:
    """Milliseconds of the three programs for one request, in this process; a median."""
    constant = ramp()
    taken_ms: list[float] = []
    with torch.inference_mode():
        for seed in torch.linspace(-1.0, 1.0, _NUM_ALONE)[:, None, None]:
            began_s = time.perf_counter()
            total(shift(make(constant, seed)))
            taken_ms.append((time.perf_counter() - began_s) * 1e3)
    return statistics.median(taken_ms)


def run(names: Sequence[str], num_rounds: int, load: Load) -> dict[str, object]:
    """All rounds, every system in each; the medians."""
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    programs_ms: list[float] = []
    for round_ in range(1, num_rounds + 1):
        programs_ms.append(time_programs())
        for name in names:
            figures[name].append(measure(name, round_, load))
    medians = {
        name: {figure: round(statistics.median(one[figure] for one in found), 3) for figure in _FIGURES}
        for name, found in figures.items()
    }
    return {
        **medians,
        **dict(_ratios(medians)),
        "programs_ms": round(statistics.median(programs_ms), 3),
        "orchestrator_bytes_per_call": _counted(figures.get("dyorc", [])),
    }


def _counted(rounds: Sequence[dict[str, float]]) -> float | None:
    return round(statistics.median(one["bytes_per_call"] for one in rounds), 1) if rounds else None


def _ratios(medians: dict[str, dict[str, float]]) -> Iterator[tuple[str, float]]:
    peers = [figures for name, figures in medians.items() if not name.startswith("dyorc")]
    for name, suffix in (("dyorc", ""), ("dyorc_empty", "_empty")):
        ours = medians.get(name)
        if ours is not None and peers:
            yield f"p50_ratio{suffix}", round(min(peer["p50_ms_1"] for peer in peers) / ours["p50_ms_1"], 2)
            yield f"rps_ratio{suffix}", round(ours["rps_4"] / max(peer["rps_4"] for peer in peers), 2)


def main() -> None:
    """Runs all rounds and prints the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="some of %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up-s", type=float, default=1.5)
    parser.add_argument("--duration-s", type=float, default=4.0)
    arguments = parser.parse_args()
    names = arguments.systems.split(",")
    if unknown := set(names) - set(SYSTEMS):
        parser.error(f"no such system: {', '.join(sorted(unknown))}; there are: {', '.join(SYSTEMS)}")
    adopt_orphans()
    signal.signal(signal.SIGTERM, _exit)
    with tempfile.TemporaryDirectory(prefix="chain-") as folder:
        load = Load(pool=Path(folder) / "pool.npz", warm_up_s=arguments.warm_up_s, duration_s=arguments.duration_s)
        np.savez(load.pool, **draw_pool()._asdict())
        try:
            summary = run(names, arguments.rounds, load)
        except BenchmarkError as error:
            sys.exit(str(error))
    print(json.dumps(summary))


def _exit(*_: object) -> None:
    sys.exit(143)  # an exception, so that the server is stopped


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
