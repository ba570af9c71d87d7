"""Compares DyOrc's overhead per request with that of Ray Serve's own composition.

    python -m benchmarks.focused.overhead [--systems dyorc,dyorc_cell,ray_serve] [--rounds 3] [--duration-s 4]

The same cascade of two small torch networks (`nets.py`), on the same machine, in the same run, with 1 and with 32 closed-loop
clients. The systems take turns, in several rounds; every answer is checked. The figures are medians over the rounds.

DyOrc runs in each of its modes: with replicas on Ray, in one cell, and in two (`docs/concepts/cells.md`).

Progress goes to stderr. The last line of stdout is one JSON object: for each system its figures; `p50_ratio` and `rps_ratio`, how
many times faster DyOrc's best mode is than the better of Ray Serve's two, at 1 and at 32 clients; and which mode that is. Takes
about seven minutes.

Two things differ: DyOrc's requests use the Open Inference Protocol (JSON and binary tensors), Ray Serve's are raw bytes, which
are cheaper; and Ray Serve gets the batch wait that suits each load best, while DyOrc has no such setting.
"""

from __future__ import annotations

import http.client
from functools import partial
from pathlib import Path

from benchmarks.focused import turns
from benchmarks.focused.overhead.nets import draw_pool
from benchmarks.focused.ray_serve_server import ray_serve
from benchmarks.focused.turns import Rounds, Turn
from benchmarks.serving import Address, BenchmarkError
from loadgen.pool import Pool
from loadgen.targets.base import TargetSpec

_APP = Path(__file__).with_name("cascade.py")
_PEER = "benchmarks.focused.overhead.ray_serve_app"
_NUM_CLIENTS = (1, 32)

# By number of clients. `@serve.batch` waits for more requests even when none can come, so 0 is best by far for one client: in
# the throughput mode 1 ms makes the median a third longer, 10 ms (Ray Serve's default) four times as long. With 32 clients,
# waits of 5 and 10 ms give up to a tenth more requests per second than 0 and 1 ms in the throughput mode; in the default mode
# there is no clear difference.
_BATCH_WAIT_TIMEOUT_S = {1: 0.0, 32: 0.005}

SYSTEMS = {
    **turns.dyorc_modes(f"{_APP}:cascade"),
    "ray_serve": ray_serve(_PEER, "default"),
    "ray_serve_throughput": ray_serve(_PEER, "throughput"),
}


def measure(turn: Turn, pool: Pool) -> dict[str, float]:
    """Measures with few and with many clients."""
    figures: dict[str, float] = {}
    for num_clients in _NUM_CLIENTS:
        if turns.is_dyorc(turn.system):
            spec = TargetSpec(protocol="http", url=turn.address.url, model="cascade")
        else:
            _set_batch_wait(turn.address, _BATCH_WAIT_TIMEOUT_S[num_clients])
            spec = TargetSpec(protocol="raw", url=turn.address.url, codec="benchmarks.focused.raw_floats")
        figures |= turn.closed_loop(spec, pool, num_clients)
    return figures


def _set_batch_wait(address: Address, timeout_s: float) -> None:
    connection = http.client.HTTPConnection(address.host, address.http_port, timeout=10)
    try:
        connection.request("POST", "/batch-wait-timeout-s", str(timeout_s))
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != 200:
        raise BenchmarkError(f"could not set the batch wait: {status}")


def summarize(rounds: Rounds) -> dict[str, object]:
    """Returns medians over the rounds and, if there is a peer to compare with, the two ratios."""
    systems = {name: turns.without_cpu(turns.medians(figures_of_rounds)) for name, figures_of_rounds in rounds.items()}
    summary: dict[str, object] = dict(systems)
    ours = {name: figures for name, figures in systems.items() if turns.is_dyorc(name)}
    peers = {name: figures for name, figures in systems.items() if name not in ours}
    for figure, shown in (("p50_ms_1", "p50_ratio"), ("rps_32", "rps_ratio")):
        best, best_peer = turns.best_of(figure, ours), turns.best_of(figure, peers)
        if best is not None and best_peer is not None:
            mine, theirs = ours[best][figure], peers[best_peer][figure]
            summary[shown] = round(mine / theirs if "rps" in figure else theirs / mine, 2)
            summary[f"{shown}_mode"] = best
    return summary


if __name__ == "__main__":
    turns.main(__doc__, SYSTEMS, partial(measure, pool=draw_pool()), summarize, duration_s=4.0)
