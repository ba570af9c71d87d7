"""The critical path of a request that has ended: what its time went into, from its first byte to its last, without gaps.

It is followed backwards. Of the calls that were needed, the one that was ready last held up the answer; before that, it is the
call whose result that one waited for, or that had to be ready before the workflow could ask; and so on to the first. What no call
explains is DyOrc's own time, unless the client had parts of the answer to take just then.
"""

from collections.abc import Sequence

from dyorc.engine.request_trace import CallTrace, RequestTrace
from dyorc.telemetry.call_time import able_ns, cut, has_waited_for_its_decision, is_needed, last, pieces_of, ready_ns
from dyorc.telemetry.record import RequestRecord
from dyorc.telemetry.stages import RequestStage, StageInterval
from dyorc.telemetry.wrong_guesses import WrongGuesses


def critical_path(record: RequestRecord, wrong_guesses: WrongGuesses) -> list[StageInterval]:
    """Returns the pieces of a request's time in order. Each begins where the one before it ends.

    Args:
        wrong_guesses: What replicas ran in vain.
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
        backwards: list[list[StageInterval]] = []
        at_ns = self._record.ended_ns
        call = self._unfinished() or self._last_before(at_ns)
        while call is not None and at_ns > start_ns:
            del self._left[call.call_id]
            done_ns = min(ready_ns(call), at_ns) if call.outcome in ("done", "failed") else at_ns
            backwards.append(self._between(done_ns, at_ns))
            if call.ended_ns and call.committed_ns > call.ended_ns:  # it was only waiting to be known as right
                at_ns, call = done_ns, self._decider(call, done_ns)
                continue
            able = max(min(able_ns(call), done_ns), start_ns)
            backwards.append(pieces_of(call, able, done_ns, self._wrong_guesses))
            at_ns, call = able, self._before(call, able)
        backwards.append(self._between(start_ns, at_ns))
        return [piece for pieces in reversed(backwards) for piece in pieces]

    def _between(self, start_ns: int, end_ns: int) -> list[StageInterval]:
        """Returns the pieces of a time that no call explains."""
        return cut(StageInterval(RequestStage.ENGINE, start_ns, end_ns), RequestStage.TAKING, self._taking)

    def _unfinished(self) -> CallTrace | None:
        """Returns the call that a request which failed was waiting for: of those that could run, the one that waited longest."""
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

    def _decider(self, call: CallTrace, at_ns: int) -> CallTrace | None:
        """Returns the call that a guess waited for: the last one that its decision reads."""
        sources = self._story.decisions[call.decision].sources if call.decision >= 0 else ()
        return self._last_before(at_ns, sources) or self._last_before(at_ns)

    def _last_before(self, at_ns: int, among: Sequence[int] | None = None) -> CallTrace | None:
        """Returns the call that was ready last before a time: among some, by their numbers, or of all that are left."""
        numbers = self._left if among is None else [number for number in among if number in self._left]
        calls = [self._left[number] for number in numbers]
        return last([call for call in calls if call.outcome in ("done", "failed") and ready_ns(call) <= at_ns])
