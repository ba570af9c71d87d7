"""The programs of an orchestrator as the scaler sees them: how they are in the engine and in the fleet, and how they change."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from dyorc.authoring.program import Program
from dyorc.engine.interfaces import Load
from dyorc.models.status import StatusBoard
from dyorc.scaling.model import Bounds, Cost, DesiredReplicas, LeadTimes, ProgramLoad, Speed

_UNKNOWN = LeadTimes(from_parked_s=0.5, from_cold_s=3.0)
"""Assumed of programs that have never been started."""


class ApplyScale(Protocol):
    """Carries a wish out: `Orchestrator.want`."""

    def __call__(
        self, program: str, num_warm: int, num_parked: int, lead_s: float, misplaced: Sequence[str], *, is_order: bool
    ) -> None: ...


class ScalingTarget:
    """A `dyorc.orchestrator.scaler.Plant`.

    Args:
        programs: Those that are deployed, by name, as they are at any time.
        status: How many replicas there are.
        load: Returns what a program has to do, as the engine knows it.
    """

    def __init__(
        self, programs: Mapping[str, Program], status: StatusBoard, load: Callable[[str], Load], want: ApplyScale
    ) -> None:
        self._programs = programs
        self._status = status
        self._load = load
        self._want = want

    def loads(self) -> Sequence[ProgramLoad]:
        """Returns all programs as they are now."""
        return [self._program_load(program) for program in self._programs.values()]

    def want(self, wish: DesiredReplicas, *, is_order: bool = False) -> None:
        """Makes the engine use as many replicas as the policy decided, and the fleet keep as many."""
        status = self._status.programs[wish.program]
        status.is_off = is_order and not wish.num_warm
        status.most_on = wish.most_on
        lead_s = 0.0 if status.lead is None else status.lead.next_s(status.counts())
        self._want(wish.program, wish.num_warm, wish.num_parked, lead_s, status.misplaced(), is_order=is_order)

    def _program_load(self, program: Program) -> ProgramLoad:
        name = program.name
        load, status = self._load(name), self._status.programs[name]
        status.waiting_bytes = load.waiting_bytes
        return ProgramLoad(
            program=name,
            bounds=_within(program.options.bounds, status.max_replicas),
            cost=_cost(program),
            counts=status.counts(),
            lead=status.lead or _UNKNOWN,
            speed=None if load.line is None else Speed(*load.line, program.options.max_batch_size),
            num_queued=load.num_queued,
            num_running=load.num_running,
            warm_on=status.on_devices(are_warm=True),
            parked_on=status.on_devices(are_warm=False),
        )


def _within(bounds: Bounds, most: int | None) -> Bounds:
    """Returns bounds that also hold where only so many replicas are possible."""
    if most is None or bounds.max_replicas <= most:
        return bounds
    first = None if bounds.initial_warm is None else min(bounds.initial_warm, most)
    return replace(bounds, min_warm=min(bounds.min_warm, most), max_replicas=most, initial_warm=first)


def _cost(program: Program) -> Cost:
    options = program.options
    memory = int(options.ray_actor_options.get("memory", 0))
    return Cost(num_cpus=options.num_cpus, num_gpus=options.num_gpus, warm_bytes=memory, parked_bytes=memory)
