"""Policies that look at each program alone, as other systems' autoscalers do: what they share, and the simplest one."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from dyorc.scaling.model import DesiredReplicas, ProgramLoad


class KnownLoad(Protocol):
    """What a policy knows of one program. `target` is how many replicas it wants now."""

    target: int


K = TypeVar("K", bound=KnownLoad)


def decide_alone(
    loads: Sequence[ProgramLoad],
    programs: dict[str, K],
    new: Callable[[int], K],
    rule: Callable[[K, ProgramLoad], tuple[int, str]],
) -> list[DesiredReplicas]:
    """Returns the desired replicas of each program whose target changes.

    Args:
        programs: What is known of each; filled with `new` of its warm replicas.
        rule: Returns a program's target, whatever its bounds are, and why.
    """
    all_desired: list[DesiredReplicas] = []
    for load in loads:
        known = programs.get(load.program)
        if known is None:
            known = programs[load.program] = new(load.counts.warm)
        target, reason = rule(known, load)
        target = load.bounds.clamp(target)
        if target != known.target:
            known.target = target
            all_desired.append(DesiredReplicas(load.program, target, 0, reason))
    return all_desired


class Fixed:
    """Wants the same number of replicas of every program."""

    def __init__(self, num_replicas: int) -> None:
        self._num_replicas = num_replicas

    def decide(self, loads: Sequence[ProgramLoad], now_ns: int) -> Sequence[DesiredReplicas]:
        """Returns the desired replicas of each program that has another number."""
        return [
            DesiredReplicas(load.program, self._num_replicas, 0, "fixed")
            for load in loads
            if load.counts.num_processes != self._num_replicas
        ]
