"""What the documentation promises of one idempotency key's jobs, one operation at a time."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from tests.histories.operation import Operation

UNKNOWN_ID = "?"
"""The id of a job that was made by a submission without an answer."""

_LIVE = ("queued", "running")
_ENDED = ("succeeded", "failed", "cancelled")


class JobState(NamedTuple):
    """A key's job; without an id, there is none.

    Attributes:
        end: How it ended; empty while it has not, as far as anybody has seen.
        since_s: When it was submitted, at the earliest.
    """

    id: str = ""
    body: str = ""
    end: str = ""
    since_s: float = 0.0


NO_JOB = JobState()


class JobModel:
    """The jobs of one key. Outcomes are what `tests.chaos.history_storm` records of answers:

    ======  ==============================  ==========================================
    kind    argument                        outcome
    ======  ==============================  ==========================================
    submit  the body                        ``["id", ID]`` or ``["conflict", ""]``
    look    the id                          ``["state", STATE]`` or ``["gone", ""]``
    list    the id                          as look: what the list of all jobs says of it
    cancel  the id                          as look: the state afterwards
    forget  the id                          ``["forgotten", ""]`` or ``["gone", ""]``
    ======  ==============================  ==========================================

    Args:
        ttl_s: How long an ended job is kept, at least; infinite: for the whole history.
    """

    start: JobState = NO_JOB

    def __init__(self, ttl_s: float = math.inf) -> None:
        self._ttl_s = ttl_s

    def step(self, state: JobState, operation: Operation) -> Iterable[JobState]:
        """See `SequentialModel.step`."""
        yield from self._step(state, operation)
        if state != NO_JOB and operation.ended_s >= state.since_s + self._ttl_s:  # it may have ended, and been forgotten
            yield from self._step(NO_JOB, operation)

    def _step(self, state: JobState, operation: Operation) -> Iterable[JobState]:
        match operation.kind:
            case "submit":
                return self._submit(state, operation)
            case "look" | "list" | "cancel":
                return self._look(state, operation)
            case _:
                return self._forget(state, operation)

    def _submit(self, state: JobState, operation: Operation) -> Iterable[JobState]:
        body = operation.argument
        if operation.outcome is None:
            return (JobState(UNKNOWN_ID, body, since_s=operation.began_s) if state == NO_JOB else state,)
        word, given = operation.outcome
        if word == "conflict":
            return (state,) if state != NO_JOB and state.body != body else ()
        if state == NO_JOB:
            return (JobState(given, body, since_s=operation.began_s),)
        if state.body != body or state.id not in (given, UNKNOWN_ID):
            return ()
        return (state._replace(id=given),)

    def _look(self, state: JobState, operation: Operation) -> Iterable[JobState]:
        """A job may have ended unseen at any time before; a cancelled one has ended so unless it had ended before."""
        is_cancel, is_its = operation.kind == "cancel", state.id == operation.argument
        if operation.outcome is None:
            return (state._replace(end="cancelled"), state) if is_cancel and is_its and not state.end else (state,)
        word, given = operation.outcome
        if word == "gone":
            return () if is_its else (state,)
        if not is_its or (is_cancel and given in _LIVE):
            return ()
        if state.end:
            return (state,) if given == state.end else ()
        if given in _LIVE:
            return (state,)
        return (state._replace(end=given),) if given in _ENDED and (given != "cancelled" or is_cancel) else ()

    def _forget(self, state: JobState, operation: Operation) -> Iterable[JobState]:
        is_its = state.id == operation.argument
        if operation.outcome is None:
            return (NO_JOB, state) if is_its else (state,)
        if operation.outcome[0] == "gone":
            return () if is_its else (state,)
        return (NO_JOB,) if is_its else ()
