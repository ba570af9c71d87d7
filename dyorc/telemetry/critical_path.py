"""The critical path of a request that has ended: what its time went into, from its first byte to its last, without gaps.

It is followed backwards. Of the calls that were needed, the one that was ready last held up the answer; before that, it is the
call whose result that one waited for, or that had to be ready before the workflow could ask; and so on to the first. What no call
explains is DyOrc's own time, unless the client had parts of the answer to take just then. A call that reads streams runs while
they are made: its own work counts as the last of that time, and before, the path follows what ran or was ready then.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from dyorc.engine.request_trace import BatchTrace, CallTrace, RequestTrace
from dyorc.telemetry.record import RequestRecord


class RequestStage(StrEnum):
    """The kinds of time in a request, in their usual order."""

    READING = "reading"
    """It came from the client, first byte to last."""
    ADMISSION = "admission"
    """It was all there, and was read, decoded, checked and handed over. Long if the event loop is behind."""
    COLD = "cold"
    """A call waited, and when it began to wait no replica of its program took batches."""
    QUEUE = "queue"
    """A call waited for a replica."""
    WRONG_GUESS = "wrong_guess"
    """A call waited for a replica that ran nothing but guesses which turned out wrong."""
    MOVING = "moving"
    """A batch's inputs were brought in, or its outputs stored."""
    COMPUTE = "compute"
    """A program's code ran."""
    RETRIED = "retried"
    """A batch ran that failed, and its calls run again in smaller ones: the input of another call may have been the reason."""
    LOST = "lost"
    """Something ran that was lost with its replica, or runs again because of that."""
    ENGINE = "engine"
    """DyOrc's own time: scheduling, links, and the workflow's own code."""
    TAKING = "taking"
    """The client had parts of the answer to take."""
    WRITING = "writing"
    """The answer was on its way to the client."""


class StageInterval(NamedTuple):
    """A piece of a request's time, in nanoseconds, and the call and batch that it belongs to."""

    stage: RequestStage
    start_ns: int
    end_ns: int
    call: CallTrace | None = None
    batch: BatchTrace | None = None

    @property
    def duration_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns


_MAX_BATCHES = 256
"""Of one program."""
_MAX_PROGRAMS = 256
"""Versions of workflows bring programs with names of their own."""


class WrongGuesses:
    """The last batches in which replicas ran only wrong guesses, by program; calls queued behind them were delayed for nothing.

    For the event loop's thread.
    """

    def __init__(self) -> None:
        self._batches: dict[str, deque[BatchTrace]] = {}

    def add(self, record: RequestRecord) -> None:
        """Adds the batches of a request that has ended. They may still be running: their traces are filled in later."""
        if record.story is None:
            return
        for call in record.story.calls:
            if call.outcome == "squashed":
                for batch in call.batches:
                    if batch.num_guesses == batch.size:
                        self._of(call.program).append(batch)

    def _of(self, program: str) -> deque[BatchTrace]:
        batches = self._batches.get(program)
        if batches is None:
            if len(self._batches) >= _MAX_PROGRAMS:
                del self._batches[next(iter(self._batches))]
            batches = self._batches[program] = deque(maxlen=_MAX_BATCHES)
        return batches

    def batches_on(self, program: str, replica_id: str) -> Iterable[BatchTrace]:
        """Returns the batches that a replica of a program ran. A batch of several requests may come several times."""
        return [batch for batch in self._batches.get(program, ()) if batch.replica_id == replica_id]


def critical_path(record: RequestRecord, wrong_guesses: WrongGuesses) -> list[StageInterval]:
    """Returns the pieces of a request's time in order. Each begins where the one before it ends.

    Args:
        wrong_guesses: Batches of wrong guesses that delayed other calls.
    """
    arrived_ns, started_ns = record.arrived_ns, max(record.started_ns, record.arrived_ns)
    read_ns = min(max(record.origin.read_ns, arrived_ns), started_ns)
    pieces = [
        StageInterval(RequestStage.READING, arrived_ns, read_ns),
        StageInterval(RequestStage.ADMISSION, read_ns, started_ns),
    ]
    if record.story is None:
        pieces.append(StageInterval(RequestStage.ENGINE, started_ns, record.ended_ns))
    else:
        pieces += _Walk(record, record.story, wrong_guesses).pieces(started_ns)
    pieces.append(StageInterval(RequestStage.WRITING, record.ended_ns, record.done_ns))
    return [piece for piece in pieces if piece.end_ns > piece.start_ns]


def stage_times(path: Sequence[StageInterval]) -> dict[RequestStage, int]:
    """Returns how much of each stage a path has, in nanoseconds and in their usual order, without stages that it lacks."""
    times = {stage: sum([piece.duration_ns for piece in path if piece.stage is stage]) for stage in RequestStage}
    return {stage: duration_ns for stage, duration_ns in times.items() if duration_ns}


class _Walk:
    """Follows the path of one request."""

    def __init__(self, record: RequestRecord, story: RequestTrace, wrong_guesses: WrongGuesses) -> None:
        self._record = record
        self._story = story
        self._wrong_guesses = wrong_guesses
        self._left = {call.call_id: call for call in story.calls if is_needed(call)}
        self._taking = [(part.sent_ns, part.taken_ns or record.ended_ns) for part in story.parts]

    def pieces(self, start_ns: int) -> list[StageInterval]:
        """Returns the pieces between a time and the end of the request."""
        end_ns = self._record.ended_ns
        return self._follow(self._unfinished() or self._last_before(end_ns), start_ns, end_ns)

    def _follow(self, call: CallTrace | None, start_ns: int, at_ns: int) -> list[StageInterval]:
        """Returns the pieces between two times, of which a call explains the last."""
        backwards: list[list[StageInterval]] = []
        while call is not None and at_ns > start_ns:
            del self._left[call.call_id]
            done_ns = min(ready_ns(call), at_ns) if call.outcome in ("done", "failed") else at_ns
            backwards.append(self._between(done_ns, at_ns))
            if call.ended_ns and call.committed_ns > call.ended_ns:  # it was only waiting to be known as right
                at_ns, call = done_ns, self._decider(call, done_ns)
                continue
            able = max(min(able_ns(call), done_ns), start_ns)
            fed_ns, working_ns = _reading_ns(call, able, done_ns)
            if fed_ns < working_ns and (source := self._running_before(call, fed_ns, working_ns)) is not None:
                backwards.append(pieces_of(call, working_ns, done_ns, self._wrong_guesses))
                backwards.append(self._follow(source, fed_ns, working_ns))
                done_ns = fed_ns
            backwards.append(pieces_of(call, able, done_ns, self._wrong_guesses))
            at_ns, call = able, self._before(call, able)
        backwards.append(self._between(start_ns, at_ns))
        return [piece for pieces in reversed(backwards) for piece in pieces]

    def _between(self, start_ns: int, end_ns: int) -> list[StageInterval]:
        """Returns the pieces of a time that no call explains."""
        return cut(StageInterval(RequestStage.ENGINE, start_ns, end_ns), RequestStage.TAKING, self._taking)

    def _unfinished(self) -> CallTrace | None:
        """Returns the call that a failed request was waiting for: of the calls that could run, the one that waited longest."""
        if not self._record.has_failed:
            return None
        waiting = [call for call in self._left.values() if call.outcome in ("waiting", "withdrawn") and call.queued_ns]
        has_failed = any(call.outcome == "failed" for call in self._left.values())
        return None if has_failed else min(waiting, key=able_ns, default=None)

    def _before(self, call: CallTrace, at_ns: int) -> CallTrace | None:
        """Returns the call that had to be ready before another could run."""
        if has_waited_for_its_decision(call) and at_ns == call.committed_ns:
            return self._decider(call, at_ns)
        if call.asked_ns < call.queued_ns and (last_source := self._last_before(at_ns, call.sources)) is not None:
            return last_source
        return self._last_before(min(at_ns, call.asked_ns))

    def _running_before(self, reader: CallTrace, since_ns: int, at_ns: int) -> CallTrace | None:
        """Returns the call that a reader of streams waited for: of those that ran while it did, the one that ran or was ready
        last before a time."""
        calls = [
            call
            for call in self._left.values()
            if call.outcome in ("done", "failed")
            and able_ns(call) < at_ns
            and ready_ns(call) > since_ns
            and reader.call_id not in call.sources
        ]
        return max(calls, key=lambda call: (min(ready_ns(call), at_ns), call.call_id in reader.sources), default=None)

    def _decider(self, call: CallTrace, at_ns: int) -> CallTrace | None:
        """Returns the call that a guess waited for: the last one that its decision reads."""
        sources = self._story.decisions[call.decision].sources if call.decision >= 0 else ()
        return self._last_before(at_ns, sources) or self._last_before(at_ns)

    def _last_before(self, at_ns: int, among: Sequence[int] | None = None) -> CallTrace | None:
        """Returns the call that was ready last before a time: among some, by their numbers, or of all that are left."""
        numbers = self._left if among is None else [number for number in among if number in self._left]
        calls = [self._left[number] for number in numbers]
        return last([call for call in calls if call.outcome in ("done", "failed") and ready_ns(call) <= at_ns])


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
            stage = RequestStage.RETRIED if batch.outcome == "failed" else RequestStage.LOST
            pieces.append(StageInterval(stage, sent_ns, done_ns, call, batch))
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


def _reading_ns(call: CallTrace, able: int, done_ns: int) -> tuple[int, int]:
    """Returns the time that a call spent waiting for parts if it did all its work after that: none if it reads no streams."""
    if not (call.reads_streams and call.batches and call.batches[-1].infer_s):
        return able, able
    batch = call.batches[-1]
    worked_ns = round((batch.gather_s + batch.infer_s + batch.publish_s) * 1e9)
    return max(batch.started_ns, able), done_ns - worked_ns


def _waiting(call: CallTrace, batch: BatchTrace, start_ns: int, end_ns: int, wrong_guesses: WrongGuesses) -> list[StageInterval]:
    """Returns the pieces of a wait for a replica: its wrong guesses meanwhile, the time in which it was free and the engine did
    not know, and the rest."""
    if end_ns <= start_ns:
        return []
    wasted = [
        (max(other.started_ns or other.sent_ns, start_ns), min(other.ended_ns or end_ns, end_ns))
        for other in wrong_guesses.batches_on(batch.program, batch.replica_id)
        if other is not batch
    ]
    known_ns = batch.started_ns or end_ns
    overdue = [(known_ns - batch.overdue_ns, known_ns)]
    pieces = cut(StageInterval(RequestStage.QUEUE, start_ns, end_ns, call, batch), RequestStage.ENGINE, overdue)
    return [
        part
        for piece in pieces
        for part in (cut(piece, RequestStage.WRONG_GUESS, wasted) if piece.stage is RequestStage.QUEUE else [piece])
    ]


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
