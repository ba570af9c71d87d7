"""Streams through three stages, each of which reads the stream of the one before: DyOrc against Ray Serve's own composition.

    python -m benchmarks.focused.streams [--systems dyorc_cell,dyorc,ray_serve] [--rounds 3] [--duration-s 5]

The stages do almost nothing (`work.py`): a part is 16 bytes, and says when it was due. DyOrc runs them in one cell, and on Ray
with a process for each; Ray Serve runs a process for each, with ``stream=True`` (`ray_serve_app.py`). The systems take turns,
every part is checked, and the figures are medians over the rounds:

* "first_p50_ms_N", "first_p99_ms_N": from the request to the first part, with N clients whose parts come 50 times a second. The
  first part is due at once, so all of it is added by the system;
* "age_p50_ms_32", "age_p99_ms_32": how long after it was due a part came, of 32 such clients (1,600 parts a second);
* "parts_per_s_32": 32 clients whose parts have no pause.

Progress goes to stderr. The last line of stdout is one JSON object: the figures of each system, and how many times better DyOrc's
two ways are than Ray Serve. Takes about three minutes. The clients are one process on the same cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import uvloop

from benchmarks.focused import turns
from benchmarks.focused.ray_serve_server import ray_serve
from benchmarks.focused.streams.client import StreamLoad, StreamTimes, read_streams
from benchmarks.focused.streams.work import ITEM_BYTES
from benchmarks.focused.turns import Rounds, Turn

_APP = Path(__file__).with_name("streams.py")
_PEER = "benchmarks.focused.streams.ray_serve_app"
_PAUSE_US = 20_000
_FIGURES = ("first_p50_ms_1", "first_p50_ms_32", "age_p99_ms_32", "parts_per_s_32")

SYSTEMS = {
    "dyorc_cell": turns.dyorc(f"{_APP}:streams", "--in-process"),
    "dyorc": turns.dyorc(f"{_APP}:streams"),
    "ray_serve": ray_serve(_PEER, "default", "--probe-bytes", str(ITEM_BYTES)),
}


def measure(turn: Turn) -> dict[str, float]:
    """Puts the three loads on a system."""
    one = _read(turn, "1 client, 50 parts/s", num_clients=1, num_parts=10, pause_us=_PAUSE_US)
    paced = _read(turn, "32 clients, 50 parts/s each", num_clients=32, num_parts=50, pause_us=_PAUSE_US)
    fast = _read(turn, "32 clients, no pause", num_clients=32, num_parts=200, pause_us=0)
    return {
        **_quantiles("first", one.first_ns, 1),
        **_quantiles("first", paced.first_ns, 32),
        **_quantiles("age", paced.age_ns, 32),
        "parts_per_s_32": fast.num_parts / turn.terms.duration_s,
        "cpu_32": fast.cpu_s / turn.terms.duration_s,
    }


def _read(turn: Turn, name: str, *, num_clients: int, num_parts: int, pause_us: int) -> StreamTimes:
    load = StreamLoad(
        num_clients=num_clients,
        num_parts=num_parts,
        pause_us=pause_us,
        warm_up_s=turn.terms.warm_up_s,
        duration_s=turn.terms.duration_s,
    )
    seen = uvloop.run(read_streams(turn.address.url, "streams" if turns.is_dyorc(turn.system) else "", load))
    first, age = _quantiles("first", seen.first_ns, num_clients), _quantiles("age", seen.age_ns, num_clients)
    figures = "  ".join(f"{figure} {value:8.2f}" for figure, value in (first | age).items())
    turn.log(f"{name:<28} {figures}  {seen.num_parts / load.duration_s:8,.0f} parts/s")
    return seen


def _quantiles(name: str, times_ns: Sequence[int], num_clients: int) -> dict[str, float]:
    p50, p99 = (np.quantile(times_ns, [0.5, 0.99], method="inverted_cdf") / 1e6).tolist()
    return {f"{name}_p50_ms_{num_clients}": p50, f"{name}_p99_ms_{num_clients}": p99}


def summarize(rounds: Rounds) -> dict[str, object]:
    """Returns medians over the rounds and, if Ray Serve was measured, how many times better DyOrc is."""
    systems = {name: turns.without_cpu(turns.medians(figures)) for name, figures in rounds.items()}
    summary: dict[str, object] = dict(systems)
    if (peer := systems.get("ray_serve")) is None:
        return summary
    for name, figures in systems.items():
        if turns.is_dyorc(name):
            summary[f"{name}_ratios"] = {
                figure: round(figures[figure] / peer[figure] if "per_s" in figure else peer[figure] / figures[figure], 2)
                for figure in _FIGURES
            }
    return summary


if __name__ == "__main__":
    turns.main(__doc__, SYSTEMS, measure, summarize, duration_s=5.0)
