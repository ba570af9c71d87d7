"""How far each rank is, and which one ended a run.

All ranks of a group and their parent map one file, so that the progress even of a rank that was killed is known:

    bytes 16 r .. 16 r + 8     the number of the run, from 1
    bytes 16 r + 8 .. 16 r + 16     the number of the plan's step in it

Each rank writes only its own place, and the parent only reads, for people.
"""

import mmap
import signal
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dyorc.errors import PlanRunError
from dyorc.planner.plan import Apply, Collective, Plan, Transfer
from dyorc.planner.runtime.rank_messages import FailedMessage

_PLACE = struct.Struct("<qq")


class RankProgress:
    """The file of a group's progress."""

    def __init__(self, path: Path, num_ranks: int) -> None:
        if not path.exists():
            path.write_bytes(bytes(_PLACE.size * num_ranks))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _PLACE.size * num_ranks)

    def note(self, rank: int, run: int, step: int) -> None:
        """Records how far a rank is."""
        _PLACE.pack_into(self._memory, _PLACE.size * rank, run, step)

    def of(self, rank: int) -> tuple[int, int]:
        """Returns the number of a rank's run, and its step in it."""
        run, step = _PLACE.unpack_from(self._memory, _PLACE.size * rank)
        return run, step

    def close(self) -> None:
        """Unmaps the file."""
        self._memory.close()


@dataclass(frozen=True, slots=True)
class RankExited:
    """A rank's process has ended.

    Attributes:
        exit_code: As `subprocess` gives it: negative for a signal; None if unknown.
    """

    exit_code: int | None


@dataclass(frozen=True, slots=True)
class RankPosition:
    """How far a rank is: the number of its run, and the step of the plan in it."""

    run: int
    step: int


Event = RankExited | FailedMessage


def is_cause(event: Event) -> bool:
    """Whether an event explains itself; a rank that could not reach another does not."""
    return isinstance(event, RankExited) or not event.is_of_link


def error_of(
    events: Mapping[int, Event], missing: Sequence[int], where: Sequence[RankPosition], plan: Plan | None, timeout_s: float
) -> PlanRunError:
    """Returns the error that names the rank to blame.

    Args:
        events: What happened to ranks, in order.
        missing: Ranks that neither answered nor ended.
        where: How far each rank is.
        plan: What ran, or None before.
        timeout_s: How long ranks and their parent wait.
    """
    for rank, event in events.items():
        if is_cause(event):
            how = _ended(event) if isinstance(event, RankExited) else f"raised {event.error}"
            return PlanRunError(f"rank {rank} {how} {_at(where[rank], plan)}", rank=rank, step=where[rank].step)
    behind = [rank for rank in missing if where[rank] == min((where[r] for r in missing), key=lambda w: (w.run, w.step))]
    if behind:
        names = ", ".join(map(str, behind))
        waiting = "; ".join(f"rank {rank}: {event.error}" for rank, event in events.items() if isinstance(event, FailedMessage))
        return PlanRunError(
            f"rank {names} did not go on within {timeout_s:g} s {_at(where[behind[0]], plan)}"
            + (f" ({waiting})" if waiting else ""),
            rank=behind[0],
            step=where[behind[0]].step,
        )
    rank, event = next(iter(events.items()))
    text = event.error if isinstance(event, FailedMessage) else ""
    return PlanRunError(f"rank {rank} lost the others {_at(where[rank], plan)}: {text}", rank=rank, step=where[rank].step)


def _ended(exited: RankExited) -> str:
    if exited.exit_code is None:
        return "has ended"
    if exited.exit_code < 0:
        return f"was killed by {signal.Signals(-exited.exit_code).name}"
    return f"ended with exit code {exited.exit_code}"


def _at(where: RankPosition, plan: Plan | None) -> str:
    if plan is None or not where.run:
        return "before its first step"
    if where.step >= len(plan.steps):
        return f"in run {where.run}, after the plan's last step"
    match plan.steps[where.step]:
        case Apply() as step:
            description = f"{step.op} of {step.node}"
        case Collective() as step:
            description = f"{step.kind} of {step.source}"
        case Transfer() as step:
            description = f"transfer of {step.source}"
    return f"in run {where.run}, at step {where.step} of {len(plan.steps)}, {description}"
