"""Which orchestrator a replica works for: the leader of a group, which may change while the replica stays loaded.

The links find a new leader at the same address by dialling again. A leader at another address is found in the store, where the
replica looks when it has received nothing for a while: its leader may be gone or stopped, or may just have no work. If two claim
    to lead, the replica trusts the one with the higher fence, and does not read the other's messages.
"""

import threading
import time
from collections.abc import Sequence

import structlog

from dyorc.leader_election.leader import Leader
from dyorc.leader_election.leader_discovery import find_leader
from dyorc.replica.assignment import OrchestratorGroup, Uplink
from dyorc.system.log_throttle import LogThrottle
from dyorc.transport.column_codec import Frame
from dyorc.transport.link import ReplicaEnd
from dyorc.transport.wake_up import WakeUp

_log = structlog.get_logger("dyorc.replica")

_LOOK_S = 0.05
"""How long a replica waits for the store, since a batch may come."""


class LeaderTracker:
    """The leader, as far as a replica knows. The worker's thread updates it, others read.

    Attributes:
        address: Where it listens.
        fence: The highest that the replica knows.
    """

    def __init__(self, uplink: Uplink) -> None:
        self.address = uplink.address
        self.fence = 0
        self._group = uplink.group
        self._looking: threading.Thread | None = None
        self._leader: Leader | None = None

    @property
    def is_alone(self) -> bool:
        """Whether there is only one orchestrator, without a group."""
        return self._group is None

    @property
    def is_looking(self) -> bool:
        """Whether the store has yet to answer."""
        return self._looking is not None and self._looking.is_alive()

    def look(self, wait_s: float = _LOOK_S) -> None:
        """Asks the store which orchestrator leads. An answer that comes too late counts at the next look."""
        if self._group is None:
            return
        if not self.is_looking:
            self._looking = threading.Thread(target=self._ask, args=(self._group,), name="dyorc-look", daemon=True)
            self._looking.start()
        if self._looking is not None:
            self._looking.join(wait_s)
        leader = self._leader
        if leader is not None and leader.replicas_address and leader.fence >= self.fence:
            self.fence, self.address = leader.fence, leader.replicas_address

    def _ask(self, group: OrchestratorGroup) -> None:
        self._leader = find_leader(group.store, group.name)


class LeaderLink:
    """A replica's end of the link to the leader. Blocking, for one thread, like every `ReplicaEnd`.

    Attributes:
        is_trusted: Whether the orchestrator at the other end has shown that it leads. If not, its messages must not be used.
        is_silent: Whether nothing has come for so long that the replica should announce itself. A receive that is woken has not
            waited long enough by itself.
    """

    def __init__(self, uplink: Uplink, following: LeaderTracker, receive_timeout_s: float) -> None:
        self._uplink = uplink
        self._following = following
        self._timeout_s = receive_timeout_s
        self._untrusted = LogThrottle(_log, "orchestrator_not_trusted")
        self._heard_s = time.monotonic()
        self.is_silent = False
        self._dial()

    @property
    def fence(self) -> int:
        """The highest fence that the replica knows."""
        return self._following.fence

    @property
    def is_connected(self) -> bool:
        """See `ReplicaEnd.is_connected`."""
        return self._link.is_connected

    def _dial(self) -> None:
        self._address = self._following.address
        self._link: ReplicaEnd = self._uplink.dial(self._timeout_s, self._address)
        self.is_trusted = self._following.is_alone

    def send(self, frames: Sequence[Frame]) -> None:
        """See `ReplicaEnd.send`."""
        self._link.send(frames)

    def receive(self, *, is_waiting: bool = True, wake: WakeUp | None = None) -> list[Frame] | None:
        """See `ReplicaEnd.receive`. If nothing comes in time, looks for another leader."""
        frames = self._link.receive(is_waiting=is_waiting, wake=wake)
        if frames is not None:
            self.is_silent = False
        elif is_waiting and not (wake is not None and wake.is_set):
            self.is_silent = True
        else:
            self.is_silent = wake is not None and time.monotonic() - self._heard_s >= self._timeout_s
        if frames is not None or self.is_silent:
            self._heard_s = time.monotonic()
        if self.is_silent:
            self._following.look()
            self.redial_leader()
        return frames

    def check_fence(self, fence: int) -> bool:
        """Checks the fence of the other end. Returns whether to trust it; if not, looks for the leader."""
        self.is_trusted = fence >= self._following.fence
        if self.is_trusted:
            self._following.fence = fence
        else:
            self._untrusted.report(address=self._address, fence=fence, known=self._following.fence)
            self._following.look()
            self.redial_leader()
        return self.is_trusted

    def redial_leader(self) -> bool:
        """Dials the leader, if it has another address now. Returns whether it has."""
        if self._following.address == self._address:
            return False
        _log.info("orchestrator_changed", address=self._following.address, fence=self._following.fence)
        self._link.close(0)
        self._dial()
        return True

    def close(self, linger_s: float = 1.0) -> None:
        """See `ReplicaEnd.close`."""
        self._link.close(linger_s)
