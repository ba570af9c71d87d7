"""How many functions a request calls in the server: a figure that does not depend on the machine or on its load.

    python -m benchmarks.focused.calls

Serves the benchmark of overhead's cascade of two small torch networks (`overhead/cascade.py`) in this process, without Ray, and
counts the calls of functions on the event loop's thread while the load generator sends requests: with one client, where nothing
is shared, and with 32, where requests share batches and turns. The programs run on the loop, however long they take, torch
included. What the server calls by the clock, whether requests come or not, is counted before and left out.

The last line is one JSON object: for each number of clients, calls of Python functions for each request, in all and by folder
(``engine``, ``http``, ``torch``, ...), and of C functions. A compiled engine (`make compile`) has no Python functions to count,
so the benchmark refuses to measure one.
"""

import asyncio
import contextlib
import cProfile
import json
import pstats
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.focused.overhead.nets import draw_pool
from benchmarks.serving import BenchmarkError
from dyorc.config import CellsConfig, GatewayConfig, Settings
from dyorc.engine import engine
from dyorc.server.single_process import serve_embedded
from loadgen.load import Load
from loadgen.run import run
from loadgen.targets.base import TargetSpec

_TARGET = f"{Path(__file__).parent / 'overhead' / 'cascade.py'}:cascade"
_NUM_CLIENTS = (1, 32)
_WARM_UP_S = 3.0
_DURATION_S = 3.0
_FOLDERS = {
    "dyorc/engine/": "engine",
    "dyorc/gateway/http/": "http",
    "dyorc/gateway/": "gateway",
    "dyorc/orchestrator/": "orchestrator",
    "dyorc/cells/": "cells",
    "dyorc/replica/": "cells",
    "dyorc/authoring/": "authoring",
    "/torch/": "torch",
}
"""By a part of the path; the first that fits counts."""


def main() -> None:
    """Measures, and prints the figures."""
    if len(sys.argv) > 1:  # a separate process, started by `_load`
        _send(*sys.argv[1:])
        return
    if not str(engine.__file__).endswith(".py"):
        sys.exit("the engine is compiled, so its calls cannot be counted: `make pure` first")
    print(json.dumps(asyncio.run(_measure())))


async def _measure() -> dict[str, dict[str, float]]:
    cells = CellsConfig(inline_limit_s=3600.0)  # on a busy machine they would move to threads
    settings = Settings(gateway=GatewayConfig(port=0, grpc=False), cells=cells)
    figures: dict[str, dict[str, float]] = {}
    async with serve_embedded([_TARGET], settings, without_ray=True) as server:
        async for _ in server.wait_until_ready():
            pass
        with _counted() as idle:
            await asyncio.sleep(_DURATION_S)
        for num_clients in _NUM_CLIENTS:
            print(f"{num_clients} clients ...", file=sys.stderr)
            await _load(server.url, num_clients, _WARM_UP_S)
            num_before = await _num_answered(server.url)
            with _counted() as counted:
                await _load(server.url, num_clients, _DURATION_S)
            num_requests = await _num_answered(server.url) - num_before
            counted.calls.subtract({name: round(num * counted.seconds / idle.seconds) for name, num in idle.calls.items()})
            figures[f"clients_{num_clients}"] = _figures(counted.calls, num_requests)
    return figures


@dataclass
class _Counted:
    """Calls of functions, by folder, and in how many seconds there were so many."""

    calls: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0


@contextlib.contextmanager
def _counted() -> Generator[_Counted]:
    counted, profile, started_s = _Counted(), cProfile.Profile(), time.monotonic()
    profile.enable()
    yield counted
    profile.disable()
    counted.seconds = time.monotonic() - started_s
    for (file, _, _), calls in pstats.Stats(profile).stats.items():  # pyright: ignore[reportAttributeAccessIssue] (its stub lacks it)
        counted.calls[_folder_of(file)] += calls[1]


async def _load(url: str, num_clients: int, duration_s: float) -> None:
    """Sends requests from another process: here, its threads would compete with the server for the interpreter."""
    command = [sys.executable, "-m", __spec__.name, url, str(num_clients), str(duration_s)]
    process = await asyncio.create_subprocess_exec(*command)
    if await process.wait():
        raise BenchmarkError("the requests could not be sent")


def _send(url: str, num_clients: str, duration_s: str) -> None:
    spec = TargetSpec(protocol="http", url=url, model="cascade")
    load = Load(arrivals="closed", num_clients=int(num_clients), duration_s=float(duration_s))
    result = run("dyorc", spec, draw_pool(), load)
    if result.counts.correct != result.counts.planned:
        sys.exit(f"not all answers are right: {result.counts}")


async def _num_answered(url: str) -> int:
    def ask() -> int:
        with urllib.request.urlopen(f"{url}/v2/models/cascade/stats") as answer:
            return json.load(answer)["model_stats"][0]["inference_count"]

    return await asyncio.to_thread(ask)


def _figures(numbers: Counter[str], num_requests: int) -> dict[str, float]:
    total = sum(number for folder, number in numbers.items() if folder != "c")
    shown = {"python": total, **{folder: number for folder, number in numbers.most_common() if folder != "c"}, "c": numbers["c"]}
    return {name: round(number / num_requests, 1) for name, number in shown.items()} | {"num_requests": num_requests}


def _folder_of(file: str) -> str:
    if file == "~":
        return "c"
    return next((name for part, name in _FOLDERS.items() if part in file), "other")


if __name__ == "__main__":
    main()
