"""What runs the programs of a server, as the code that adds and removes versions sees it. `dyorc.server.runtime` makes it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from dyorc.authoring.program import Program
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.replica.assignment import ProgramSource

MACHINE = "local"
"""The name of this machine where there is no other."""

Places = Mapping[Program, ProgramSource]
"""Programs with the places where replicas find them."""


@dataclass(frozen=True, slots=True)
class ServerRuntime:
    """An orchestrator.

    Attributes:
        deploy: Starts the replicas that are not in this process, and returns when they are supervised. Call it once requests can
            come. May raise LaunchError.
        complaints: Returns what keeps programs from starting, by program.
        address: Where replicas dial in; empty if none do.
        add: Starts the replicas of another program, unless they are in this process. May raise LaunchError.
        remove: Ends them.
    """

    orchestrator: Orchestrator
    deploy: Callable[[], Awaitable[None]]
    complaints: Callable[[], Awaitable[Mapping[str, str]]]
    add: Callable[[Program, ProgramSource], Awaitable[None]]
    remove: Callable[[Program], Awaitable[None]]
    address: str = ""
