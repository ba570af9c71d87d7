"""The course of a measurement: turns the records of all workers into figures for each step of time."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from loadgen.recording import CORRECT, Records
from loadgen.results import Timeline

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

MAX_STEPS = 60
"""More steps could not be told apart in a picture, and each would have few requests."""
_STEPS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_NS_PER_S = 1e9
_NS_PER_MS = 1e6


def timeline(workers: Sequence[Records], warm_up_ns: int, end_ns: int) -> Timeline:
    """Returns the measured time in steps; times count from the start. What is due or answered at a step's end belongs to the next
    step."""
    planned_ns = np.concatenate([worker.planned_ns - worker.start_ns - warm_up_ns for worker in workers])
    done_ns = [np.where(worker.done_ns > 0, worker.done_ns, worker.ended_ns) - worker.start_ns - warm_up_ns for worker in workers]
    ended_ns = np.concatenate(done_ns)
    is_answered = np.concatenate([worker.done_ns > 0 for worker in workers])
    is_bad = np.concatenate([worker.outcome != CORRECT for worker in workers])
    edges = _edges_ns(end_ns - warm_up_ns)
    due = np.searchsorted(edges, planned_ns, side="right") - 1
    steps = range(len(edges) - 1)
    p50_ms, p99_ms = zip(*(_quantiles_ms((ended_ns - planned_ns)[due == step]) for step in steps), strict=True)
    return Timeline(
        edges_s=[round(edge / _NS_PER_S, 6) for edge in edges.tolist()],
        num_due=[int((due == step).sum()) for step in steps],
        num_answered=np.histogram(ended_ns[is_answered & (ended_ns < edges[-1])], edges)[0].tolist(),
        num_bad=[int((is_bad & (due == step)).sum()) for step in steps],
        p50_ms=list(p50_ms),
        p99_ms=list(p99_ms),
        max_waiting=_most_waiting(planned_ns, ended_ns, edges),
    )


def _edges_ns(duration_ns: int) -> Numbers:
    fitting = (round(step_s * _NS_PER_S) for step_s in _STEPS_S if duration_ns <= MAX_STEPS * step_s * _NS_PER_S)
    step_ns = next(fitting, math.ceil(duration_ns / MAX_STEPS))
    return np.append(np.arange(0, duration_ns, step_ns, dtype=np.int64), duration_ns)


def _quantiles_ms(latency_ns: Numbers) -> tuple[float | None, float | None]:
    if not len(latency_ns):
        return None, None
    p50, p99 = (np.quantile(latency_ns, [0.5, 0.99], method="inverted_cdf") / _NS_PER_MS).tolist()
    return round(p50, 3), round(p99, 3)


def _most_waiting(planned_ns: Numbers, ended_ns: Numbers, edges: Numbers) -> list[int]:
    """Returns for each step the most requests that were due and not answered at any one time, including those of the warm-up."""
    times = np.concatenate([planned_ns, ended_ns])
    changes = np.concatenate([np.ones(len(planned_ns), np.int64), -np.ones(len(ended_ns), np.int64)])
    order = np.lexsort(
        (changes, times)
    )  # at equal times answers come first: a client sends its next request when it has its answer
    level = np.append(0, np.cumsum(changes[order]))
    at = np.searchsorted(times[order], edges, side="left")
    return [int(level[begin : end + 1].max()) for begin, end in zip(at[:-1].tolist(), at[1:].tolist(), strict=True)]
