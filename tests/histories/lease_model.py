"""What a store promises of one lease, one operation at a time, and what its holders may do meanwhile."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.histories.operation import Operation

_CLOCK_S = 0.01
"""By so much may the store's clock differ from the recorders' within a lease."""


class Held(NamedTuple):
    """A lease.

    Attributes:
        owner: Who holds it; empty before the first, and after a release.
        fence: The highest that was given.
        since_s: When it was prolonged, at the earliest.
    """

    owner: str = ""
    fence: int = 0
    since_s: float = 0.0


class LeaseModel:
    """One lease. `tests.chaos.recorded_service` records what processes ask of it:

    =======  =================  =======================================
    kind     argument           outcome
    =======  =================  =======================================
    acquire  the owner          ``["fence", FENCE]``
    renew    the owner, fence   ``["ours", ""]`` or ``["lost", ""]``
    release  the owner, fence   ``["released", ""]``
    =======  =================  =======================================

    An attempt to acquire that came too early changes nothing, and is not recorded.

    Args:
        lease_s: For how long a lease is held without being prolonged.
    """

    start: Held = Held()

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s

    def step(self, state: Held, operation: Operation) -> Iterable[Held]:
        """See `SequentialModel.step`."""
        owner, fence = operation.argument[0], operation.argument[-1]
        match operation.kind:
            case "acquire":
                return self._acquire(state, operation, owner)
            case "renew":
                is_ours = fence > state.fence or (fence == state.fence and state.owner in ("", owner))
                after = Held(owner, fence, operation.began_s) if is_ours else state
                return (after,) if operation.outcome in (None, ["ours" if is_ours else "lost", ""]) else ()
            case _:
                return (Held("", fence) if (state.owner, state.fence) == (owner, fence) else state,)

    def _acquire(self, state: Held, operation: Operation, owner: str) -> Iterable[Held]:
        is_free = not state.owner or operation.ended_s >= state.since_s + self._lease_s - _CLOCK_S
        if operation.outcome is None:  # nobody knows its fence, nor does its owner, who asks again
            return (Held(owner, state.fence + 1, operation.began_s), state) if is_free else (state,)
        fence = operation.outcome[1]
        if state.owner == owner and fence == state.fence:
            return (state,)
        return (Held(owner, fence, operation.began_s),) if is_free and fence > state.fence else ()


def faults_of_acts(acts: Sequence[Operation], leases: Sequence[Operation]) -> list[str]:
    """Returns what leaders did that they must not: acts, each with its fence, after a later fence had been given.

    A leader that cannot reach the store goes on, so its acts (their argument says so) are not judged: the gateways refuse them.
    """
    given = sorted(
        (operation.ended_s, operation.outcome[1])
        for operation in leases
        if operation.kind == "acquire" and operation.outcome is not None
    )
    return [
        f"{act.subject} acted with fence {act.outcome[1]} after {fence} was given at {at_s:.3f}: {act}"
        for act in acts
        if not act.argument
        for at_s, fence in given
        if fence > act.outcome[1] and at_s < act.began_s
    ]


def faults_of_followers(taken: Sequence[Operation]) -> list[str]:
    """Returns where a gateway used a message of a leader after one with a higher fence."""
    by_gateway: dict[str, list[Operation]] = defaultdict(list)
    for operation in sorted(taken, key=lambda operation: operation.began_s):
        by_gateway[operation.subject].append(operation)
    return [
        f"{gateway} took a message of fence {later.outcome[1]} after one of {earlier.outcome[1]}: {later}"
        for gateway, operations in by_gateway.items()
        for earlier, later in itertools.pairwise(operations)
        if later.outcome[1] < earlier.outcome[1]
    ]
