"""How fast communications are that share the ways out of and into machines: limits that lend unused bandwidth.

Speeds are weighted max-min fair: all grow together, in the ratios of what is reserved for them, until a way is full; flows on
that way stay as they are, and the others grow on. That is what a hierarchical token bucket does with classes whose quantum is in
the ratio of their rates. No flow gets less than its reservation, as long as no more is reserved than a way has.
"""

from collections.abc import Mapping, Sequence
from math import inf

from dyorc.planner.simulate.machine_ports import NetworkFlow


def speeds_of(flows: Mapping[int, NetworkFlow], capacities: Sequence[float]) -> dict[int, float]:
    """Returns how many times faster than reserved each flow is."""
    left = list(capacities)
    growing, speeds = dict(flows), dict[int, float]()
    while growing:
        weights = dict[int, float]()
        for flow in growing.values():
            for way in flow.ways:
                weights[way] = weights.get(way, 0.0) + flow.bytes_per_s
        at = {way: left[way] / weight for way, weight in weights.items()}
        limits = {
            index: min([flow.max_bytes_per_s / flow.bytes_per_s, *(at[way] for way in flow.ways)])
            for index, flow in growing.items()
        }
        lowest = min(limits.values())
        for index in [index for index, limit in limits.items() if limit <= lowest * (1 + 1e-12)]:
            flow = growing.pop(index)
            speeds[index] = max(lowest, 1.0)
            for way in flow.ways:
                left[way] -= flow.bytes_per_s * lowest
    return speeds


class Flows:
    """The communications under way, each with the seconds that it still takes at the speed that is reserved for it."""

    def __init__(self, capacities: Sequence[float]) -> None:
        self._capacities = capacities
        self._flows: dict[int, NetworkFlow] = {}
        self._left_s: dict[int, float] = {}
        self._speeds: dict[int, float] = {}
        self._now_s = 0.0
        self.due_s = inf
        """When the first of them ends, if none begins before."""

    def begin(self, index: int, flow: NetworkFlow, work_s: float, now_s: float) -> None:
        """Adds a communication."""
        self._advance(now_s)
        self._flows[index], self._left_s[index] = flow, work_s
        self._settle()

    def remove_ended(self, now_s: float) -> list[int]:
        """Removes and returns the communications that have ended."""
        self._advance(now_s)
        ended = [index for index, left_s in self._left_s.items() if left_s <= 1e-12]
        for index in ended:
            del self._flows[index], self._left_s[index]
        self._settle()
        return ended

    def _advance(self, now_s: float) -> None:
        for index, speed in self._speeds.items():
            self._left_s[index] -= (now_s - self._now_s) * speed
        self._now_s = now_s

    def _settle(self) -> None:
        self._speeds = speeds_of(self._flows, self._capacities)
        ends = (self._left_s[index] / speed for index, speed in self._speeds.items())
        self.due_s = self._now_s + max(min(ends), 0.0) if self._speeds else inf
