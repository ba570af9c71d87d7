"""Emulates the devices and links of a cluster on one machine: how long steps take, and when a message may leave.

A bucket is pure: the caller says what time it is, and waits. The same messages at the same times always leave at the same times.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Apply, Plan
from dyorc.planner.program import TensorProgram
from dyorc.planner.program.costs import FREE, costs_of
from dyorc.planner.runtime.shared_devices import Pause, sleep_for
from dyorc.planner.simulate.sizes import Sizes

Thing = TypeVar("Thing")


class Shaper(Protocol):
    """Decides in which order, and when, a rank's messages may leave."""

    def leaving(self, sends: Sequence[tuple[int, int, Thing]]) -> Iterator[Thing]:
        """Yields things when they may leave: each comes with the rank that it goes to, and its bytes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkShape:
    """How slow a link is.

    Attributes:
        bytes_per_s: What passes in a second, in the long run.
        latency_s: What each message waits besides.
        burst_bytes: What passes at once after a pause.
    """

    bytes_per_s: float
    latency_s: float = 0.0
    burst_bytes: int = 0


@dataclass(slots=True)
class TokenBucket:
    """Computes when messages leave over one link, in one direction."""

    shape: LinkShape
    _free_s: float = field(default=float("-inf"))  # when all earlier messages have passed, were there no burst

    def departure_s(self, num_bytes: int, now_s: float) -> float:
        """Returns when a message that is ready now has passed, and counts it."""
        burst_s = self.shape.burst_bytes / self.shape.bytes_per_s
        self._free_s = max(self._free_s, now_s - burst_s) + num_bytes / self.shape.bytes_per_s
        return max(now_s, self._free_s) + self.shape.latency_s


class Buckets:
    """One rank's links, each with its own bucket.

    Args:
        rank: Which one.
        shapes: Of links by source and target; other links are as fast as the machine.
        pause: Waits until so many seconds of sending are done.
    """

    def __init__(self, rank: int, shapes: Mapping[tuple[int, int], LinkShape], pause: Pause = sleep_for) -> None:
        self._buckets = {target: TokenBucket(shape) for (source, target), shape in shapes.items() if source == rank}
        self._clock: Callable[[], float] = time.monotonic
        self._pause = pause

    def leaving(self, sends: Sequence[tuple[int, int, Thing]]) -> Iterator[Thing]:
        """Yields things when their buckets let them leave, the first first."""
        now_s = self._clock()
        departures = [
            (bucket.departure_s(num_bytes, now_s) if (bucket := self._buckets.get(rank)) else now_s, thing)
            for rank, num_bytes, thing in sends
        ]
        for departure_s, thing in sorted(departures, key=lambda entry: entry[0]):
            if (wait_s := departure_s - self._clock()) > 0:
                self._pause(wait_s)
            yield thing


def paces_of(plan: Plan, program: TensorProgram, cluster: Cluster) -> Iterator[tuple[int, int, float]]:
    """Yields, for each computation that costs something, its step, a rank, and the seconds that the rank's device takes.

    Ranks compute, and sleep for what is left of that. So devices must be slower than this machine with all its ranks at work.
    """
    costs, sizes = costs_of(program), Sizes(plan)
    for number, step in enumerate(plan.steps):
        if isinstance(step, Apply) and costs[step.node] != FREE:
            for rank, share in zip(plan.meshes[step.mesh].ranks, sizes.shares_of(step), strict=True):
                yield number, rank, cluster.compute_s(costs[step.node], rank, share)


def links_of(cluster: Cluster) -> dict[tuple[int, int], LinkShape]:
    """Returns links between ranks that are as fast as those of a cluster."""
    pairs = [(source, target) for source in range(cluster.num_ranks) for target in range(cluster.num_ranks) if source != target]
    links = {pair: cluster.link_between(*pair) for pair in pairs}
    return {pair: LinkShape(bytes_per_s=link.bytes_per_s, latency_s=link.latency_s) for pair, link in links.items()}
