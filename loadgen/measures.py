"""Turns the records of all workers into figures."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from hdrh.histogram import HdrHistogram

from loadgen.recording import CORRECT, FIRST_ERROR, UNANSWERED, WRONG, Records
from loadgen.results import BranchResult, Counts, Quantiles

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_MAX_US = 3_600_000_000
_DIGITS = 3
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRequests:
    """The requests of all workers whose planned time lies in the measured time.

    Attributes:
        index: Each request's index in the pool.
        latency_ns: From the planned time to the answer or error; without either, to the end of the wait.
        send_delay_ns: From the planned time to when the generator got to it.
        errors: How many requests failed with each error text.
        wrong: The first wrong answer, in words.
    """

    index: Numbers
    latency_ns: Numbers
    send_delay_ns: Numbers
    outcome: Numbers
    errors: dict[str, int]
    wrong: str


def select_measured(workers: Sequence[Records], warm_up_ns: int, end_ns: int) -> MeasuredRequests:
    """Joins the workers' records; times count from the start.

    Raises:
        ValueError: If nothing was due in the measured time.
    """
    kept: list[tuple[Numbers, Numbers, Numbers, Numbers]] = []
    errors: Counter[str] = Counter()
    for records in workers:
        planned_ns = records.planned_ns - records.start_ns
        chosen = (planned_ns >= warm_up_ns) & (planned_ns < end_ns)
        # The time is 0 if a request was not sent or not answered. A request without an answer waited at least until the end.
        done_ns = np.where(records.done_ns > 0, records.done_ns, records.ended_ns)
        sent_ns = np.where(records.sent_ns > 0, records.sent_ns, records.ended_ns)
        arrays = (records.index, done_ns - records.planned_ns, sent_ns - records.planned_ns, records.outcome)
        kept.append((arrays[0][chosen], arrays[1][chosen], arrays[2][chosen], arrays[3][chosen]))
        numbers, counts = np.unique(records.outcome[chosen], return_counts=True)
        errors.update(
            {
                records.errors[n - FIRST_ERROR]: c
                for n, c in zip(numbers.tolist(), counts.tolist(), strict=True)
                if n >= FIRST_ERROR
            }
        )
    index, latency_ns, send_delay_ns, outcome = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
    if not len(index):
        raise ValueError("no request was due in the measured time; expected a higher rate, or a longer duration")
    return MeasuredRequests(
        index=index,
        latency_ns=latency_ns,
        send_delay_ns=send_delay_ns,
        outcome=outcome,
        errors=dict(errors),
        wrong=next((records.wrong for records in workers if records.wrong), ""),
    )


def counts(measured_requests: MeasuredRequests, slo_s: float | None) -> Counts:
    """Counts how requests ended."""
    is_correct = measured_requests.outcome == CORRECT
    in_time = is_correct if slo_s is None else is_correct & (measured_requests.latency_ns <= slo_s * 1e9)
    return Counts(
        planned=len(measured_requests.index),
        correct=int(is_correct.sum()),
        wrong=int((measured_requests.outcome == WRONG).sum()),
        failed=int((measured_requests.outcome >= FIRST_ERROR).sum()),
        unanswered=int((measured_requests.outcome == UNANSWERED).sum()),
        within_slo=int(in_time.sum()),
    )


def quantiles(times_ns: Numbers) -> Quantiles:
    """Returns quantiles of durations; each is one of the durations."""
    p50, p90, p99, p999 = (np.quantile(times_ns, [0.5, 0.9, 0.99, 0.999], method="inverted_cdf") / _NS_PER_MS).tolist()
    mean, most = float(times_ns.mean()) / _NS_PER_MS, float(times_ns.max()) / _NS_PER_MS
    return Quantiles(p50=p50, p90=p90, p99=p99, p999=p999, mean=mean, max=most)


def histogram(times_ns: Numbers) -> str:
    """Returns an HDR histogram in its compressed text form: microseconds from 1 to an hour, with three digits."""
    times = HdrHistogram(1, _MAX_US, _DIGITS)
    values, numbers = np.unique(np.clip(np.rint(times_ns / 1e3).astype(np.int64), 1, _MAX_US), return_counts=True)
    for value, number in zip(values.tolist(), numbers.tolist(), strict=True):
        times.record_value(value, number)
    return times.encode().decode()


def by_branch(measured_requests: MeasuredRequests, branches: Sequence[str]) -> dict[str, BranchResult]:
    """Returns the latencies of each way through the workflow, by its name."""
    if not branches:
        return {}
    names, numbers = np.unique(np.array(branches, dtype=object).astype(str), return_inverse=True)
    of_request = numbers[measured_requests.index]
    results: dict[str, BranchResult] = {}
    for number, name in enumerate(names.tolist()):
        latency_ns = measured_requests.latency_ns[of_request == number]
        if len(latency_ns):
            results[name] = BranchResult(
                num_requests=len(latency_ns), latency_ms=quantiles(latency_ns), histogram=histogram(latency_ns)
            )
    return results


_MAX_SEND_DELAY_MS = 1.0
_MAX_DELAY_RATIO = 0.1
_MAX_CPU_RATIO = 0.85


def client_warning(send_delay_p90_ms: float, latency_p50_ms: float, cpu_ratio: float) -> str:
    """Returns why the figures may reflect the generator rather than the server, and what to do; empty if nothing suggests it.

    What counts is the send delay of the slowest tenth: on a shared machine, one request in a hundred is always held up, while a
        generator that cannot keep up delays nearly all.
    """
    limit_ms = max(_MAX_SEND_DELAY_MS, _MAX_DELAY_RATIO * latency_p50_ms)
    seen: list[str] = []
    if send_delay_p90_ms > limit_ms:
        seen.append(f"10 % of the requests were sent more than {send_delay_p90_ms:.2g} ms late (up to {limit_ms:.2g} ms is fine)")
    if cpu_ratio > _MAX_CPU_RATIO:
        seen.append(f"a worker used {cpu_ratio:.0%} of a core (up to {_MAX_CPU_RATIO:.0%} is fine)")
    if not seen:
        return ""
    return f"The generator may have been the limit: {'; '.join(seen)}. Use more --workers, more cores or a lower rate."
