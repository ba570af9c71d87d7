"""Compares DyOrc's overhead per request with that of Ray Serve's own composition.

    python -m benchmarks.focused.overhead [--systems dyorc,ray_serve,ray_serve_throughput] [--rounds 3] [--duration-s 4]

The same cascade of two small torch networks (`overhead_nets.py`), on the same machine, in the same run, with 1 and with 32
closed-loop clients. The systems take turns: an idle Ray is not quite idle, so only one server runs at a time, and there are
several rounds, so that all systems meet the same neighbours. The figures are medians over the rounds.

Progress goes to stderr. The last line of stdout is one JSON object: for each system its figures, and `p50_ratio` and
`rps_ratio`, how many times faster DyOrc is than the better of Ray Serve's two modes, at 1 and at 32 clients. Takes about five
minutes.

Not the same for all: DyOrc's requests are in the Open Inference Protocol (JSON and binary tensors), Ray Serve's are raw bytes,
which are cheaper; and Ray Serve gets the batch wait that suits each load, DyOrc has none to set.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.focused.overhead.overhead_nets import draw_pool
from benchmarks.processes import adopt_orphans
from benchmarks.serving import BenchmarkError, serving

_HERE = Path(__file__).resolve().parent
_NUM_CLIENTS = (1, 32)

# By number of clients. `@serve.batch` waits for more even when nothing else can come, so for one client 0 is best by far: in the
# throughput mode 1 ms makes the median a third longer, 10 ms (Ray Serve's default) makes it four times as long. With 32 clients
# waits of 5 and 10 ms give up to a tenth more requests per second than 0 and 1 ms in the throughput mode; in the default mode
# there is no clear difference.
_BATCH_WAIT_TIMEOUT_S = {1: 0.0, 32: 0.005}


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """How to start a server and how to talk to it."""

    command: Sequence[str]
    protocol: str
    path: str
    batch_wait_timeout_s: Mapping[int, float] = field(default_factory=dict)


def _ray_serve(mode: str) -> System:
    command = [sys.executable, str(_HERE / "ray_serve_server.py"), str(_HERE / "ray_serve_app.py"), "--mode", mode]
    return System(command=command, protocol="raw", path="/", batch_wait_timeout_s=_BATCH_WAIT_TIMEOUT_S)


SYSTEMS = {
    "dyorc": System(
        command=[sys.executable, "-m", "dyorc.cli", "serve", f"{_HERE / 'cascade.py'}:cascade", "--port", "0"],
        protocol="oip",
        path="/v2/models/cascade/infer",
    ),
    "ray_serve": _ray_serve("default"),
    "ray_serve_throughput": _ray_serve("throughput"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run of the client."""

    system: str
    round: int
    num_clients: int
    p50_ms: float
    p99_ms: float
    rps: float


def _set_batch_wait(host: str, port: int, timeout_s: float) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("POST", "/batch-wait-timeout-s", str(timeout_s))
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != 200:
        raise BenchmarkError(f"could not set the batch wait: {status}")


# -------------------------------------------------------------------------------------------------------------- measurements


def measure(name: str, round_: int, pool: Path, warm_up_s: float, duration_s: float) -> Iterator[Measurement]:
    """Starts one system, and measures it with few and with many clients."""
    system = SYSTEMS[name]
    started_s = time.monotonic()
    with serving(system.command) as (address, _):
        host, port = address.host, address.http_port
        _log(f"round {round_}  {name:<21} ready after {time.monotonic() - started_s:4.1f} s")
        for num_clients in _NUM_CLIENTS:
            if system.batch_wait_timeout_s:
                _set_batch_wait(host, port, system.batch_wait_timeout_s[num_clients])
            figures = _run_client(system, host, port, num_clients, pool, warm_up_s, duration_s)
            measurement = Measurement(system=name, round=round_, num_clients=num_clients, **figures)
            _log(
                f"round {round_}  {name:<21} {num_clients:>2} clients: p50 {measurement.p50_ms:8.2f} ms, "
                f"p99 {measurement.p99_ms:8.2f} ms, {measurement.rps:7.1f} requests/s"
            )
            yield measurement


def _run_client(
    system: System, host: str, port: int, num_clients: int, pool: Path, warm_up_s: float, duration_s: float
) -> dict[str, float]:
    options = {
        "--host": host,
        "--port": port,
        "--path": system.path,
        "--protocol": system.protocol,
        "--num-clients": num_clients,
        "--pool": pool,
        "--warm-up-s": warm_up_s,
        "--duration-s": duration_s,
    }
    command = [sys.executable, str(_HERE / "client.py"), *(str(word) for pair in options.items() for word in pair)]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode != 0:
        raise BenchmarkError(finished.stderr.strip())
    return json.loads(finished.stdout)


def summarize(measurements: Sequence[Measurement]) -> dict[str, object]:
    """Medians over the rounds, and, where all systems were measured, the two ratios."""
    systems = {
        name: _medians([one for one in measurements if one.system == name])
        for name in dict.fromkeys(one.system for one in measurements)
    }
    summary: dict[str, object] = dict(systems)
    peers = [figures for name, figures in systems.items() if name != "dyorc"]
    if "dyorc" in systems and peers:
        ours = systems["dyorc"]
        summary["p50_ratio"] = round(min(peer["p50_ms_1"] for peer in peers) / ours["p50_ms_1"], 2)
        summary["rps_ratio"] = round(ours["rps_32"] / max(peer["rps_32"] for peer in peers), 2)
    return summary


def _medians(measurements: Sequence[Measurement]) -> dict[str, float]:
    return {
        f"{figure}_{num_clients}": round(
            statistics.median(getattr(one, figure) for one in measurements if one.num_clients == num_clients), 3
        )
        for figure in ("p50_ms", "p99_ms", "rps")
        for num_clients in _NUM_CLIENTS
    }


def main() -> None:
    """Runs all rounds and prints the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="some of %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up-s", type=float, default=1.5)
    parser.add_argument("--duration-s", type=float, default=4.0)
    parser.add_argument("--raw", type=Path, help="write every measurement to this JSON file")
    arguments = parser.parse_args()
    names = arguments.systems.split(",")
    if unknown := set(names) - set(SYSTEMS):
        parser.error(f"no such system: {', '.join(sorted(unknown))}")
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # an exception, so that the server is stopped
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        pool = Path(folder) / "pool.npz"
        np.savez(pool, **draw_pool()._asdict())
        try:
            measurements = [
                measurement
                for round_ in range(1, arguments.rounds + 1)
                for name in names
                for measurement in measure(name, round_, pool, arguments.warm_up_s, arguments.duration_s)
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
