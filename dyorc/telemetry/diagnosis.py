"""Says in plain sentences why a request took as long as it did."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from dyorc.engine.actions import FormReason
from dyorc.engine.request_trace import NEXT_LEADER, BatchTrace
from dyorc.telemetry.critical_path import RequestStage, StageInterval, WrongGuesses, critical_path, stage_times
from dyorc.telemetry.record import RequestRecord

_MIN_SHARE = 0.05
"""Sentences are about at least this much of the time."""
_MAX_SENTENCES = 6


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Where the time of a request went.

    Attributes:
        path: The pieces of its critical path, in order.
        stages_ns: How much of each stage; together all of its time. Stages without time are left out.
        cause: The largest of them.
        sentences: What took longest, the worst first; before it, why the request was refused.
    """

    path: Sequence[StageInterval]
    stages_ns: dict[RequestStage, int]
    cause: RequestStage
    sentences: list[str]


def diagnose(record: RequestRecord, wrong_guesses: WrongGuesses) -> Diagnosis:
    """Explains the time of a request that has ended.

    Args:
        wrong_guesses: Batches of wrong guesses that delayed other calls.
    """
    path = critical_path(record, wrong_guesses)
    stages_ns = stage_times(path)
    cause = max(stages_ns, key=lambda stage: stages_ns[stage], default=RequestStage.ENGINE)
    return Diagnosis(path, stages_ns, cause, _sentences(record, path))


def _sentences(record: RequestRecord, path: Sequence[StageInterval]) -> list[str]:
    groups: defaultdict[tuple[RequestStage, str], list[StageInterval]] = defaultdict(list)
    for piece in path:
        groups[piece.stage, "" if piece.call is None or piece.stage is RequestStage.ENGINE else piece.call.program].append(piece)
    durations = {key: sum([piece.duration_ns for piece in pieces]) for key, pieces in groups.items()}
    worst = sorted(durations, key=lambda key: -durations[key])[:_MAX_SENTENCES]
    whole_ns = record.duration_ns
    shown = [key for number, key in enumerate(worst) if number == 0 or durations[key] >= _MIN_SHARE * whole_ns]
    sentences = [f"{as_ms(durations[key])} of {as_ms(whole_ns)}: {_describe(record, *key, groups[key])}" for key in shown]
    return [f"refused before it ran: {record.error}", *sentences] if record.was_refused else sentences


def _describe(record: RequestRecord, stage: RequestStage, program: str, pieces: Sequence[StageInterval]) -> str:
    match stage:
        case RequestStage.READING:
            return f"the client was sending the request{_size(record.origin.num_bytes)}"
        case RequestStage.ADMISSION:
            return "the server read the request, decoded it and checked it, or its event loop was busy with other work"
        case RequestStage.COLD:
            return f"{_calls(program, pieces)} waited because the program was cold: no replica took batches"
        case RequestStage.QUEUE:
            return f"{_calls(program, pieces)} waited in the queue{_describe_queue(pieces)}{_describe_wait_end(pieces)}"
        case RequestStage.WRONG_GUESS:
            return f"{_calls(program, pieces)} waited for a replica that was running wrong guesses"
        case RequestStage.MOVING:
            return f"inputs and outputs of {program!r} were moved{_describe_moves(pieces)}"
        case RequestStage.COMPUTE:
            return f"{program!r} computed{_describe_sharing(pieces)}"
        case RequestStage.RETRIED:
            return (
                f"{program!r} failed in a batch, and its calls ran again in smaller ones: another call may have been the reason"
            )
        case RequestStage.LOST:
            return f"{program!r} ran for nothing, or again, because something was lost"
        case RequestStage.ENGINE:
            return f"DyOrc itself: scheduling, links, and the workflow's own code{_describe_moves_to_leaders(record)}"
        case RequestStage.TAKING:
            return "the client was slow in taking parts of the answer"
        case RequestStage.WRITING:
            return "the client was slow in reading the answer"


def _describe_moves_to_leaders(record: RequestRecord) -> str:
    """Says when the request was sent to the next leader of its group, if it was."""
    notes = () if record.story is None else record.story.notes
    times = [note.at_ns - record.started_ns for note in notes if note.event == NEXT_LEADER]
    return f", and {as_ms(times[-1])} until it was sent to the next leader of its group" if times else ""


def _calls(program: str, pieces: Sequence[StageInterval]) -> str:
    num = len({piece.call.call_id for piece in pieces if piece.call is not None})
    return f"the call of {program!r}" if num == 1 else f"{num} calls of {program!r}, one after the other,"


def _batches(pieces: Sequence[StageInterval]) -> list[BatchTrace]:
    return list({piece.batch.batch_id: piece.batch for piece in pieces if piece.batch is not None}.values())


def _describe_queue(pieces: Sequence[StageInterval]) -> str:
    num = max([piece.call.num_waiting for piece in pieces if piece.call is not None], default=0)
    return f", {num} {'call' if num == 1 else 'calls'} before it" if num else ""


def _describe_wait_end(pieces: Sequence[StageInterval]) -> str:
    """Says when the wait of a single batch ended."""
    batches = _batches(pieces)
    if len(batches) != 1:
        return "" if batches else ", and was never run"
    if batches[0].reason == FormReason.SIDE_BY_SIDE.value:
        return f", until one of the places of {batches[0].replica_id} was free (`max_ongoing`)"
    return f", until a batch of {batches[0].size} was sent to {batches[0].replica_id}: {batches[0].reason}"


def _describe_sharing(pieces: Sequence[StageInterval]) -> str:
    batches = _batches(pieces)
    if not batches:
        return ""
    sizes = [batch.size for batch in batches]
    num = "" if len(batches) == 1 else f" {len(batches)} times"
    if max(sizes) == 1:
        return f"{num}, alone in its batch"
    return f"{num}, in a batch of {sizes[0]} calls" if len(batches) == 1 else f"{num}, in batches of {min(sizes)} to {max(sizes)}"


def _describe_moves(pieces: Sequence[StageInterval]) -> str:
    """Says what came which way, the slowest first."""
    ways: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for batch in _batches(pieces):
        for move in batch.moves:
            ways[move.tier][0] += move.num_bytes
            ways[move.tier][1] += move.took_s
    slowest = sorted(ways.items(), key=lambda way: -way[1][1])
    texts = [
        f"{as_size(num_bytes)} {_WAYS.get(tier, f'by {tier}')} in {as_ms(took_s * 1e9)}" for tier, (num_bytes, took_s) in slowest
    ]
    return f": {', '.join(texts)}" if texts else ""


_WAYS = {
    "message": "in its message",
    "shm": "through shared memory",
    "zmq": "over the network (zmq)",
    "grpc": "over the network (grpc)",
    "device": "on its device",
    "process": "that were there already",
}


def _size(num_bytes: int) -> str:
    return f", {as_size(num_bytes)}" if num_bytes else ""


def as_size(num_bytes: float) -> str:
    """Returns a number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.4g} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.4g} GiB"


def as_ms(duration_ns: float) -> str:
    """Returns a duration for people."""
    duration_ms = duration_ns / 1e6
    return f"{duration_ms:,.0f} ms" if duration_ms >= 100 else f"{duration_ms:.3g} ms"
