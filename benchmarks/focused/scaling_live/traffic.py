"""The loads: when requests are due, and what happened to them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table.pools import pool_file
from dyorc.traffic.request_traces import TracedRequest, write_trace
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.results import RunResult
from loadgen.run import run
from loadgen.targets.base import TargetSpec
from loadgen.traces import TraceKind, TracePlan, draw_trace

SLO_S = 0.5
_CYCLE_S = 150.0
"""What the load generator's on-off trace takes on average to go on and off once."""
_DRAIN_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OnOff:
    """The load generator's on-off trace, played faster.

    Attributes:
        cycle_s: How long the load is on and off once, on average; two fifths of it are on.
        rate_rps: Requests per second on average.
    """

    duration_s: float
    cycle_s: float = 15.0
    rate_rps: float = 8.0
    seed: int = 0

    def draw(self) -> Sequence[TracedRequest]:
        """Returns the requests."""
        pace = _CYCLE_S / self.cycle_s
        plan = TracePlan(kind=TraceKind.ON_OFF, duration_s=self.duration_s * pace, rate_rps=self.rate_rps / pace, seed=self.seed)
        return [TracedRequest(request.time_s / pace) for request in draw_trace(plan)]


def guarded_pool() -> Pool:
    """Returns the messages of the guarded example with their answers."""
    return Pool.load(pool_file("guarded"))


def send_on_off(label: str, spec: TargetSpec, pool: Pool, load: OnOff) -> RunResult:
    """Sends an on/off load and waits for all answers."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        path = Path(folder) / "trace.csv"
        write_trace(path, load.draw())
        plan = Load(arrivals="trace", trace=str(path), warm_up_s=0.0, duration_s=load.duration_s, drain_s=_DRAIN_S, slo_s=SLO_S)
        return run(label, spec, pool, plan)


def send_steadily(label: str, spec: TargetSpec, pool: Pool, rate_rps: float, duration_s: float) -> RunResult:
    """Sends requests that come independently, at an even rate."""
    plan = Load(arrivals="poisson", rate_rps=rate_rps, warm_up_s=0.0, duration_s=duration_s, drain_s=_DRAIN_S, slo_s=SLO_S)
    return run(label, spec, pool, plan)


def as_figures(result: RunResult) -> dict[str, object]:
    """Returns what happened to the requests. A miss is a request without a right answer within `SLO_S`."""
    counts, latency = result.counts, result.latency_ms
    figures: dict[str, object] = {
        "requests": counts.planned,
        "lost": counts.planned - counts.correct,
        "misses": counts.planned - counts.within_slo,
        "p50_ms": round(latency.p50, 1),
        "p99_ms": round(latency.p99, 1),
        "longest_ms": round(latency.max, 1),
    }
    if result.errors or result.first_wrong:
        figures["errors"] = {**result.errors, **({"wrong": result.first_wrong} if result.first_wrong else {})}
    return figures
