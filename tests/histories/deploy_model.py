"""What the documentation promises of one model's versions, one operation at a time."""

from collections.abc import Iterable
from typing import NamedTuple

from tests.histories.operation import Operation

FIRST = "1"
"""The version that servers begin with."""


class Deployed(NamedTuple):
    """A model's default version, and the versions to which rollbacks lead, in reverse."""

    version: str = FIRST
    past: tuple[str, ...] = ()


class DeployModel:
    """The versions of one model. A deployed version has a name that no other deployment has. Outcomes are what
    `tests.chaos.services_storm_clients` records of answers:

    ========  ============  ==========================================================
    kind      argument      outcome
    ========  ============  ==========================================================
    deploy    the version   ``["version", VERSION]``: the default afterwards
    rollback                the same, or ``["conflict", ""]``: there is nothing to roll back to
    ask                     ``["version", VERSION]``: by which a request was answered
    list                    the same: what the control route says
    ========  ============  ==========================================================
    """

    start: Deployed = Deployed()

    def step(self, state: Deployed, operation: Operation) -> Iterable[Deployed]:
        """See `SequentialModel.step`."""
        match operation.kind:
            case "deploy":
                after = Deployed(operation.argument, (*state.past, state.version))
            case "rollback" if not state.past:
                return (state,) if operation.outcome in (None, ["conflict", ""]) else ()
            case "rollback":
                after = Deployed(state.past[-1], state.past[:-1])
            case _:
                after = state
        return (after,) if operation.outcome in (None, ["version", after.version]) else ()
