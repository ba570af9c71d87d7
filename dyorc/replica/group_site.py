"""What a replica's process needs to lead a group."""

from collections.abc import Callable
from dataclasses import dataclass

from dyorc.replica.assignment import ReplicaAssignment
from dyorc.replica.fork_client import ForkClient


@dataclass(frozen=True, slots=True)
class GroupSite:
    """Where members come from, and what happens when one is lost.

    Attributes:
        client: Of the fork server that forked this process.
        assignment: This process's own.
        lost: Ends this process, for a reason. May be called on any thread.
    """

    client: ForkClient
    assignment: ReplicaAssignment
    lost: Callable[[str], None]
