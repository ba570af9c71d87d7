"""The progress of a running measurement."""

from collections.abc import Sequence

import msgspec

from loadgen.recording import Recorder

_NS_PER_MS = 1e6
_MAX_RECENT = 200


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start, and quantiles of recently ended requests in milliseconds."""

    num_sent: int = 0
    num_done: int = 0
    num_failed: int = 0
    in_flight: int = 0
    num_recent: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    send_delay_ms: float = 0.0


def progress_of(recorder: Recorder, in_flight: int) -> Progress:
    """Returns the progress of one worker. Requests wait meanwhile, so it looks only at recent ones, which takes about ten
    microseconds."""
    recent, recorder.recent = recorder.recent, []
    last = recent[-_MAX_RECENT:]
    latencies_ns = sorted([recorder.done_ns[number] - recorder.planned_ns[number] for number in last])
    delays_ns = sorted([recorder.sent_ns[number] - recorder.planned_ns[number] for number in last])
    return Progress(
        num_sent=recorder.num_sent,
        num_done=recorder.num_done,
        num_failed=recorder.num_failed,
        in_flight=in_flight,
        num_recent=len(recent),
        p50_ms=_quantile(latencies_ns, 0.5),
        p99_ms=_quantile(latencies_ns, 0.99),
        send_delay_ms=_quantile(delays_ns, 0.99),
    )


def _quantile(ascending_ns: Sequence[int], ratio: float) -> float:
    return ascending_ns[int(ratio * (len(ascending_ns) - 1))] / _NS_PER_MS if ascending_ns else 0.0


def combine_progress(parts: Sequence[Progress]) -> Progress:
    """Returns the progress of all workers. Quantiles cannot be added up: the median is the workers' mean, the others are those of
    the worst."""
    num_recent = sum(part.num_recent for part in parts)
    return Progress(
        num_sent=sum(part.num_sent for part in parts),
        num_done=sum(part.num_done for part in parts),
        num_failed=sum(part.num_failed for part in parts),
        in_flight=sum(part.in_flight for part in parts),
        num_recent=num_recent,
        p50_ms=sum(part.p50_ms * part.num_recent for part in parts) / max(1, num_recent),
        p99_ms=max((part.p99_ms for part in parts), default=0.0),
        send_delay_ms=max((part.send_delay_ms for part in parts), default=0.0),
    )
