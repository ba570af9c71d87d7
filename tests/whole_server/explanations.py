"""Which faults explain which errors: an error needs a fault that can have caused it, shortly before its request or meanwhile.

docs/reference/errors.md says what the codes mean.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

_AFTERMATH_S = 8.0
"""How long a fault has consequences: a stopped process (6 s), then a lease (3 s) less what of it had passed."""
_DEATHS = ("kill", "terminate", "stop")
_SILENCE = (*_DEATHS, "cut", "partition")

_EXPLAINED_BY: dict[str, tuple[str, ...]] = {
    "transport": _SILENCE,
    "not_ready": (*_SILENCE, "disk"),
    "overloaded": (*_SILENCE, "disk"),
    "replica_lost": _DEATHS,
    "tensor_lost": (*_DEATHS, "partition", "cut"),
    "store": ("disk",),
    # A server that gets SIGTERM waits for its effects.
    # A clock that is set forward ends leads, and claims of jobs.
    "effect_lost": ("kill", "stop", "cut", "partition", "clock jump"),
    "suspect_input": _SILENCE,
    "server_stopped": ("terminate",),
}
"""By an error's code, how the kinds of faults begin that may cause it."""
_MIN_CAUSES = {"suspect_input": 2}
"""How many faults an error needs, if not one. A call that has lost two replicas is not run again: it may have ended them."""
GIVEN_UP = "attempts: each time, the server that ran it died"
"""What a job says that as many servers as may try it have not finished."""
_OF_JOBS_ONLY = ("store",)
_OF_JOBS_TOO: dict[str, tuple[str, ...]] = {"effect_lost": ("disk",)}
"""More causes for jobs: a claim is lost when the store cannot be reached. A gateway that ends gives back what has not begun."""


class Fault(NamedTuple):
    """A fault that happened: what, and when."""

    kind: str
    at_s: float


def is_explained(code: str, sent_s: float, ended_s: float, faults: Sequence[Fault], *, is_job: bool) -> bool:
    """Returns whether an error may have come of one of the faults.

    Args:
        code: The error's.
        sent_s: When its request was sent.
        ended_s: When the error came.
    """
    if code not in _EXPLAINED_BY or (code in _OF_JOBS_ONLY and not is_job):
        return False
    causes = _EXPLAINED_BY[code] + (_OF_JOBS_TOO.get(code, ()) if is_job else ())
    return len(causes_between(sent_s, ended_s, faults, causes)) >= _MIN_CAUSES.get(code, 1)


def may_lose_effects(sent_s: float, ended_s: float, faults: Sequence[Fault]) -> bool:
    """Returns whether an effect that comes after its request's answer may have been lost."""
    return bool(causes_between(sent_s, ended_s + _AFTERMATH_S, faults, _EXPLAINED_BY["effect_lost"]))


def causes_between(sent_s: float, ended_s: float, faults: Sequence[Fault], causes: Collection[str]) -> list[Fault]:
    """Returns the faults of some kinds that may matter for a request."""
    return [fault for fault in faults if sent_s - _AFTERMATH_S <= fault.at_s <= ended_s and fault.kind.startswith(tuple(causes))]
