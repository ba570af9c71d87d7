"""Finds out how much one worker can send, to a server on the same machine that answers at once, before it is the limit itself."""

import contextlib
import sys
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from dyorc.testing import ServerProcess
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.results import RunResult
from loadgen.run import run
from loadgen.targets.base import TargetSpec

_GROWTH = 1.25
_MAX_RPS = 200_000.0
_TRIES = 2
"""How often a step is tried: one may fail because others use the machine too."""


@contextlib.contextmanager
def run_echo_server(protocol: str) -> Generator[str]:
    """Runs a server of `loadgen.echo` in a process of its own, and yields its address."""
    with ServerProcess([sys.executable, "-P", "-m", "loadgen.echo", protocol]) as server:
        yield server.url


def probe(protocol: str, address: str, rate_rps: float, duration_s: float) -> RunResult:
    """Measures one step: a constant rate on one worker."""
    spec = TargetSpec(protocol=protocol, url=address, model="echo", max_connections=256)
    pool = Pool(
        inputs=[{"x": np.full((1, 8, 8), number, np.float32)} for number in range(16)],
        answers=[{"y": np.arange(10, dtype=np.float32)}] * 16,
    )
    load = Load(arrivals="constant", rate_rps=rate_rps, warm_up_s=0.5, duration_s=duration_s, drain_s=2)
    return run(f"echo over {protocol}", spec, pool, load)


def is_fine(result: RunResult) -> bool:
    """Whether everything was answered, with no sign that the generator was the limit (`measures.client_warning`)."""
    return not result.client_warning and result.counts.correct == result.counts.planned


def highest(measure: Callable[[float], RunResult], start_rps: float, show: Callable[[str], None]) -> tuple[float, dict[str, Any]]:
    """Returns the highest rate that is fine, of rates that each grow by a quarter, and the measurement at it."""
    best, seen, rate_rps = 0.0, {}, start_rps
    while rate_rps <= _MAX_RPS:
        for _ in range(_TRIES):
            result = measure(rate_rps)
            delay_ms, cpu, p50_ms = result.send_delay_ms.p90, result.client_cpu_ratio, result.latency_ms.p50
            fine = is_fine(result)
            show(
                f"{rate_rps:9,.0f}/s  sent {delay_ms:7.3f} ms late (p90)  cpu {cpu:4.0%}  p50 {p50_ms:7.3f} ms"
                f"  p99 {result.latency_ms.p99:8.3f} ms  {'fine' if fine else 'too much'}"
            )
            if fine:
                break
        else:
            break
        best, seen = (
            rate_rps,
            {"cpu_ratio": cpu, "send_delay_p90_ms": delay_ms, "p50_ms": p50_ms, "p99_ms": result.latency_ms.p99},
        )
        rate_rps *= _GROWTH
    return best, seen


def find_limits(duration_s: float, show: Callable[[str], None]) -> dict[str, Any]:
    """Prints the limits over HTTP and gRPC."""
    limits: dict[str, Any] = {}
    for protocol, start_rps in (("http", 4000.0), ("grpc", 1000.0)):
        show(f"{protocol}, one worker:")
        with run_echo_server(protocol) as address:

            def measure(rate_rps: float, protocol: str = protocol, address: str = address) -> RunResult:
                return probe(protocol, address, rate_rps, duration_s)

            limits[f"{protocol}_rps"], limits[protocol] = highest(measure, start_rps, show)
    return limits
