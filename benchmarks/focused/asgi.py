"""DyOrc in uvicorn (`dyorc.asgi`) beside `dyorc serve` in one process, by turns: A B A B.

    python -m benchmarks.focused.asgi [--rounds 2] [--duration-s 4]

The benchmark of the gateway's program (`gateway/plus_one.py`: float32[1024] plus one), 4 KiB requests as binary tensors over
HTTP, with 1 and with 32 closed-loop clients. Every answer is checked. uvicorn runs with uvloop and httptools, and without an
access log.

Progress goes to stderr. The last line of stdout is one JSON object: medians over the rounds for "dyorc_cell" and "uvicorn", and
"ratios", how many times more requests a second `dyorc serve` answers. Takes about a minute.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from functools import partial
from pathlib import Path

import uvicorn

import dyorc
from benchmarks.focused import turns
from benchmarks.focused.gateway.plus_one import plus_one
from benchmarks.focused.turns import Rounds, System, Turn
from loadgen.pool import Pool
from loadgen.targets.base import TargetSpec

_TARGET = f"{Path(__file__).parent / 'gateway' / 'plus_one.py'}:plus_one"
_NUM_CLIENTS = (1, 32)
_SERVE = "serve"
SYSTEMS = {
    "dyorc_cell": turns.dyorc(_TARGET, "--in-process"),
    "uvicorn": System(command=[sys.executable, "-m", "benchmarks.focused.asgi", _SERVE]),
}


class _AnnouncingServer(uvicorn.Server):
    """Says when it is ready."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print("Ready", flush=True)


def _serve() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        app = dyorc.asgi(plus_one)
        config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning")
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again once it has stopped
            _AnnouncingServer(config).run([listener])


def measure(turn: Turn, pool: Pool) -> dict[str, float]:
    """Measures one system."""
    figures: dict[str, float] = {}
    for num_clients in _NUM_CLIENTS:
        spec = TargetSpec(protocol="http", url=turn.address.url, model="plus_one")
        figures |= turn.closed_loop(spec, pool, num_clients)
    return figures


def summarize(rounds: Rounds) -> dict[str, object]:
    """Returns medians over the rounds, and how they compare."""
    systems = {name: turns.medians(figures) for name, figures in rounds.items()}
    ours, theirs = systems.get("dyorc_cell", {}), systems.get("uvicorn", {})
    names = [f"rps_{num_clients}" for num_clients in _NUM_CLIENTS]
    ratios = {name: round(ours[name] / theirs[name], 3) for name in names if name in ours and name in theirs}
    return {**systems, "ratios": ratios}


def main() -> None:
    """Measures, or serves for that in another process."""
    if sys.argv[1:] == [_SERVE]:
        _serve()
        return
    from benchmarks.focused.gateway.__main__ import draw_pool

    turns.main(__doc__, SYSTEMS, partial(measure, pool=draw_pool()), summarize, duration_s=4.0)


if __name__ == "__main__":
    main()
