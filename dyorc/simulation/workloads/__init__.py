"""The workloads that are simulated, by name. Costs and probabilities are plausible, not measured."""

from collections.abc import Callable

from dyorc.errors import InvalidInputError
from dyorc.simulation.workload import Workload
from dyorc.simulation.workloads.loops import agent, halting
from dyorc.simulation.workloads.mixes import mixture
from dyorc.simulation.workloads.single_decisions import cascade, coin, guard, router
from dyorc.simulation.workloads.streams import STREAMING
from dyorc.simulation.workloads.trees import fanout, nested

WORKLOADS: dict[str, Callable[[], Workload]] = {
    "guard": guard,
    "cascade": cascade,
    "router": router,
    "halting": halting,
    "fanout": fanout,
    "agent": agent,
    "nested": nested,
    "coin": coin,
}
"""Each makes the workload with its default probabilities."""


MIXED: dict[str, Callable[[], Workload]] = {"mixture": mixture}
"""Workloads of requests that differ widely in their work."""


def workload(name: str) -> Workload:
    """Returns the workload called `name`.

    Raises:
        InvalidInputError: If it is unknown.
    """
    known = WORKLOADS | MIXED | STREAMING
    if name not in known:
        raise InvalidInputError(f"there is no workload {name!r}; there are {', '.join(known)}")
    return known[name]()
