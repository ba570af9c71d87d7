"""The critical path of a request that has ended: what its time went into, from its first byte to its last, without gaps.

It is followed backwards. Of the calls that were needed, the one that was ready last held up the answer; before that, it is the
call whose result that one waited for, or that had to be ready before the workflow could ask; and so on to the first. What no call
explains is DyOrc's own time, unless the client had parts of the answer to take just then. A call that reads streams runs while
they are made: its own work counts as the last of that time, and before, the path follows what ran or was ready then.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import takewhile
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
    """Follows the path of one request, from its end to its start. Cost: n log n for n calls and parts."""

    def __init__(self, record: RequestRecord, story: RequestTrace, wrong_guesses: WrongGuesses) -> None:
        self._record = record
        self._story = story
        self._wrong_guesses = wrong_guesses
        self._left = {call.call_id: call for call in story.calls if is_needed(call)}
        self._ready = _ReadyCalls(self._left.values())
        self._taking = _apart((part.sent_ns, part.taken_ns or record.ended_ns) for part in story.parts)
        self._taking_starts = [start_ns for start_ns, _ in self._taking]
        self._taking_ends = [end_ns for _, end_ns in self._taking]

    def pieces(self, start_ns: int) -> list[StageInterval]:
        """Returns the pieces between a time and the end of the request."""
        end_ns = self._record.ended_ns
        return self._follow(self._unfinished() or self._ready.last_before(end_ns), start_ns, end_ns)

    def _follow(self, call: CallTrace | None, start_ns: int, at_ns: int) -> list[StageInterval]:
        """Returns the pieces between two times, of which a call explains the last."""
        backwards: list[list[StageInterval]] = []
        readers: list[tuple[CallTrace, int, int]] = []
        """Readers of streams whose sources are being followed, until they began to read; when each could run, and where the
        path goes on to from there."""
        while True:
            done_ns = min(ready_ns(call), at_ns) if call is not None and has_ended(call) else at_ns
            if call is None or done_ns <= start_ns:
                backwards.append(self._between(start_ns, at_ns))
                if not readers:
                    return [piece for pieces in reversed(backwards) for piece in pieces]
                reader, able, outer_ns = readers.pop()
                backwards.append(pieces_of(reader, able, start_ns, self._wrong_guesses))
                start_ns, at_ns, call = outer_ns, able, self._before(reader, able)
                continue
            self._remove(call)
            backwards.append(self._between(done_ns, at_ns))
            if call.ended_ns and call.committed_ns > call.ended_ns:  # it was only waiting to be known as right
                at_ns, call = done_ns, self._decider(call, done_ns)
                continue
            able = max(min(able_ns(call), done_ns), start_ns)
            fed_ns, working_ns = _reading_ns(call, able, done_ns)
            if fed_ns < working_ns and (source := self._running_before(call, fed_ns, working_ns)) is not None:
                backwards.append(pieces_of(call, working_ns, done_ns, self._wrong_guesses))
                readers.append((call, able, start_ns))
                start_ns, at_ns, call = fed_ns, working_ns, source
                continue
            backwards.append(pieces_of(call, able, done_ns, self._wrong_guesses))
            at_ns, call = able, self._before(call, able)

    def _remove(self, call: CallTrace) -> None:
        """Takes a call away that the path has reached."""
        del self._left[call.call_id]
        self._ready.remove(call)

    @cached_property
    def _running(self) -> "_RunningCalls":
        return _RunningCalls(self._left.values(), self._ready)

    def _between(self, start_ns: int, end_ns: int) -> list[StageInterval]:
        """Returns the pieces of a time that no call explains."""
        taking = self._taking[bisect_right(self._taking_ends, start_ns) : bisect_left(self._taking_starts, end_ns)]
        return cut(StageInterval(RequestStage.ENGINE, start_ns, end_ns), RequestStage.TAKING, taking)

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
        if call.asked_ns < call.queued_ns and (last_source := self._last_of(call.sources, at_ns)) is not None:
            return last_source
        return self._ready.last_before(min(at_ns, call.asked_ns))

    def _running_before(self, reader: CallTrace, since_ns: int, at_ns: int) -> CallTrace | None:
        """Returns the call that a reader of streams waited for: of those that ran while it did, the one that ran or was ready
        last before a time, and rather one that it reads."""
        sources = [self._left[number] for number in reader.sources if number in self._left]
        calls = self._running.in_story_order([call for call in sources if self._running.has_run(call, reader, since_ns, at_ns)])
        if (other := self._running.last_before(reader, since_ns, at_ns)) is not None:
            calls.append(other)
        return max(calls, key=lambda call: min(ready_ns(call), at_ns), default=None)

    def _decider(self, call: CallTrace, at_ns: int) -> CallTrace | None:
        """Returns the call that a guess waited for: the last one that its decision reads."""
        sources = self._story.decisions[call.decision].sources if call.decision >= 0 else ()
        return self._last_of(sources, at_ns) or self._ready.last_before(at_ns)

    def _last_of(self, numbers: Sequence[int], at_ns: int) -> CallTrace | None:
        """Returns the call that was ready last before a time, among some that are left."""
        calls = [self._left[number] for number in numbers if number in self._left]
        return last([call for call in calls if has_ended(call) and ready_ns(call) <= at_ns])


class _ReadyCalls:
    """The calls that are done or have failed, by the times when they were ready.

    From a call that was removed, links lead to the nearest one before it that is left. Following them shortens them, as in a
    disjoint-set forest, so that removed calls cost little more to skip than they took to remove.
    """

    def __init__(self, calls: Iterable[CallTrace]) -> None:
        last_first = [call for call in calls if has_ended(call)][::-1]
        self._calls = sorted(last_first, key=ready_ns)  # of calls that were ready together, the first of the story wins
        self._times = [ready_ns(call) for call in self._calls]
        self._places = {call.call_id: place for place, call in enumerate(self._calls, start=1)}
        self._links = list(range(len(self._calls) + 1))
        """By place: the place itself as long as its call is left, else one before it. Place 0 is before all calls."""

    def remove(self, call: CallTrace) -> None:
        """Takes a call away, if it is here."""
        if (place := self._places.get(call.call_id)) is not None:
            self._links[place] = place - 1

    def has(self, call: CallTrace) -> bool:
        """Returns whether a call is here, and has not been removed."""
        place = self._places.get(call.call_id, 0)
        return place > 0 and self._links[place] == place

    def last_before(self, at_ns: int) -> CallTrace | None:
        """Returns the call that was ready last before a time."""
        return next(self.backwards_from(at_ns), None)

    def backwards_from(self, at_ns: int) -> Iterator[CallTrace]:
        """Yields the calls that were ready before a time, the last first."""
        place = self._left_at(bisect_right(self._times, at_ns))
        while place:
            yield self._calls[place - 1]
            place = self._left_at(place - 1)

    def _left_at(self, place: int) -> int:
        """Returns the last place up to this one whose call is left; 0 if there is none."""
        links = self._links
        while links[place] != place:
            links[place] = links[links[place]]
            place = links[place]
        return place


class _RunningCalls:
    """The calls that ran while readers of streams did. Times must not grow from one question to the next: then what was ready
    after one of them is so for all later ones, and what could not run before it never can."""

    def __init__(self, calls: Collection[CallTrace], ready: _ReadyCalls) -> None:
        self._ready = ready
        self._places = {call.call_id: place for place, call in enumerate(calls)}
        self._sources = {call.call_id: frozenset(call.sources) for call in calls}
        self._earlier = sorted((call for call in calls if has_ended(call)), key=ready_ns)
        """The calls that were ready before the last time that was asked about."""
        self._later: list[tuple[int, CallTrace]] = []
        """The others, a heap in the order of the story."""

    def in_story_order(self, calls: Iterable[CallTrace]) -> list[CallTrace]:
        """Returns calls in the order in which the request asked for them."""
        return sorted(calls, key=lambda call: self._places[call.call_id])

    def has_run(self, call: CallTrace, reader: CallTrace, since_ns: int, at_ns: int) -> bool:
        """Returns whether a call ran between two times, and did not read what a reader made of its stream."""
        return has_ended(call) and able_ns(call) < at_ns and ready_ns(call) > since_ns and not self._reads(call, reader)

    def last_before(self, reader: CallTrace, since_ns: int, at_ns: int) -> CallTrace | None:
        """Returns the call that ran or was ready last before a time; of several that still ran then, the first of the story."""
        while self._earlier and ready_ns(self._earlier[-1]) >= at_ns:
            call = self._earlier.pop()
            heapq.heappush(self._later, (self._places[call.call_id], call))
        return self._still_running(reader, at_ns) or next(
            (
                call
                for call in takewhile(lambda call: ready_ns(call) > since_ns, self._ready.backwards_from(at_ns))
                if self.has_run(call, reader, since_ns, at_ns)
            ),
            None,
        )

    def _still_running(self, reader: CallTrace, at_ns: int) -> CallTrace | None:
        readers_of_it: list[tuple[int, CallTrace]] = []
        running: CallTrace | None = None
        while self._later and running is None:
            call = self._later[0][1]
            if not self._ready.has(call) or able_ns(call) >= at_ns:
                heapq.heappop(self._later)
            elif self._reads(call, reader):
                readers_of_it.append(heapq.heappop(self._later))
            else:
                running = call
        for entry in readers_of_it:
            heapq.heappush(self._later, entry)
        return running

    def _reads(self, call: CallTrace, reader: CallTrace) -> bool:
        return reader.call_id in self._sources[call.call_id]


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


def _apart(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns spans in order, each without what those before it cover, and none that is empty."""
    apart: list[tuple[int, int]] = []
    at_ns = 0
    for start_ns, end_ns in sorted(spans):
        if end_ns > max(start_ns, at_ns):
            apart.append((max(start_ns, at_ns), end_ns))
            at_ns = end_ns
    return apart


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
    return has_ended(call) or not call.is_guess or call.committed_ns > 0


def has_ended(call: CallTrace) -> bool:
    """Returns whether a call is done or has failed."""
    return call.outcome in ("done", "failed")


def last(calls: Sequence[CallTrace]) -> CallTrace | None:
    """Returns the call that was ready last."""
    return max(calls, key=ready_ns, default=None)
