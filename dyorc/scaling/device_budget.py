"""Shares processors, devices and memory among all programs' replicas."""

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dyorc.config import BudgetConfig
from dyorc.scaling.devices import Devices
from dyorc.scaling.model import Cost, ProgramLoad

_SLACK = 1e-9
_Vector: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """What a program should have, if there is room.

    Attributes:
        value: Returns what its n-th warm replica is worth, counted from 1: the calls that need not wait, times the time that each
            saves. Falls with n.
    """

    load: ProgramLoad
    num_warm: int
    num_parked: int
    value: Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Grant:
    """What a program gets, and the reason if that is less than it claimed, or elsewhere.

    Attributes:
        most_on: How many of its warm replicas may stay on the devices where others need room.
    """

    num_warm: int
    num_parked: int
    reason: str = ""
    most_on: Mapping[str, int] = field(default_factory=dict[str, int])


class DeviceBudget:
    """Limits of everything that replicas take, and the devices that they share. `min_warm` replicas of each program are granted
    in any case.
    """

    def __init__(self, config: BudgetConfig, swap_margin: float) -> None:
        self._limits = (_limit(config.max_cpus), _limit(config.max_gpus), _limit(config.max_bytes))
        self._swap_margin = swap_margin
        self._is_limited = any(map(math.isfinite, self._limits))

    def limits(self, loads: Iterable[ProgramLoad]) -> bool:
        """Returns whether some programs may get less, because others are worth more."""
        return self._is_limited or any(load.devices for load in loads)

    def share(self, claims: Sequence[DeviceClaim]) -> list[Grant]:
        """Returns what each claim gets: the most valuable replicas that fit together, as seen from what each takes."""
        if not self.limits(claim.load for claim in claims):
            return [Grant(claim.num_warm, claim.num_parked) for claim in claims]
        return self._wait_for_room(claims, self._choose(claims))

    def _choose(self, claims: Sequence[DeviceClaim]) -> list[Grant]:
        """Grants warm replicas by what they are worth, then parked ones where memory is left."""
        warm = [min(claim.load.bounds.min_warm, claim.num_warm) for claim in claims]
        used = _total(_usage(claim.load.cost, number, 0) for claim, number in zip(claims, warm, strict=True))
        devices = Devices()
        for claim, number in zip(claims, warm, strict=True):
            for _ in range(number):
                devices.take(claim.load)
        heap = [(-self._worth(claim, number + 1), at) for at, (claim, number) in enumerate(zip(claims, warm, strict=True))]
        heapq.heapify(heap)
        while heap:
            _, at = heapq.heappop(heap)
            claim = claims[at]
            with_one = _total((used, _usage(claim.load.cost, 1, 0)))
            if warm[at] >= claim.num_warm or not self._fits(with_one, used) or not devices.take(claim.load):
                continue
            used = with_one
            warm[at] += 1
            heapq.heappush(heap, (-self._worth(claim, warm[at] + 1), at))
        parked = [0] * len(claims)
        for at in sorted(range(len(claims)), key=lambda at: -self._worth(claims[at], warm[at] + 1)):
            claim = claims[at]
            dropped = claim.num_warm - warm[at]  # what cannot be warm may at least be parked
            for _ in range(min(claim.num_parked + dropped, claim.load.bounds.max_replicas - warm[at])):
                with_one = _total((used, _usage(claim.load.cost, 0, 1)))
                if self._fits(with_one, used):
                    used = with_one
                    parked[at] += 1
        loads = [claim.load for claim in claims]
        return [
            _grant(claim, num_warm, num_parked, devices.most_on(claim.load, loads))
            for claim, num_warm, num_parked in zip(claims, warm, parked, strict=True)
        ]

    def _wait_for_room(self, claims: Sequence[DeviceClaim], grants: list[Grant]) -> list[Grant]:
        """Lets programs grow only into room that is free already: programs that will shrink still hold their share."""
        held = [_current_usage(claim.load, Grant(0, 0)) for claim in claims]
        used = _total(held)
        order = sorted(range(len(claims)), key=lambda at: -self._worth(claims[at], max(grants[at].num_warm, 1)))
        for at in order:
            load, grant = claims[at].load, grants[at]
            others = _minus(used, held[at])
            now = self._limit_growth(load, grant, others)
            held[at] = _current_usage(load, now)
            used = _total((others, held[at]))
            grants[at] = now
        return grants

    def _limit_growth(self, load: ProgramLoad, grant: Grant, others: _Vector) -> Grant:
        """Returns the grant, less what does not fit together with what others hold."""
        floor = _total((others, _current_usage(load, Grant(0, 0))))
        warm, parked = grant.num_warm, grant.num_parked
        while warm > load.bounds.min_warm and not self._fits(_total((others, _current_usage(load, Grant(warm, 0)))), floor):
            warm -= 1
        while parked and not self._fits(_total((others, _current_usage(load, Grant(warm, parked)))), floor):
            parked -= 1
        if warm == grant.num_warm:
            return replace(grant, num_parked=parked)
        waits = f"{grant.num_warm} wait until others have given up their room"
        return replace(grant, num_warm=warm, num_parked=parked, reason=waits)

    def _worth(self, claim: DeviceClaim, number: int) -> float:
        """Returns what a replica is worth for the share of the budget that it takes, more if it is there already."""
        shares = [part / limit for part, limit in zip(_usage(claim.load.cost, 1, 0), self._limits, strict=True)]
        share = max(*shares, claim.load.cost.num_gpus if claim.load.devices else 0.0)
        counts = claim.load.counts
        margin = self._swap_margin if number <= counts.warm + counts.warming else 1.0
        return claim.value(number) * margin / max(share, 1e-6)

    def _fits(self, wanted: _Vector, before: _Vector) -> bool:
        """Returns whether nothing exceeds its limit, or at least no more than before."""
        return all(
            part <= limit * (1 + _SLACK) or part <= old + _SLACK
            for part, limit, old in zip(wanted, self._limits, before, strict=True)
        )


def _grant(claim: DeviceClaim, num_warm: int, num_parked: int, most_on: Mapping[str, int]) -> Grant:
    reasons: list[str] = []
    if num_warm != claim.num_warm:
        reasons.append(f"{claim.num_warm} do not fit into the budget with more valuable ones")
    if most_on:
        reasons.append(f"others need room on {', '.join(most_on)}")
    return Grant(num_warm, num_parked, "; ".join(reasons), most_on)


def _usage(cost: Cost, num_warm: int, num_parked: int) -> _Vector:
    memory = num_warm * cost.warm_bytes + num_parked * cost.parked_bytes
    return (num_warm * cost.num_cpus, num_warm * cost.num_gpus, float(memory))


def _current_usage(load: ProgramLoad, grant: Grant) -> _Vector:
    """Returns what a program takes until it has changed to what was granted."""
    warm = max(grant.num_warm, load.counts.warm + load.counts.warming)
    processes = max(grant.num_warm + grant.num_parked, load.counts.num_processes)
    return _usage(load.cost, warm, max(processes - warm, 0))


def _total(vectors: Iterable[_Vector]) -> _Vector:
    cpus = gpus = memory = 0.0
    for vector in vectors:
        cpus, gpus, memory = cpus + vector[0], gpus + vector[1], memory + vector[2]
    return (cpus, gpus, memory)


def _minus(total: _Vector, part: _Vector) -> _Vector:
    return (total[0] - part[0], total[1] - part[1], total[2] - part[2])


def _limit(limit: float | None) -> float:
    return math.inf if limit is None else float(limit)
