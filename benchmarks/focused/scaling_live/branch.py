"""How much a branch that is scaled to zero adds to a request, when its upstream takes longer than the branch takes to load."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np

from benchmarks.focused import turns
from benchmarks.focused.scaling_live import watch
from benchmarks.serving import Address, BenchmarkError, serving
from dyorc.client import Client
from dyorc.protocol.routes import SCALING

_APP = f"{Path(__file__).with_name('branch_app.py')}:branching"
_PROGRAM = "branch"
_TAKES = np.ones(16, np.float32)
_SKIPS = -_TAKES
_NUM_LEARNED = 6
_TIMEOUT_S = 60.0
_POLL_S = 0.05


def measure_branch(num_requests: int) -> dict[str, object]:
    """Returns latencies of requests that find the branch warm, and of those that find it parked."""
    with serving(turns.dyorc(_APP).command) as (address, _), Client(address.url) as client:
        for _ in range(_NUM_LEARNED):  # half of the requests take the branch
            _ask(client, _TAKES)
            _ask(client, _SKIPS)
        watch.ask(address, f"{SCALING}/{_PROGRAM}", {"num_warm": 1})
        _wait_until_warm(address, is_warm=True)
        warm_s = [_ask(client, _TAKES) for _ in range(num_requests)]
        watch.ask(address, f"{SCALING}/{_PROGRAM}", {})
        parked_s: list[float] = []
        for _ in range(num_requests):
            _wait_until_warm(address, is_warm=False)
            _ask(client, _SKIPS)
            _wait_until_warm(address, is_warm=False)
            parked_s.append(_ask(client, _TAKES))
        load_s = watch.ask(address, SCALING)["programs"][_PROGRAM]["from_parked_s"]
    warm_ms, parked_ms = (1000 * statistics.median(times_s) for times_s in (warm_s, parked_s))
    figures: dict[str, object] = {
        "requests": num_requests,
        "warm_p50_ms": round(warm_ms, 1),
        "parked_p50_ms": round(parked_ms, 1),
        "parked_longest_ms": round(1000 * max(parked_s), 1),
        "added_ms": round(parked_ms - warm_ms, 1),
        "load_ms": round(1000 * load_s, 1),
    }
    turns.log(f"branch               {figures}")
    return figures


def _ask(client: Client, x: np.ndarray) -> float:
    """Returns the latency of a request."""
    began_s = time.perf_counter()
    client.infer("branching", x=x)
    return time.perf_counter() - began_s


def _wait_until_warm(address: Address, *, is_warm: bool) -> None:
    give_up_at_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < give_up_at_s:
        about = watch.ask(address, SCALING)["programs"][_PROGRAM]
        if about["num_warming"] == 0 and about["num_warm"] == int(is_warm):
            return
        time.sleep(_POLL_S)
    raise BenchmarkError(f"program {_PROGRAM!r} did not {'warm up' if is_warm else 'go cold'} in {_TIMEOUT_S:.0f} s")
