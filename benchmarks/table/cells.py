"""Turns the measurements of several rounds into the cells of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from hdrh.histogram import HdrHistogram

from benchmarks.table.records import Cell, OracleRecord
from benchmarks.table.speed import Speed
from loadgen.results import RunResult

_MAX_US = 3_600_000_000
_NUM_DIGITS = 3


def cell_of(
    workload: str, load: str, rounds: Mapping[int, RunResult], oracle: OracleRecord | None, speeds: Mapping[int, Speed]
) -> Cell:
    """Returns one cell: medians over the rounds, and sums of the counts.

    Args:
        rounds: One system on one workload under one load, by the number of the round.
        speeds: The machine's, right before each round.
    """
    runs = list(rounds.values())
    p50s, p99s = [run.latency_ms.p50 for run in runs], [run.latency_ms.p99 for run in runs]
    p50_ms, p99_ms = median(p50s), median(p99s)
    counts = [run.counts for run in runs]
    return Cell(
        workload=workload,
        system=runs[0].label,
        load=load,
        rate_rps=runs[0].load["rate_rps"],
        num_requests=sum(count.planned for count in counts),
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        p50s_ms=p50s,
        p99s_ms=p99s,
        rounds=list(rounds),
        python_ms=[speeds[number].python_ms for number in rounds if number in speeds],
        blas_ms=[speeds[number].blas_ms for number in rounds if number in speeds],
        goodput_ratio=median(run.goodput_ratio for run in runs),
        goodput_rps=median(run.goodput_rps for run in runs),
        device_ms_per_request=median(sum(run.server.device_ms_per_request.values()) for run in runs),
        p50_vs_oracle=p50_ms / oracle.p50_ms if oracle else None,
        p99_vs_oracle=p99_ms / oracle.p99_ms if oracle else None,
        wrong=sum(count.wrong for count in counts),
        failed=sum(count.failed for count in counts),
        unanswered=sum(count.unanswered for count in counts),
        is_client_limited=any(run.client_warning for run in runs),
        batch_sizes=_added([run.server.batch_sizes for run in runs]),
        speculation=dict(sum((Counter(run.server.speculation) for run in runs), Counter[str]())),
        histogram=_merged([run.histogram for run in runs]),
    )


def _added(rounds: Sequence[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    added: dict[str, Counter[str]] = {}
    for sizes in rounds:
        for program, counts in sizes.items():
            added.setdefault(program, Counter()).update(counts)
    return {program: dict(sorted(counts.items(), key=lambda pair: int(pair[0]))) for program, counts in added.items()}


def _merged(histograms: Sequence[str]) -> str:
    merged = HdrHistogram(1, _MAX_US, _NUM_DIGITS)
    for text in histograms:
        merged.add(HdrHistogram.decode(text))
    return merged.encode().decode()
