"""Kills the containers of a cluster in turn, under load, and says what its clients noticed."""

import time
from dataclasses import dataclass

from tests.compose.cluster import Cluster
from tests.compose.load import Load

_NUM_AFTER = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """What happened when the main process of a container was killed.

    Attributes:
        num_sent: Requests that ended between the kill and the moment at which all was as before.
        errors: Of the requests that failed.
        longest_s: How long the slowest of them took.
        recovered_s: How long until the container was healthy again.
    """

    role: str
    num_sent: int
    errors: tuple[str, ...]
    longest_s: float
    recovered_s: float

    @property
    def row(self) -> str:
        """A line of a table in Markdown."""
        return f"| {self.role} | {self.num_sent:,} | {len(self.errors)} | {self.longest_s:.1f} s | {self.recovered_s:.0f} s |"


HEAD = "| killed | requests sent | failed | longest wait | healthy again after |\n|---|---|---|---|---|"


def kill(cluster: Cluster, load: Load, service: str, role: str = "") -> Kill:
    """Kills one, and returns once it is healthy again and more requests have been answered since."""
    started_s = time.monotonic()
    cluster.kill(service)
    cluster.wait_until(lambda: cluster.pid(service), f"{service} is started again")
    cluster.wait_until_healthy(service)
    recovered_s = time.monotonic() - started_s
    healthy_s = time.monotonic()
    cluster.wait_until(lambda: len(load.since(healthy_s)) >= _NUM_AFTER, f"requests are answered after {service} was killed")
    sent = load.since(started_s)
    errors = tuple(one.error for one in sent if one.error)
    longest_s = max(one.ended_s - one.started_s for one in sent)
    return Kill(role=role or service, num_sent=len(sent), errors=errors, longest_s=longest_s, recovered_s=recovered_s)
