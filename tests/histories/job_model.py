"""What the documentation promises of one idempotency key's jobs, one operation at a time."""

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
    """

    id: str = ""
    body: str = ""
    end: str = ""


NO_JOB = JobState()


class JobModel:
    """The jobs of one key. Outcomes are what `tests.chaos.history_storm` records of answers:

    ======  ==============================  ==========================================
    kind    argument                        outcome
    ======  ==============================  ==========================================
    submit  the body                        ``["id", ID]`` or ``["conflict", ""]``
    look    the id                          ``["state", STATE]`` or ``["gone", ""]``
    cancel  the id                          as look: the state afterwards
    forget  the id                          ``["forgotten", ""]`` or ``["gone", ""]``
    ======  ==============================  ==========================================
    """

    start: JobState = NO_JOB

    def step(self, state: JobState, operation: Operation) -> Iterable[JobState]:
        """See `SequentialModel.step`."""
        match operation.kind:
            case "submit":
                return self._submit(state, operation)
            case "look" | "cancel":
                return self._look(state, operation)
            case _:
                return self._forget(state, operation)

    def _submit(self, state: JobState, operation: Operation) -> Iterable[JobState]:
        body = operation.argument
        if operation.outcome is None:
            return (JobState(UNKNOWN_ID, body) if state == NO_JOB else state,)
        word, given = operation.outcome
        if word == "conflict":
            return (state,) if state != NO_JOB and state.body != body else ()
        if state == NO_JOB:
            return (JobState(given, body),)
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
