"""What rules have in common that look at each program alone, as other systems' autoscalers do."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from dyorc.scaling.model import DesiredReplicas, ProgramLoad
from dyorc.scaling.steadying import within_bounds


class KnownLoad(Protocol):
    """What a rule knows of one program. `target` is how many replicas it wants now."""

    target: int


K = TypeVar("K", bound=KnownLoad)


def decide_alone(
    loads: Sequence[ProgramLoad],
    programs: dict[str, K],
    new: Callable[[int], K],
    rule: Callable[[K, ProgramLoad], tuple[int, str]],
) -> list[DesiredReplicas]:
    """Returns a wish for each program whose target changes.

    Args:
        programs: What is known of each; filled with `new` of its warm replicas.
        rule: Returns a program's target, whatever its bounds are, and why.
    """
    wishes: list[DesiredReplicas] = []
    for load in loads:
        known = programs.get(load.program)
        if known is None:
            known = programs[load.program] = new(load.counts.warm)
        target, reason = rule(known, load)
        target = within_bounds(target, load.bounds)
        if target != known.target:
            known.target = target
            wishes.append(DesiredReplicas(load.program, target, 0, reason))
    return wishes
