"""Makes one measurement: from a pool and a load to a result."""

import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from dyorc.core.counts import count
from loadgen import measures
from loadgen.load import Load
from loadgen.machine import commit, machine, versions
from loadgen.part_measures import measure_parts
from loadgen.pool import Pool
from loadgen.progress import Progress
from loadgen.recording import Records
from loadgen.results import RunResult, ServerFigures
from loadgen.schedule import plan, span_of
from loadgen.targets.base import TargetSpec
from loadgen.timeline import timeline
from loadgen.worker import WorkerPlan
from loadgen.workers import Moment, Workers

_MAX_RPS_OF_WORKER = 200_000


class ServerWatch(Protocol):
    """Finds out what the server did in the measured time."""

    def start(self) -> None:
        """Called when the measured time begins."""
        ...

    def stop(self) -> ServerFigures:
        """Called when the measured time ends."""
        ...


def run(
    label: str,
    spec: TargetSpec,
    pool: Pool,
    load: Load,
    *,
    show: Callable[[Progress], None] | None = None,
    server: ServerWatch | None = None,
) -> RunResult:
    """Measures a target under a load, with worker processes that are gone when it returns.

    Args:
        label: The name of what is measured.
        show: Called twice a second with what is known so far.
        server: Asked at the beginning and at the end of the measured time.

    Raises:
        ValueError: If the load is not possible, or nothing is due in the measured time.
        WorkerFailedError: If a worker fails, e.g. because the server cannot be reached. The message contains what it said.
    """
    load = _check_load(load)
    warm_up_ns, end_ns = _span(load)
    figures: list[ServerFigures] = []

    def moments(start_ns: int) -> Sequence[Moment]:
        if (watch := server) is None:
            return ()
        return (start_ns + warm_up_ns, watch.start), (start_ns + end_ns, lambda: figures.append(watch.stop()))

    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory(prefix="loadgen-") as folder:
        path = Path(folder) / "pool.npz"
        pool.save(path)
        plans = [WorkerPlan(spec=spec, load=load, pool=str(path), number=number) for number in range(load.num_workers)]
        with Workers(plans, Path(folder)) as workers:
            records = workers.run(moments, end_ns / 1e9 + load.drain_s, show)
    result = _result(label, spec, pool, load, records, (warm_up_ns, end_ns))
    return msgspec.structs.replace(result, started_at=started_at, server=figures[0] if figures else ServerFigures())


def _check_load(load: Load) -> Load:
    if load.num_workers < 1:
        raise ValueError(f"num_workers is {load.num_workers}, expected at least 1")
    if load.rate_rps > _MAX_RPS_OF_WORKER * load.num_workers:
        raise ValueError(
            f"a rate of {load.rate_rps:,.0f} requests per second from {count(load.num_workers, 'worker')}, expected at most "
            f"{_MAX_RPS_OF_WORKER:,} from each: none sends more than a tenth of that"
        )
    if load.arrivals != "closed":
        return load
    if load.num_clients < 1:
        raise ValueError(f"num_clients is {load.num_clients}, expected at least 1")
    return msgspec.structs.replace(load, num_workers=min(load.num_workers, load.num_clients))


def _span(load: Load) -> tuple[int, int]:
    """Returns when the warm-up and the load end, in nanoseconds from the start; a trace may end early."""
    if load.arrivals == "closed":
        return span_of(load)
    schedule = plan(load)
    return schedule.warm_up_ns, schedule.end_ns


def _result(
    label: str, spec: TargetSpec, pool: Pool, load: Load, records: Sequence[Records], span_ns: tuple[int, int]
) -> RunResult:
    measured = measures.select_measured(records, *span_ns)
    counts = measures.counts(measured, load.slo_s)
    latency_ms, send_delay_ms = measures.quantiles(measured.latency_ns), measures.quantiles(measured.send_delay_ns)
    cpu_ratio = max(worker.cpu_ratio for worker in records)
    duration_s = (span_ns[1] - span_ns[0]) / 1e9
    target: dict[str, Any] = msgspec.to_builtins(spec)
    del target["headers"]  # keys and passwords
    return RunResult(
        label=label,
        target=target,
        load=msgspec.to_builtins(load),
        started_at="",
        duration_s=duration_s,
        num_workers=len(records),
        counts=counts,
        errors=measured.errors,
        first_wrong=measured.wrong,
        slo_s=load.slo_s,
        latency_ms=latency_ms,
        throughput_rps=counts.correct / duration_s,
        goodput_rps=counts.within_slo / duration_s,
        goodput_ratio=counts.within_slo / counts.planned,
        branches=measures.by_branch(measured, pool.branches),
        send_delay_ms=send_delay_ms,
        client_cpu_ratio=cpu_ratio,
        client_warning=measures.client_warning(send_delay_ms.p90, latency_ms.p50, cpu_ratio),
        histogram=measures.histogram(measured.latency_ns),
        send_delay_histogram=measures.histogram(measured.send_delay_ns),
        parts=measure_parts(records, *span_ns) if spec.is_streamed else None,
        timeline=timeline(records, *span_ns),
        machine=machine(),
        versions=versions(),
        commit=commit(),
    )
