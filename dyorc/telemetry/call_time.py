"""What the time of one call went into."""

from collections.abc import Iterable, Sequence

from dyorc.engine.request_trace import BatchTrace, CallTrace
from dyorc.telemetry.stages import RequestStage, StageInterval
from dyorc.telemetry.wrong_guesses import WrongGuesses


def pieces_of(call: CallTrace, start_ns: int, end_ns: int, wrong_guesses: WrongGuesses) -> list[StageInterval]:
    """Returns the pieces of a call's time between two times, in order and without gaps.

    Args:
        start_ns: When it could have run.
        end_ns: When its result was there, or its request ended.
    """
    if call.is_repeat:
        return [StageInterval(RequestStage.LOST, start_ns, end_ns, call)]
    pieces: list[StageInterval] = []
    at_ns = start_ns
    for number, batch in enumerate(call.batches):
        sent_ns = min(max(batch.sent_ns, at_ns), end_ns)
        done_ns = min(max(batch.ended_ns, sent_ns), end_ns) if batch.ended_ns else end_ns
        if call.was_cold and number == 0:
            pieces.append(StageInterval(RequestStage.COLD, at_ns, sent_ns, call, batch))
        else:
            pieces += _waiting(call, batch, at_ns, sent_ns, wrong_guesses)
        if number < len(call.batches) - 1:
            pieces.append(StageInterval(RequestStage.LOST, sent_ns, done_ns, call, batch))
        else:
            pieces += _running(call, batch, sent_ns, done_ns, wrong_guesses)
        at_ns = done_ns
    if not call.batches:
        pieces.append(StageInterval(RequestStage.COLD if call.was_cold else RequestStage.QUEUE, at_ns, end_ns, call))
    else:
        pieces.append(StageInterval(RequestStage.ENGINE, at_ns, end_ns, call))
    return pieces


def _running(call: CallTrace, batch: BatchTrace, sent_ns: int, done_ns: int, wrong_guesses: WrongGuesses) -> list[StageInterval]:
    """Returns the pieces from when a batch was sent. What is neither moving nor computing is the way there and back."""
    started_ns = min(max(batch.started_ns, sent_ns), done_ns) if batch.started_ns else done_ns
    pieces = _waiting(call, batch, sent_ns, started_ns, wrong_guesses)
    if not batch.infer_s:  # its replica has not said how long it took for what
        return [*pieces, StageInterval(RequestStage.COMPUTE, started_ns, done_ns, call, batch)]
    # Inputs may have been fetched while another batch ran; that took no time of this one.
    left_ns = done_ns - started_ns
    infer_ns = min(round(batch.infer_s * 1e9), left_ns)
    publish_ns = min(round(batch.publish_s * 1e9), left_ns - infer_ns)
    gather_ns = min(round(batch.gather_s * 1e9), left_ns - infer_ns - publish_ns)
    stages = (RequestStage.MOVING, gather_ns), (RequestStage.COMPUTE, infer_ns), (RequestStage.MOVING, publish_ns)
    at_ns = started_ns
    for stage, duration_ns in stages:
        pieces.append(StageInterval(stage, at_ns, at_ns + duration_ns, call, batch))
        at_ns += duration_ns
    return [*pieces, StageInterval(RequestStage.ENGINE, at_ns, done_ns, call, batch)]


def _waiting(call: CallTrace, batch: BatchTrace, start_ns: int, end_ns: int, wrong_guesses: WrongGuesses) -> list[StageInterval]:
    """Returns the pieces of a wait for a replica: what it ran in vain meanwhile, and the rest."""
    if end_ns <= start_ns:
        return []
    vain = [
        (max(other.started_ns or other.sent_ns, start_ns), min(other.ended_ns or end_ns, end_ns))
        for other in wrong_guesses.batches_on(batch.program, batch.replica_id)
        if other is not batch
    ]
    return cut(StageInterval(RequestStage.QUEUE, start_ns, end_ns, call, batch), RequestStage.WRONG_GUESS, vain)


def cut(piece: StageInterval, stage: RequestStage, spans: Iterable[tuple[int, int]]) -> list[StageInterval]:
    """Returns a piece in which some spans are of another stage. Spans may overlap each other, and go beyond the piece."""
    pieces: list[StageInterval] = []
    at_ns = piece.start_ns
    for start_ns, end_ns in sorted(spans):
        start_ns, end_ns = max(start_ns, at_ns), min(end_ns, piece.end_ns)
        if end_ns > start_ns:
            pieces += [
                piece._replace(start_ns=at_ns, end_ns=start_ns),
                piece._replace(stage=stage, start_ns=start_ns, end_ns=end_ns),
            ]
            at_ns = end_ns
    return [*pieces, piece._replace(start_ns=at_ns)]


def ready_ns(call: CallTrace) -> int:
    """Returns when a call's result could be used: once it was there, and no longer a guess."""
    return max(call.ended_ns, call.committed_ns)


def able_ns(call: CallTrace) -> int:
    """Returns when a call could run: once its inputs were there. A guess that was not run ahead had to be committed first."""
    queued_ns = call.queued_ns or call.asked_ns
    if has_waited_for_its_decision(call):
        return max(queued_ns, call.committed_ns)
    return queued_ns


def has_waited_for_its_decision(call: CallTrace) -> bool:
    """Returns whether a call was a guess that was not run before it was known to be right."""
    return bool(call.committed_ns) and (not call.batches or call.batches[0].sent_ns >= call.committed_ns)


def is_needed(call: CallTrace) -> bool:
    """Returns whether the workflow used a call, or would have if it had not ended before."""
    if call.outcome == "squashed":
        return False
    return call.outcome in ("done", "failed") or not call.is_guess or call.committed_ns > 0


def last(calls: Sequence[CallTrace]) -> CallTrace | None:
    """Returns the call that was ready last."""
    return max(calls, key=ready_ns, default=None)
