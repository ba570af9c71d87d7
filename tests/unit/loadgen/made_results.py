"""Made-up results, as the generator writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram

from loadgen.results import BranchResult, Counts, Quantiles, RunResult, ServerFigures, Timeline


def latencies(num: int = 2000, *, median_ms: float = 5.0, seed: int = 0) -> np.ndarray[Any, Any]:
    """Returns latencies as servers have them: most near the median, a few far above."""
    return np.random.default_rng(seed).lognormal(np.log(median_ms), 0.5, num)


def histogram(latencies_ms: Sequence[float] | np.ndarray[Any, Any]) -> str:
    recorded = HdrHistogram(1, 3_600_000_000, 3)
    for value in latencies_ms:
        recorded.record_value(max(int(value * 1000), 1))
    encoded = recorded.encode()
    return encoded.decode() if isinstance(encoded, bytes) else encoded


def quantiles(values: np.ndarray[Any, Any]) -> Quantiles:
    p50, p90, p99, p999 = np.quantile(values, [0.5, 0.9, 0.99, 0.999]).tolist()
    return Quantiles(p50=p50, p90=p90, p99=p99, p999=p999, mean=float(values.mean()), max=float(values.max()))


def branch(values: np.ndarray[Any, Any]) -> BranchResult:
    return BranchResult(num_requests=len(values), latency_ms=quantiles(values), histogram=histogram(values))


def timeline(*, bad: Sequence[int] = (0, 0, 0, 0)) -> Timeline:
    """Returns four seconds, in the third of which nothing is due."""
    return Timeline(
        edges_s=[0, 1, 2, 3, 4],
        num_due=[100, 300, 0, 200],
        num_bad=list(bad),
        p50_ms=[5.0, 8.0, None, 6.0],
        p99_ms=[20.0, 80.0, None, 30.0],
        num_answered=[90, 250, 60, 200],
        max_waiting=[12, 70, 60, 15],
    )


@cache
def _described(median_ms: float, seed: int) -> tuple[Quantiles, Quantiles, str, str]:
    values = latencies(median_ms=median_ms, seed=seed)
    return quantiles(values), quantiles(values / 100), histogram(values), histogram(values / 100)


def result(
    label: str = "dyorc",
    *,
    rate_rps: float = 200.0,
    median_ms: float = 5.0,
    goodput_ratio: float = 1.0,
    wrong: int = 0,
    failed: int = 0,
    client_warning: str = "",
    errors: Mapping[str, int] | None = None,
    branches: Mapping[str, BranchResult] | None = None,
    server: ServerFigures = ServerFigures(),  # noqa: B008  (frozen)
    timeline: Timeline | None = None,
    seed: int = 0,
    **load: Any,
) -> RunResult:
    latency_ms, send_delay_ms, shape, send_delay_shape = _described(median_ms, seed)
    num = len(latencies())
    return RunResult(
        label=label,
        target={"protocol": "http", "url": "http://127.0.0.1:1", "model": label},
        load={"arrivals": "poisson", "rate_rps": rate_rps, "seed": 0} | load,
        started_at="2026-01-02T03:04:05+00:00",
        duration_s=10.0,
        num_workers=1,
        counts=Counts(
            planned=num,
            correct=num - wrong - failed,
            wrong=wrong,
            failed=failed,
            unanswered=0,
            within_slo=round(goodput_ratio * num),
        ),
        errors=dict(errors or {}),
        slo_s=0.025,
        latency_ms=latency_ms,
        throughput_rps=rate_rps,
        goodput_rps=rate_rps * goodput_ratio,
        goodput_ratio=goodput_ratio,
        branches=dict(branches or {}),
        send_delay_ms=send_delay_ms,
        client_cpu_ratio=0.25,
        client_warning=client_warning,
        histogram=shape,
        send_delay_histogram=send_delay_shape,
        server=server,
        timeline=timeline,
        machine={"processor": "a processor", "cores": 2},
        versions={"python": "3.11"},
        commit="abc123",
    )
