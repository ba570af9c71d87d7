"""How much a branch that is scaled to zero adds to a request, when its upstream takes longer than the branch takes to start."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.focused import turns
from benchmarks.focused.scaling_live import watch
from benchmarks.serving import Address, BenchmarkError, serving
from dyorc.client import Client
from dyorc.protocol.api_paths import SCALING

_APP = f"{Path(__file__).with_name('branch_app.py')}:branching"
_PROGRAM = "branch"
_TAKES = np.ones(16, np.float32)
_SKIPS = -_TAKES
_NUM_LEARNED = 6
_TIMEOUT_S = 300.0
"""While calls are likely, the server keeps what it has: a minute or more after the last one."""
_POLL_S = 0.05

About: TypeAlias = Mapping[str, Any]
"""What ``/scaling`` says of the branch."""


def measure_branch(num_requests: int) -> dict[str, object]:
    """Returns what a branch adds that is parked, and one that has no process."""
    return {
        "requests": num_requests,
        "parked": _measure(num_requests, "parked", is_parked, cold_delay_s=600.0),
        "cold": _measure(num_requests, "cold", is_cold, cold_delay_s=1.0),
    }


def is_warm(about: About) -> bool:
    """Returns whether the branch is loaded."""
    return about["num_warm"] == 1


def is_parked(about: About) -> bool:
    """Returns whether the branch has nothing but a process that waits."""
    return about["num_parked"] == 1 and about["num_warm"] == about["num_warming"] == about["num_starting"] == 0


def is_cold(about: About) -> bool:
    """Returns whether the branch has no process, and none is on its way."""
    return not any(about[f"num_{state}"] for state in ("warm", "warming", "parked", "starting"))


def _measure(num_requests: int, state: str, is_there: Callable[[About], bool], cold_delay_s: float) -> dict[str, float]:
    """Returns latencies of requests that find the branch warm, and of requests that find it in a state."""
    system = turns.dyorc(_APP, BENCHMARK_COLD_DELAY_S=str(cold_delay_s))
    with serving(system.command, system.environment) as (address, _), Client(address.url) as client:
        for _ in range(_NUM_LEARNED):  # half of the requests take the branch
            _ask(client, _TAKES)
            _ask(client, _SKIPS)
        watch.ask(address, f"{SCALING}/{_PROGRAM}", {"num_warm": 1})
        _wait_until(is_warm, "warm", address)
        warm_s = [_ask(client, _TAKES) for _ in range(num_requests)]
        watch.ask(address, f"{SCALING}/{_PROGRAM}", {})
        found_s: list[float] = []
        for _ in range(num_requests):
            _wait_until(is_there, state, address)
            _ask(client, _SKIPS)
            _wait_until(is_there, state, address)
            found_s.append(_ask(client, _TAKES))
        ready_s = _about(address)[f"from_{state}_s"]
    warm_ms, found_ms = (1000 * statistics.median(times_s) for times_s in (warm_s, found_s))
    figures = {
        "warm_p50_ms": round(warm_ms, 1),
        "p50_ms": round(found_ms, 1),
        "longest_ms": round(1000 * max(found_s), 1),
        "added_ms": round(found_ms - warm_ms, 1),
        "ready_ms": round(1000 * ready_s, 1),
    }
    turns.log(f"branch, {state:<12} {figures}")
    return figures


def _ask(client: Client, x: np.ndarray) -> float:
    """Returns the latency of a request."""
    began_s = time.perf_counter()
    client.infer("branching", x=x)
    return time.perf_counter() - began_s


def _wait_until(is_there: Callable[[About], bool], state: str, address: Address) -> None:
    give_up_at_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < give_up_at_s:
        if is_there(_about(address)):
            return
        time.sleep(_POLL_S)
    raise BenchmarkError(f"program {_PROGRAM!r} was not {state} within {_TIMEOUT_S:.0f} s")


def _about(address: Address) -> About:
    return watch.ask(address, SCALING)["programs"][_PROGRAM]
