"""The story of one request: why its batches had their sizes, what was guessed, what that saved or cost.

The engine fills it while the request runs, and only for recorded requests: so it has to be cheap. The steps that people read are
made on demand. They are plain values, ready for JSON; times are in ms since the request arrived.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from dyorc.core.trace_context import TraceContext

Step: TypeAlias = dict[str, Any]
_Entry = TypeVar("_Entry")


class Move(msgspec.Struct, frozen=True, gc=False):
    """Input tensors of a batch that came to its replica by one tier.

    Attributes:
        tier: ``message``, ``shm``, ``zmq``, ``grpc``, or ``process`` if they were there already.
        num_bytes: Their size.
        took_s: How long the replica waited for them.
    """

    tier: str
    num_bytes: int
    took_s: float = 0.0


class BatchTrace(msgspec.Struct, eq=False, gc=False):
    """A batch. All calls in it share this object. Times are the engine's, in nanoseconds; 0: not yet.

    Attributes:
        reason: Why it was formed (`FormReason`).
        size: Its calls.
        num_guesses: How many of its calls were guesses when it was sent.
        requests: The engine's numbers of the requests that its calls belong to, in the order of the calls.
        sent_ns: When it was sent to its replica.
        started_ns: When it became the first there.
        overdue_ns: For how long before that the replica had been done with the batch before, and the engine did not know: its
            results were on their way, or the event loop was busy.
        ended_ns: When its results were back.
        gather_s: Time for fetching and stacking its inputs.
        infer_s: Time in the program's code, without waits for parts of streams.
        publish_s: Time for splitting and storing its outputs.
        moves: How its inputs came.
        outcome: ``running``, ``done``, ``failed``, or ``lost`` with its replica or its inputs.
        spans: Of its calls whose requests are traced. The batch's own span is below the first.
    """

    batch_id: int
    program: str
    replica_id: str
    reason: str
    size: int
    num_guesses: int
    requests: Sequence[int]
    sent_ns: int
    started_ns: int = 0
    ended_ns: int = 0
    gather_s: float = 0.0
    infer_s: float = 0.0
    publish_s: float = 0.0
    moves: Sequence[Move] = ()
    outcome: str = "running"
    spans: Sequence[TraceContext] = ()
    overdue_ns: int = 0

    @property
    def span(self) -> TraceContext | None:
        """Its own span; None if none of its requests is traced."""
        return self.spans[0].child(f"batch {self.batch_id}") if self.spans else None


class CallTrace(msgspec.Struct, eq=False, gc=False):
    """A call of a request, from when its workflow asked for it. Times are the engine's, in nanoseconds; 0: not yet, or never.

    Attributes:
        call_id: Its number, unique in its engine.
        sources: The numbers of the calls whose results it reads; none if it reads only the request's inputs. Those behind the
            result of another workflow are known once it has ended.
        decision: Index in `RequestTrace.decisions` of the last decision before it; -1 before the first.
        branch: The outcome of that decision under which it was asked for.
        asked_ns: When the workflow asked for it.
        queued_ns: When all its inputs were there.
        ended_ns: When it was done, had failed, or was no longer needed.
        is_guess: Whether it was a guess when it was asked for.
        committed_ns: When the guess turned out to be right.
        was_cold: Whether no replica of its program took batches when it was queued.
        num_waiting: Certain calls of its program that were waiting for a replica when it was queued.
        is_repeat: Whether it computes a result again that was lost.
        bet: What was expected of running it as a guess; None if it was not run as one.
        batches: Those it was in: more than one if it was tried again.
        outcome: ``waiting``, ``done``, ``failed``, ``squashed`` (a wrong guess, even if it was done before), or ``withdrawn``
            (no longer needed).
        error: Why it failed.
        depth: How many workflows deep the one that asked was called; 0: it is the request's own.
        reads_streams: Whether its program reads streams: then it also ran while it waited for their parts.
        dropped: Why a resident that it returned was dropped and has not been made again: ``evicted`` for want of room, ``moved``
            to another process, or ``overwritten``. Empty: it was not, or it was lost.
    """

    call_id: int
    program: str
    asked_ns: int
    sources: Sequence[int] = ()
    decision: int = -1
    branch: str = ""
    queued_ns: int = 0
    ended_ns: int = 0
    is_guess: bool = False
    committed_ns: int = 0
    was_cold: bool = False
    num_waiting: int = 0
    is_repeat: bool = False
    bet: Step | None = None
    batches: Sequence[BatchTrace] = ()
    outcome: str = "waiting"
    error: str = ""
    depth: int = 0
    reads_streams: bool = False
    dropped: str = ""


def span_of_call(request: TraceContext, call: CallTrace) -> TraceContext:
    """Returns the span of a call of a request that is traced.

    Args:
        request: The request's own span.
    """
    return request.child(f"call {call.call_id}")


class DecisionTrace(msgspec.Struct, eq=False, gc=False):
    """A decision of a request. Times are the engine's, in nanoseconds; 0: not yet.

    Attributes:
        site: Where it stands in the user's code.
        sources: The numbers of the calls whose results it reads.
        decision: Index in `RequestTrace.decisions` of the last decision before it; -1 before the first.
        branch: The outcome of that decision under which it was reached.
        opened_ns: When a path of the workflow reached it.
        decided_ns: When its value was there.
        followed: The outcomes that were guessed meanwhile, with their probabilities.
        followed_ns: When the first of them was.
        outcome: The true one.
        gains_ms: What each guess saved, in milliseconds; negative: what it cost others.
        depth: That of its workflow, as for calls.
    """

    site: str
    opened_ns: int
    sources: Sequence[int] = ()
    decision: int = -1
    branch: str = ""
    decided_ns: int = 0
    followed: dict[str, float] = {}
    outcome: str = ""
    gains_ms: dict[str, float] = {}
    depth: int = 0
    followed_ns: int = 0


class PartTrace(msgspec.Struct, eq=False, gc=False):
    """A part of a streamed answer. Times are the engine's, in nanoseconds; 0: not yet."""

    index: int
    sent_ns: int
    taken_ns: int = 0


NEXT_LEADER = "next_leader"
FAILED_BY = "failed_by"


class TraceNote(msgspec.Struct, eq=False, gc=False):
    """Something else that happened to a request.

    Attributes:
        event: ``lost`` or ``recomputed``: a result of the program. ``evicted``: a resident of it, for want of room. ``remade``:
            one that was dropped is about to be made again. ``waited_for_room``: a call of it that begins a chain of residents,
            until now. ``next_leader``: the request was sent to the next leader of its group. ``answered``: the request.
            ``failed_by``: one of several calls of the program, or of the nested workflow, with whose error the request failed.
        why: What had become of a resident that is remade, as `CallTrace.dropped` says it. Of ``failed_by``: which call it was.
        by: What makes it again: ``rebuild`` of the program, or its ``call``.
    """

    at_ns: int
    event: str
    program: str = ""
    why: str = ""
    by: str = ""

    def facts(self) -> "Step":
        """Returns what is known of it, as plain values."""
        facts = {"program": self.program, "why": self.why, "by": self.by}
        return {name: fact for name, fact in facts.items() if fact}

    def text(self) -> str:
        """Returns a sentence for people."""
        return _SENTENCES.get(self.event, self.event).format(
            program=self.program, why=_DROPPED.get(self.why, self.why), by=_REMADE_BY.get(self.by, self.by)
        )


_SENTENCES = {
    "lost": "the result of {program} was lost with its replica; it is computed again",
    "recomputed": "the result of {program} has been computed again",
    "evicted": "a resident of {program} was evicted to make room for others",
    "remade": "a resident of {program} that {why} is made again {by}",
    FAILED_BY: "it failed by {why} of {program}",
    NEXT_LEADER: "it was sent to the next leader of its group",
    "waited_for_room": "{program} has waited for room for its resident",
}
_DROPPED = {
    "evicted": "was evicted",
    "moved": "was needed in another process",
    "overwritten": "was overwritten",
}
_REMADE_BY = {"rebuild": "by the program's rebuild", "call": "by running its call again"}


class RequestTrace:
    """What has happened to a request so far.

    Thousands of stories are kept, and each list in them takes time from every collection of garbage, which holds up all requests.
    So there is no list for nothing, and tuples of structs without `gc`, which collections pass over, where there are few entries.

    Args:
        number: The request's.
        started_ns: When it was handed over; steps count their time from here.
        span: The request's own span, if it is traced.

    Attributes:
        number: The same.
        span: The same.
        started_ns: The same.
        ended_ns: When it was answered or failed; 0: not yet.
        is_answered: Whether it was answered.
        calls: Its calls, in the order in which it asked for them.
        decisions: Its decisions, in the order in which it reached them.
        parts: The parts of its answer that were sent.
        notes: What else happened.
    """

    __slots__ = ("_log", "calls", "decisions", "ended_ns", "is_answered", "notes", "number", "parts", "span", "started_ns")

    def __init__(self, number: int, started_ns: int, span: TraceContext | None = None) -> None:
        self.number = number
        self.span = span
        self.started_ns = started_ns
        self.ended_ns = 0
        self.is_answered = False
        self.calls: list[CallTrace] = []
        self.decisions: Sequence[DecisionTrace] = ()
        self.parts: Sequence[PartTrace] = ()
        self.notes: Sequence[TraceNote] = ()
        self._log: list[CallTrace | DecisionTrace | PartTrace | TraceNote] = []
        """What took a step, once for each step: a call for each of its batches and for its end, a decision when branches were
        followed and when it was taken."""

    def restore(self, log: list[CallTrace | DecisionTrace | PartTrace | TraceNote]) -> None:
        """Sets what took a step, in order, from the story of another process."""
        self._log = log

    def add_dispatch(self, call: CallTrace, batch: BatchTrace) -> None:
        """Adds a batch to a call that was sent in it."""
        call.batches = (*call.batches, batch)
        self._log.append(call)

    def end_call(self, call: CallTrace, now_ns: int, error: str = "") -> None:
        """Ends a call that is done, or has failed."""
        call.ended_ns = now_ns
        call.error = error
        call.outcome = "failed" if error else "done"
        if not call.is_repeat:
            self._log.append(call)

    def add_decision(self, decision: DecisionTrace) -> None:
        """Adds a decision that no path has reached before."""
        self.decisions = _added(self.decisions, decision)

    def add_guesses(self, decision: DecisionTrace, outcomes: dict[str, float], now_ns: int) -> None:
        """Adds outcomes of an open decision that are guessed, with their probabilities."""
        if not decision.followed:
            decision.followed_ns = now_ns
            self._log.append(decision)
        decision.followed.update(outcomes)

    def end_decision(self, decision: DecisionTrace, outcome: str, gains_ms: dict[str, float], now_ns: int) -> None:
        """Ends an open decision with its outcome and what each guess gained."""
        decision.decided_ns = now_ns
        decision.outcome = outcome
        decision.gains_ms = gains_ms
        self._log.append(decision)

    def add_part(self, part: PartTrace) -> None:
        """Adds the next part of the answer, which was sent."""
        self.parts = _added(self.parts, part)
        self._log.append(part)

    def end(self, now_ns: int, *, is_answered: bool) -> None:
        """Ends the request, which was answered or has failed. Its effects may go on."""
        self.ended_ns = now_ns
        self.is_answered = is_answered
        if is_answered:
            self._log.append(TraceNote(now_ns, "answered"))

    def note(self, note: TraceNote) -> None:
        """Adds another event."""
        self.notes = _added(self.notes, note)
        self._log.append(note)

    def steps(self) -> list[Step]:
        """Returns what has happened, in order."""
        return TraceReader(self).new_steps()

    def since(self, position: int) -> "list[CallTrace | DecisionTrace | PartTrace | TraceNote]":
        """Returns what has taken a step since a position in the log, once for each step."""
        return self._log[position:]


def _added(entries: Sequence[_Entry], entry: _Entry) -> Sequence[_Entry]:
    if isinstance(entries, list):
        entries.append(entry)
        return entries
    return [entry]


class TraceReader:
    """Reads a story step by step, while it goes on. Any thread, one at a time."""

    def __init__(self, story: RequestTrace) -> None:
        self._story = story
        self._position = 0
        self._num_seen: dict[int, int] = {}

    def new_steps(self) -> list[Step]:
        """Returns the steps since the last time."""
        story, seen = self._story, self._num_seen
        entries = story.since(self._position)
        self._position += len(entries)
        steps: list[Step] = []
        for entry in entries:
            before = seen.get(id(entry), 0)
            seen[id(entry)] = before + 1
            at_ns, event, facts = _step(entry, before)
            steps.append({"at_ms": self._ms(at_ns), "event": event, **facts})
        return steps

    def _ms(self, at_ns: int) -> float:
        return round((at_ns - self._story.started_ns) / 1e6, 3)


def _step(entry: CallTrace | DecisionTrace | PartTrace | TraceNote, before: int) -> tuple[int, str, Step]:
    """Returns when an entry of the log happened, what, and its facts.

    Args:
        before: How many entries of the same object precede it.
    """
    match entry:
        case CallTrace():
            return _step_of_call(entry, before)
        case DecisionTrace(site=site):
            if entry.followed and not before:
                return entry.followed_ns, "followed", {"decision": site, "outcomes": dict(entry.followed)}
            guesses = [
                {"outcome": outcome, "is_right": outcome == entry.outcome, "gain_ms": gain_ms}
                for outcome, gain_ms in entry.gains_ms.items()
            ]
            return entry.decided_ns, "decided", {"decision": site, "outcome": entry.outcome, "guesses": guesses}
        case PartTrace():
            return entry.sent_ns, "part", {"index": entry.index}
        case TraceNote():
            return entry.at_ns, entry.event, entry.facts()


def _step_of_call(call: CallTrace, before: int) -> tuple[int, str, Step]:
    facts: Step = {"call": call.call_id, "program": call.program}
    if before < len(call.batches):
        batch = call.batches[before]
        facts |= {
            "batch_size": batch.size,
            "num_guesses": batch.num_guesses,
            "reason": batch.reason,
            "waited_ms": round((batch.sent_ns - call.queued_ns) / 1e6, 3),
            "replica": batch.replica_id,
        }
        if call.bet is not None and not before:
            facts["guess"] = call.bet
        return batch.sent_ns, "dispatched", facts
    if call.error:
        return call.ended_ns, "failed", facts | {"error": call.error}
    return call.ended_ns, "done", facts
