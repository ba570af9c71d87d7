"""The story of one request, step by step: why its batches had their sizes, what was guessed, what that saved or cost.

Kept only for requests that ask for it. The steps are plain values, ready for JSON; times are in ms since the request arrived.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from dyorc.trace_context import TraceContext

Step: TypeAlias = dict[str, Any]


class Move(msgspec.Struct, frozen=True, gc=False):
    """Input tensors of a batch that came to its replica one way.

    Attributes:
        tier: The way: ``message``, ``shm``, ``zmq``, ``grpc``, or ``process`` if they were there already.
        num_bytes: How many.
        took_s: How long the replica waited for them.
    """

    tier: str
    num_bytes: int
    took_s: float = 0.0


class BatchTrace(msgspec.Struct, eq=False):
    """A batch. All calls in it share this object. Times are the engine's, in nanoseconds; 0: not yet.

    Attributes:
        reason: Why it was formed (`FormReason`).
        size: Its calls.
        num_guesses: Those of them that were guesses when it was sent.
        requests: The engine's numbers of the requests that its calls belong to, in the order of the calls.
        sent_ns: When it was sent to its replica.
        started_ns: When it became the first there.
        ended_ns: When its results were back.
        gather_s: Time for fetching and stacking its inputs.
        infer_s: Time in the program's code.
        publish_s: Time for splitting and storing its outputs.
        moves: How its inputs came.
        outcome: ``running``, ``done``, ``failed``, or ``lost`` with its replica or its inputs.
        spans: Of those of its calls whose requests are traced. The batch's own span is below the first.
    """

    batch_id: int
    program: str
    replica_id: str
    reason: str
    size: int
    num_guesses: int
    requests: list[int]
    sent_ns: int
    started_ns: int = 0
    ended_ns: int = 0
    gather_s: float = 0.0
    infer_s: float = 0.0
    publish_s: float = 0.0
    moves: Sequence[Move] = ()
    outcome: str = "running"
    spans: Sequence[TraceContext] = ()

    @property
    def span(self) -> TraceContext | None:
        """Its own span; None if none of its requests is traced."""
        return self.spans[0].child(f"batch {self.batch_id}") if self.spans else None


class CallTrace(msgspec.Struct, eq=False):
    """A call of a request, from when its workflow asked for it. Times are the engine's, in nanoseconds; 0: not yet, or never.

    Attributes:
        call_id: Its number, unique in its engine.
        sources: The numbers of the calls whose results it reads; none if it reads only the request's inputs.
        decision: Index in `Story.decisions` of the last decision before it; -1 if there is none.
        branch: The outcome of that decision under which it was asked for.
        asked_ns: When the workflow asked for it.
        queued_ns: When all its inputs were there.
        ended_ns: When it was done, had failed, or was not needed any more.
        is_guess: Whether it was a guess when it was asked for.
        committed_ns: When the guess turned out to be right.
        was_cold: Whether no replica of its program took batches when it was queued.
        bet: What was expected of running it as a guess; None if it was not run as one.
        batches: Those it was in: more than one if it was tried again.
        outcome: ``waiting``, ``done``, ``failed``, ``squashed`` (a wrong guess), or ``withdrawn`` (its request ended before).
        error: Why it failed.
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
    bet: Step | None = None
    batches: list[BatchTrace] = []
    outcome: str = "waiting"
    error: str = ""


class DecisionTrace(msgspec.Struct, eq=False):
    """A decision of a request. Times are the engine's, in nanoseconds; 0: not yet.

    Attributes:
        site: Where it stands in the user's code.
        sources: The numbers of the calls whose results it reads.
        decision: Index in `Story.decisions` of the last decision before it; -1 if there is none.
        branch: The outcome of that decision under which it was reached.
        opened_ns: When a path of the workflow reached it.
        decided_ns: When its value was there.
        followed: The outcomes that were guessed meanwhile, with their probabilities.
        outcome: The true one.
        gains_ms: What each guess brought, in milliseconds; negative: what it cost others.
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


class PartTrace(msgspec.Struct, eq=False, gc=False):
    """A part of a streamed answer. Times are the engine's, in nanoseconds; 0: not yet."""

    index: int
    sent_ns: int
    taken_ns: int = 0


class Story:
    """The steps so far."""

    __slots__ = ("_started_ns", "steps")

    def __init__(self, now_ns: int) -> None:
        self._started_ns = now_ns
        self.steps: list[Step] = []

    def add(self, now_ns: int, event: str, **facts: Any) -> None:
        """Adds a step."""
        self.steps.append({"at_ms": round((now_ns - self._started_ns) / 1e6, 3), "event": event, **facts})


def as_text(steps: Sequence[Step]) -> str:
    """Renders a story for people, one line per step."""
    return "\n".join(f"{step['at_ms']:9.2f} ms  {_describe(step)}" for step in steps)


def _describe(step: Step) -> str:
    match step["event"]:
        case "followed":
            return f"decision at {step['decision']} is open; goes on under {step['outcomes']}"
        case "dispatched":
            return _describe_dispatch(step)
        case "done":
            return f"{step['program']} is done"
        case "lost":
            return f"the result of {step['program']} was lost with its replica; it is computed again"
        case "recomputed":
            return f"the result of {step['program']} has been computed again"
        case "failed":
            return f"{step['program']} failed: {step['error']}"
        case "part":
            return f"part {step['index']} of the answer is sent"
        case "decided":
            return _describe_decision(step)
        case event:
            return str(event)


def _describe_dispatch(step: Step) -> str:
    num_guesses, size = step["num_guesses"], step["batch_size"]
    guesses = f", {num_guesses} of them guesses" if 0 < num_guesses < size else ""
    text = f"{step['program']} starts in a batch of {size}{guesses}: {step['reason']}"
    if bet := step.get("guess"):
        text += f"; a guess: p = {bet['probability']}, saves {bet['saves_ms']:.1f} ms if right, "
        text += f"costs others {bet['costs_others_ms']:.1f} ms if wrong"
    return text


def _describe_decision(step: Step) -> str:
    text = f"decision at {step['decision']}: {step['outcome']}"
    for guess in step["guesses"]:
        text += f"; the guess {guess['outcome']} was {'right' if guess['is_right'] else 'wrong'}"
        if guess["gain_ms"]:
            text += f", {'saved' if guess['gain_ms'] > 0 else 'cost others'} {abs(guess['gain_ms']):.1f} ms"
    return text
