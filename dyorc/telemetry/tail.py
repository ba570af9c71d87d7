"""The slowest requests beside typical ones: which stages of their critical paths make the difference.

Each process picks from what it remembers, and one merges that: only the picked requests are diagnosed, so asking costs some ten
milliseconds of each process, however many it remembers.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dyorc.telemetry.critical_path import RequestStage, StageInterval, WrongGuesses, critical_path, stage_times
from dyorc.telemetry.record import RequestRecord

MAX_SLOWEST = 100
_NUM_TYPICAL = 50
_NUM_NAMED = 5


class TimedRequest(msgspec.Struct, frozen=True):
    """A request and where its time went, in nanoseconds.

    Attributes:
        programs_ns: Of each stage that belongs to calls, the time by their programs.
    """

    request_id: str
    duration_ns: int
    stages_ns: dict[RequestStage, int]
    programs_ns: dict[RequestStage, dict[str, int]] = {}


class ProcessTail(msgspec.Struct, frozen=True):
    """What one process knows of the requests in question.

    Attributes:
        num_requests: How many there were.
        slowest: At most `MAX_SLOWEST` of them.
        typical: Some of the middle half, evenly spread.
    """

    num_requests: int
    slowest: list[TimedRequest]
    typical: list[TimedRequest]


def pick(records: Iterable[RequestRecord]) -> tuple[list[RequestRecord], list[RequestRecord]]:
    """Returns which of a process's requests are looked at: the slowest, and typical ones (`ProcessTail`)."""
    by_duration = sorted(records, key=lambda record: record.duration_ns)
    quarter = len(by_duration) // 4
    middle = by_duration[quarter : len(by_duration) - quarter]
    step = max(1, len(middle) // _NUM_TYPICAL)
    return by_duration[-MAX_SLOWEST:], middle[::step]


def timed(record: RequestRecord, wrong_guesses: WrongGuesses) -> TimedRequest:
    """Returns where the time of a request went. Cost: that of its critical path.

    Args:
        wrong_guesses: Batches of wrong guesses that delayed other calls.
    """
    path = critical_path(record, wrong_guesses)
    return TimedRequest(record.origin.request_id, record.duration_ns, stage_times(path), _by_program(path))


def merge_tails(tails: Sequence[ProcessTail], share: float) -> dict[str, Any]:
    """Returns a report for people and programs, as plain values.

    Args:
        tails: Of all processes.
        share: How many of the requests count as the slowest, as a fraction: at least one, at most `MAX_SLOWEST`.

    Returns:
        ``num_requests``; ``num_slowest``; ``from_ms``, the shortest duration among the slowest; ``median_ms`` of all; ``stages``,
        the largest excess of the slowest over the typical requests first: the mean ``slowest_ms`` and ``typical_ms`` of each,
        ``num_caused``, how many of the slowest exceed the typical in this stage most, and ``program``, whose calls the slowest
        had most of it for, empty if it belongs to none; ``slowest``, the first few.
    """
    num_requests = sum([tail.num_requests for tail in tails])
    known = [request for tail in tails for request in tail.slowest]
    num_slowest = min(math.ceil(share * num_requests), MAX_SLOWEST, len(known))
    slowest = heapq.nlargest(num_slowest, known, key=lambda request: request.duration_ns)
    weighted = [(request, tail.num_requests / len(tail.typical)) for tail in tails for request in tail.typical]
    typical_ns = {
        stage: sum([request.stages_ns.get(stage, 0) * weight for request, weight in weighted]) / num_requests
        for stage in RequestStage
        if weighted
    }
    caused = Counter(
        max(RequestStage, key=lambda stage: request.stages_ns.get(stage, 0) - typical_ns[stage]) for request in slowest
    )
    stages: list[dict[str, Any]] = [
        {
            "stage": str(stage),
            "slowest_ms": _ms(sum([request.stages_ns.get(stage, 0) for request in slowest]) / len(slowest)),
            "typical_ms": _ms(typical_ns[stage]),
            "num_caused": caused[stage],
            "program": _main_program(slowest, stage),
        }
        for stage in RequestStage
        if slowest
    ]
    return {
        "num_requests": num_requests,
        "num_slowest": len(slowest),
        "from_ms": _ms(slowest[-1].duration_ns) if slowest else None,
        "median_ms": _ms(_median(weighted)) if weighted else None,
        "stages": sorted([each for each in stages if each["slowest_ms"] or each["typical_ms"]], key=_excess_ms, reverse=True),
        "slowest": [{"request_id": each.request_id, "duration_ms": _ms(each.duration_ns)} for each in slowest[:_NUM_NAMED]],
    }


def _by_program(path: Sequence[StageInterval]) -> dict[RequestStage, dict[str, int]]:
    times: dict[RequestStage, dict[str, int]] = {}
    for piece in path:
        if piece.call is not None and piece.stage is not RequestStage.ENGINE:
            programs = times.setdefault(piece.stage, {})
            programs[piece.call.program] = programs.get(piece.call.program, 0) + piece.duration_ns
    return times


def _main_program(requests: Sequence[TimedRequest], stage: RequestStage) -> str:
    """Returns the program with most of a stage's time in these requests; empty if it belongs to none."""
    times = Counter[str]()
    for request in requests:
        times.update(request.programs_ns.get(stage, {}))
    return max(times, key=lambda program: times[program], default="")


def _median(weighted: Sequence[tuple[TimedRequest, float]]) -> float:
    """Returns the median duration; that of the middle half is that of all."""
    left = sum([weight for _, weight in weighted]) / 2
    for request, weight in sorted(weighted, key=lambda pair: pair[0].duration_ns):
        left -= weight
        if left <= 0:
            return request.duration_ns
    return weighted[-1][0].duration_ns


def _excess_ms(stage: dict[str, Any]) -> float:
    return stage["slowest_ms"] - stage["typical_ms"]


def _ms(duration_ns: float) -> float:
    return round(duration_ns / 1e6, 3)
