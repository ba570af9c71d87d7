"""How much memory a record takes.

Measured with tracemalloc on CPython 3.11, 64 bit: a struct takes 32 bytes and 8 for each field, a time in nanoseconds 32, a list
64 and 8 for each entry. A request with two calls takes 3.5 KB if they ran alone, 2.0 KB if 32 calls shared each batch; a decision
adds 0.7 KB. What records share with everything else (names of programs, tiers, small numbers) is not counted.
"""

from dyorc.engine.request_trace import BatchTrace, CallTrace, RequestTrace
from dyorc.telemetry.record import RequestRecord

_RECORD = 1100
"""A record without a story, its origin, three places in tables, and the lists of the story."""
_CALL = 420
_BATCH = 560
_BATCH_ENTRY = 8
_MOVE = 120
_DECISION = 520
_PART = 130
_NOTE = 250


def num_bytes_of(record: RequestRecord, ratio: float) -> int:
    """Estimates how much memory is held for a record alone.

    Args:
        ratio: The fraction of requests that are recorded: so many of a batch's calls share what is known of it.
    """
    num_bytes = _RECORD + len(record.error) + len(record.origin.request_id)
    if record.story is not None:
        num_bytes += _of_story(record.story, ratio)
    return num_bytes


def _of_story(story: RequestTrace, ratio: float) -> int:
    num_bytes = sum([_of_call(call, ratio) for call in story.calls])
    return num_bytes + _DECISION * len(story.decisions) + _PART * len(story.parts) + _NOTE * len(story.notes)


def _of_call(call: CallTrace, ratio: float) -> int:
    num_bytes = _CALL + len(call.error)
    for batch in call.batches:
        num_bytes += int(_of_batch(batch) / max(1.0, batch.size * ratio))
    return num_bytes


def _of_batch(batch: BatchTrace) -> int:
    return _BATCH + _BATCH_ENTRY * len(batch.requests) + _MOVE * len(batch.moves)
