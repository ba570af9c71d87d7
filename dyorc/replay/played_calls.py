"""A call that reads or yields streams, played as a history has it.

    dispatched ── fed with the streams that it reads ──> known which recorded call it is ── parts, each with credit ──> ended
                        └── no recorded call begins so: it waits for ever

A program never learns of its own output through a stream that it reads, so all that a recorded call has read may be fed to it
before its first part is sent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dyorc.authoring.program import Program
from dyorc.engine.actions import DispatchBatch
from dyorc.replay.identities import StreamIdentity, strictness
from dyorc.telemetry.histories.history import HistoryCall


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCall:
    """A call of the history that is replayed.

    Attributes:
        identity: See `Identities.of_call`.
        streams: What it has read.
    """

    call: HistoryCall
    identity: str
    streams: Sequence[StreamIdentity]


class PlayedCall:
    """One call while it is played.

    Args:
        action: That sent it.
        started_ns: When.
        candidates: The recorded calls that it may turn out to be.
        used: The recorded calls that others have turned out to be. It adds its own.

    Attributes:
        action: As given.
        recorded: The recorded call that it is, once that is known.
        num_sent: How many parts it has yielded.
        is_over: Whether it has ended.
    """

    def __init__(
        self, action: DispatchBatch, started_ns: int, candidates: Sequence[RecordedCall], used: set[RecordedCall]
    ) -> None:
        self.action = action
        self.recorded: RecordedCall | None = None
        self.num_sent = 0
        self.is_over = False
        self._started_ns = self._last_ns = started_ns
        self._max_parts = action.max_parts
        self._candidates = [each for each in candidates if _is_made_by(action.program, each.call)]
        self._used = used
        num_streams = len(action.program.signature.streams)
        self._num_fed = [0] * num_streams
        self._num_taken = [0] * num_streams
        self._endings: list[tuple[str, ...] | None] = [None] * num_streams

    def grant(self, max_parts: int) -> None:
        """Lets it send up to so many parts, in all."""
        self._max_parts = max(self._max_parts, max_parts)

    @property
    def is_unknown(self) -> bool:
        """Whether it is none of the recorded calls."""
        return self.recorded is None and not self._candidates

    # What it reads

    def feed(self, stream: int, part: tuple[str, ...]) -> None:
        """Gives it the next part of a stream.

        Args:
            part: The identities of its tensors.
        """
        index = self._num_fed[stream]
        self._num_fed[stream] += 1
        self._candidates = [each for each in self._candidates if _goes_on(each.streams[stream], index, part)]

    def end(self, stream: int, error: tuple[str, ...]) -> None:
        """Ends a stream: with an error, if it has a type and a text."""
        self._endings[stream] = error
        self._candidates = [each for each in self._candidates if _ends(each.streams[stream], self._num_fed[stream], error)]

    def taken(self) -> Iterator[tuple[int, int]]:
        """Yields the streams that it has read on, each with how many parts it has read."""
        for stream, num_fed in enumerate(self._num_fed):
            calls = self._candidates if self.recorded is None else [self.recorded]
            num_taken = min(num_fed, max([len(each.streams[stream].parts) for each in calls], default=0))
            if num_taken > self._num_taken[stream]:
                self._num_taken[stream] = num_taken
                yield stream, num_taken

    def choose(self, *, waits: bool = True) -> None:
        """Finds out which recorded call it is: one that is not used, if possible, and has read the most. A call without an effect
        may be one that is used, as it may be made twice.

        Args:
            waits: Whether more may come of its streams, so that another call may turn out to be the one.
        """
        if self.recorded is not None:
            return
        unused = [each for each in self._candidates if each not in self._used]
        if not self.action.program.options.pure:
            self._candidates = unused
        candidates = unused or self._candidates
        read = list(filter(self._has_read, candidates))
        if read and (len(read) == len(candidates) or not waits):
            self.recorded = max(read, key=lambda each: strictness(each.call, each.streams))
            self._used.add(self.recorded)

    def _has_read(self, recorded: RecordedCall) -> bool:
        """Returns whether it was fed all that a candidate has read."""
        return all(
            num_fed >= len(stream.parts) and not (stream.is_ended and ending is None)
            for stream, num_fed, ending in zip(recorded.streams, self._num_fed, self._endings, strict=True)
        )

    def failure_passed_on(self) -> tuple[str, ...]:
        """Returns the error of a stream with which the recorded call failed, too, as it is now; empty if it failed otherwise."""
        if self.recorded is None or not self.recorded.call.error:
            return ()
        for stream, ending in zip(self.recorded.streams, self._endings, strict=True):
            if ending and stream.error == self.recorded.call.error:
                return ending
        return ()

    # What it yields

    @property
    def may_send(self) -> bool:
        """Whether it may yield another part."""
        return self.num_sent < self._max_parts

    def next_ns(self, progress: float, now_ns: int) -> int:
        """Returns when something comes of it: after this part of its time, but not before what came last, and not in the past."""
        assert self.recorded is not None
        call = self.recorded.call
        after_ms = call.queue_ms + call.compute_ms * progress
        self._last_ns = max(self._last_ns, now_ns, self._started_ns + round(after_ms * 1e6))
        return self._last_ns


def _is_made_by(program: Program, call: HistoryCall) -> bool:
    """Returns whether a recorded call has the streams that a program has now."""
    return len(call.streams) == len(program.signature.streams) and (call.parts is not None) == program.is_streaming


def _goes_on(stream: StreamIdentity, index: int, part: tuple[str, ...]) -> bool:
    """Returns whether a recorded call may have got this part of its stream."""
    return stream.parts[index] == part if index < len(stream.parts) else not stream.is_ended


def _ends(stream: StreamIdentity, num_parts: int, error: tuple[str, ...]) -> bool:
    """Returns whether a recorded call's stream may have ended so."""
    if not stream.is_ended:
        return len(stream.parts) <= num_parts
    return len(stream.parts) == num_parts and stream.error[:1] == error[:1]
