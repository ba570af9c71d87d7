"""Scaling at run time: asks the policy how many replicas there should be, and carries out what it decides."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from dyorc.authoring.program import Program
from dyorc.config import ScalingConfig
from dyorc.engine.interfaces import Load
from dyorc.errors import InvalidInputError, UnknownModelError
from dyorc.models.status import StatusBoard
from dyorc.orchestrator.traffic_history import TrafficStore, background_task, persist_traffic
from dyorc.scaling.model import Bounds, Cost, DesiredReplicas, LeadTimes, ProgramLoad, Speed
from dyorc.scaling.policy import PredictivePolicy
from dyorc.scaling.traffic import Traffic
from dyorc.system.log_throttle import LogThrottle

_log = structlog.get_logger("dyorc.scaling")

_NUM_DECISIONS = 200
"""Decisions that are remembered."""
_UNKNOWN = LeadTimes(from_parked_s=0.5, from_cold_s=3.0)
"""Assumed of programs that have never been started."""
_FORECAST_S = 5.0
"""How far ahead people are shown what is foreseen."""


class ScaledPrograms(Protocol):
    """What is scaled."""

    def loads(self) -> Sequence[ProgramLoad]:
        """Returns every program as it is now."""
        ...

    def want(self, desired: DesiredReplicas, *, is_order: bool) -> None:
        """Starts to change a program's replicas to the desired numbers.

        Args:
            is_order: Whether a person has set the number of replicas that take batches.
        """
        ...


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """Desired replicas that were applied. `at_s` is Unix time in seconds."""

    at_s: float
    desired: DesiredReplicas

    def as_report(self) -> dict[str, Any]:
        """Returns it as plain values."""
        desired = self.desired
        return {
            "at_s": self.at_s,
            "program": desired.program,
            "num_warm": desired.num_warm,
            "num_parked": desired.num_parked,
            "reason": desired.reason,
        }


class Scaler:
    """Lets the policy decide every interval, and at once when traffic makes a program urgent that is not ready.

    It begins when the first program to scale is served; without any, requests are not observed either. Programs with a
    fixed number of replicas are left alone until a person sets another: all that Ray Serve keeps take batches.

    Attributes:
        traffic: What the engine is observed by.
    """

    def __init__(self, config: ScalingConfig) -> None:
        self._has_begun = asyncio.Event()
        self.traffic = Traffic(season_s=config.season_s)
        self._config = config
        self._policy = PredictivePolicy(config, self.traffic)
        self._decisions: deque[ScaleDecision] = deque(maxlen=_NUM_DECISIONS)
        self._last: dict[str, DesiredReplicas] = {}
        self._is_running = False
        self._failing = LogThrottle(_log, "scaling_failed", is_error=True)
        self._target: ScaledPrograms

    @contextlib.asynccontextmanager
    async def running(self, target: ScaledPrograms) -> AsyncGenerator[None]:
        """Scales while entered, from the moment at which it has begun."""
        self._target, self._is_running = target, True
        if self._has_begun.is_set():
            self.decide()
        async with background_task(self._decide_regularly()):
            yield

    def begin(self) -> None:
        """Begins to scale, because there is a program to scale. Repeating it changes nothing."""
        if self._has_begun.is_set():
            return
        self._has_begun.set()
        if self._is_running:
            self.decide()

    def persist_traffic(self, notes: TrafficStore, name: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Keeps what is learned while entered, as a note of this name; see `dyorc.orchestrator.traffic_history`.

        As long as there is no program to scale, nothing is learned, and what another server has learned stays.
        """
        return persist_traffic(self.traffic, notes, name, self._has_begun)

    async def _decide_regularly(self) -> None:
        await self._has_begun.wait()
        while True:
            await asyncio.sleep(self._config.interval_s)
            self.decide()

    def decide(self) -> None:
        """Asks the policy now. Also called when traffic becomes urgent."""
        self.traffic.is_urgent = False
        try:
            loads = self._target.loads()
            all_desired = self._policy.decide([self._as_ordered(load) for load in loads], time.monotonic_ns())
        except Exception as error:
            self._failing.report(exc_info=error)  # the replicas stay as they are
            return
        fixed = {load.program for load in loads if load.bounds.is_fixed}
        alone = fixed - self._policy.overrides.keys() - self._last.keys()
        for desired in all_desired:
            if desired.program not in alone:
                self._carry_out(desired)

    def _carry_out(self, desired: DesiredReplicas) -> None:
        self._last[desired.program] = desired
        self._decisions.append(ScaleDecision(time.time(), desired))
        _log.info("scaled", program=desired.program, warm=desired.num_warm, parked=desired.num_parked, reason=desired.reason)
        self._target.want(desired, is_order=self._is_order(desired.program))

    def _is_order(self, program: str) -> bool:
        order = self._policy.overrides.get(program)
        return order is not None and order.num_warm is not None

    # For people

    def report(self) -> dict[str, Any]:
        """Returns each program's replicas, its desired replicas and why, and the last decisions, the newest last."""
        return {
            "programs": {load.program: self._report(self._as_ordered(load)) for load in self._target.loads()},
            "decisions": [decision.as_report() for decision in self._decisions],
        }

    def _report(self, load: ProgramLoad) -> dict[str, Any]:
        counts, desired = load.counts, self._last.get(load.program)
        return {
            "num_warm": counts.warm,
            "num_warming": counts.warming,
            "num_parked": counts.parked,
            "num_starting": counts.starting,
            "num_warm_wanted": counts.warm if desired is None else desired.num_warm,
            "num_parked_wanted": counts.parked if desired is None else desired.num_parked,
            "min_warm": load.bounds.min_warm,
            "max_replicas": load.bounds.max_replicas,
            "reason": "" if desired is None else desired.reason,
            "is_by_hand": load.program in self._policy.overrides,
            "from_parked_s": load.lead.from_parked_s,
            "from_cold_s": load.lead.from_cold_s,
        }

    def reason(self, program: str) -> str:
        """Returns the reason for the desired replicas of a program; empty before the first decision."""
        desired = self._last.get(program)
        return "" if desired is None else desired.reason

    def forecast_per_s(self, program: str) -> float | None:
        """Returns how many calls of a program per second are foreseen for the next seconds, as of the last decision; None if
        nothing is, since the number of replicas is fixed."""
        if not self._has_begun.is_set():
            return None
        return self.traffic.ahead(program, 0.0, _FORECAST_S, time.monotonic_ns()).mean / _FORECAST_S

    def scale(self, program: str, num_warm: int | None, num_parked: int | None) -> None:
        """Sets numbers by hand, or leaves them to the policy again. A fixed number becomes another fixed number.

        The programs of a group share processes, so all of them get the numbers of one.

        Raises:
            UnknownModelError: If there is no such program.
            InvalidInputError: If the program's bounds do not allow it, or its place: a server's own process runs it once; or
                if the program has no bounds and it is more than both `scaling.max_replicas_by_hand` and what it declares.
        """
        loads = {load.program: load for load in self._target.loads()}
        if program not in loads:
            raise UnknownModelError(f"there is no program {program!r}; there are {sorted(loads)}")
        bounds, most_possible = loads[program].bounds, loads[program].most_possible
        if most_possible is not None and (num_warm or 0) + (num_parked or 0) > most_possible:
            ordered = f"{num_warm or 0} warm and {num_parked or 0} parked replicas, expected at most {most_possible}"
            raise InvalidInputError(
                f"program {program!r}: {ordered}: it runs in the server's own process; `--cells N` starts N such processes, Ray "
                "any number of replicas"
            )
        group = loads[program].group
        members = [name for name, load in loads.items() if name == program or (group and load.group == group)]
        if bounds.is_fixed:
            declared = max(loads[name].bounds.max_replicas for name in members)
            _check_by_hand(program, max(declared, self._config.max_replicas_by_hand), num_warm, num_parked)
        else:
            _check(program, bounds, num_warm, num_parked)
        for name in members:  # they share processes, so they have one number
            self._policy.override(name, num_warm, num_parked)
        before = {name: self._last.get(name) for name in members}
        self.decide()
        for name, desired in before.items():
            if desired is not None and self._last.get(name) is desired:  # the number stays, and is an order now, or no longer one
                self._target.want(desired, is_order=self._is_order(name))

    def forget(self, program: str) -> None:
        """Forgets a program that is no longer served."""
        self._last.pop(program, None)
        self._policy.forget(program)

    def _as_ordered(self, load: ProgramLoad) -> ProgramLoad:
        """Returns a program with its current bounds: an order replaces a fixed number by another."""
        order = self._policy.overrides.get(load.program)
        if order is None or not load.bounds.is_fixed:
            return load
        num_warm = load.bounds.min_warm if order.num_warm is None else order.num_warm
        most = num_warm + (order.num_parked or 0)
        return replace(load, bounds=replace(load.bounds, min_warm=num_warm, max_replicas=most))


def _check(program: str, bounds: Bounds, num_warm: int | None, num_parked: int | None) -> None:
    if num_warm is not None and not bounds.min_warm <= num_warm <= bounds.max_replicas:
        raise InvalidInputError(
            f"program {program!r}: {num_warm} warm replicas, expected {bounds.min_warm} to {bounds.max_replicas}, its bounds"
        )
    if (num_warm or 0) + (num_parked or 0) > bounds.max_replicas:
        raise InvalidInputError(
            f"program {program!r}: {num_warm or 0} warm and {num_parked or 0} parked replicas are more than the "
            f"{bounds.max_replicas} that it may have"
        )


def _check_by_hand(program: str, limit: int, num_warm: int | None, num_parked: int | None) -> None:
    """Refuses a mistyped number before it fills the machine with processes."""
    number = (num_warm or 0) + (num_parked or 0)
    if number > limit:
        raise InvalidInputError(
            f"program {program!r}: {num_warm or 0} warm and {num_parked or 0} parked replicas are {number}, expected at most "
            f"{limit}; to allow more, raise the setting scaling.max_replicas_by_hand (DYORC_SCALING__MAX_REPLICAS_BY_HAND), or "
            f"declare autoscaling_config={{'max_replicas': {number}}} for the program"
        )


class ApplyScale(Protocol):
    """Applies desired replicas: `Orchestrator.want`."""

    def __call__(
        self, program: str, num_warm: int, num_parked: int, lead_s: float, misplaced: Sequence[str], *, is_order: bool
    ) -> None: ...


class ScalingTarget:
    """An orchestrator's programs as the scaler sees them (`ScaledPrograms`): their state in the engine and in the fleet.

    Args:
        programs: The deployed programs by name, always up to date.
        status: How many replicas there are.
        load: Returns a program's load, as the engine knows it.
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

    def want(self, desired: DesiredReplicas, *, is_order: bool = False) -> None:
        """Makes the engine use as many replicas as the policy decided, and the fleet keep as many."""
        status = self._status.programs[desired.program]
        status.is_off = is_order and not desired.num_warm
        status.most_on = desired.most_on
        lead_s = 0.0 if status.lead is None else status.lead.next_s(status.counts())
        self._want(desired.program, desired.num_warm, desired.num_parked, lead_s, status.misplaced(), is_order=is_order)

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
            speed=None if load.line is None else Speed(*load.line, load.max_size),
            num_queued=load.num_queued,
            num_running=load.num_running,
            warm_on=status.on_devices(are_warm=True),
            parked_on=status.on_devices(are_warm=False),
            most_possible=status.max_replicas,
            group=program.group if program.shares_process else "",
        )


def _within(bounds: Bounds, most: int | None) -> Bounds:
    """Returns bounds limited to the possible number of replicas."""
    if most is None or bounds.max_replicas <= most:
        return bounds
    first = None if bounds.initial_warm is None else min(bounds.initial_warm, most)
    return replace(bounds, min_warm=min(bounds.min_warm, most), max_replicas=most, initial_warm=first)


def _cost(program: Program) -> Cost:
    options = program.options
    memory = int(options.ray_actor_options.get("memory", 0))
    return Cost(num_cpus=options.num_cpus, num_gpus=options.num_gpus, warm_bytes=memory, parked_bytes=memory)
