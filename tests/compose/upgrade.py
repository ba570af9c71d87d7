"""Upgrades a cluster to another image, one container after another, as docs/how-to/deploy.md says, under load."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.compose.cluster import GATEWAYS, ORCHESTRATORS, Cluster
from tests.compose.load import Load

CUT = re.compile("ConnectError|ReadError|RemoteProtocolError")
_NUM_AFTER = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What clients noticed while a container was replaced.

    Attributes:
        num_sent: Requests that ended meanwhile.
        errors: Of requests that were answered with an error, or wrongly.
        num_cut: Connections that a stopping gateway refused, or closed without a word of an answer; their clients sent again, to
            the other gateway.
        longest_s: How long the slowest request took.
    """

    service: str
    num_sent: int
    errors: tuple[str, ...]
    num_cut: int
    longest_s: float

    @property
    def row(self) -> str:
        """A line of a table in Markdown."""
        return f"| {self.service} | {self.num_sent:,} | {len(self.errors)} | {self.num_cut} | {self.longest_s:.1f} s |"


HEAD = "| replaced | requests sent | failed | connections cut | longest wait |\n|---|---|---|---|---|"


def upgrade(cluster: Cluster, load: Load, image: str) -> Iterator[Step]:
    """Replaces every container of DyOrc's: yields a step for each, once it is healthy and more requests have been answered."""
    renewed = replace(cluster, variables={**cluster.variables, "DYORC_IMAGE": image})
    leader = cluster.leader()
    follower = next(name for name in ORCHESTRATORS if name != leader)
    for service in (follower, leader, "ray-worker", "ray-head", *GATEWAYS):
        started_s = time.monotonic()
        if service == "ray-worker":
            _replace_worker(renewed)
        else:
            renewed.compose("up", "--detach", "--no-deps", service)
        renewed.wait_until_healthy(service)
        healthy_s = time.monotonic()
        cluster.wait_until(lambda since_s=healthy_s: len(load.since(since_s)) >= _NUM_AFTER, f"requests after {service}")
        yield _step(service, load, started_s)


def _replace_worker(cluster: Cluster) -> None:
    """Starts a second worker, to which the replicas of the first move when that one is stopped."""
    old = cluster.container("ray-worker")
    up = ("up", "--detach", "--no-deps", "--no-recreate")
    cluster.compose(*up, "--scale", "ray-worker=2", "ray-worker")
    cluster.wait_until(lambda: cluster.is_healthy("ray-worker"), "both workers are healthy")
    cluster.engine.docker("stop", old)
    cluster.engine.docker("rm", old)


def _step(service: str, load: Load, started_s: float) -> Step:
    sent = load.since(started_s)
    errors = [each.error for each in sent if each.error]
    return Step(
        service=service,
        num_sent=len(sent),
        errors=tuple(error for error in errors if not CUT.match(error)),
        num_cut=sum(CUT.match(error) is not None for error in errors),
        longest_s=max(each.ended_s - each.started_s for each in sent),
    )
