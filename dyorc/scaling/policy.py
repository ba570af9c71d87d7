"""Decides how many replicas each program has: before they are needed, and not for longer.

The shell asks at intervals, and at once when `Traffic` says that it is urgent. Each decision goes through the same steps: what
is needed (`ReplicaNeeds`), what others allow (an override, the program's bounds, its delays, the budget), and why.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dyorc.config import ScalingConfig
from dyorc.scaling.device_budget import DeviceBudget, DeviceClaim, Grant
from dyorc.scaling.model import DesiredReplicas, ProgramLoad
from dyorc.scaling.need import Need, ReplicaNeeds, useful_pace
from dyorc.scaling.shared_processes import joint_load, joint_need, loads_by_group
from dyorc.scaling.stabilization import Stabilizer
from dyorc.scaling.traffic import Traffic

_MIN_SAVED_S = 0.01


@dataclass(frozen=True, slots=True)
class Override:
    """Numbers that a person has set; None leaves a number to the policy."""

    num_warm: int | None
    num_parked: int | None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a program is to have, before the budget."""

    wanted: int
    num_warm: int
    num_parked: int
    reason: str


class PredictivePolicy:
    """Warms replicas for the calls that `Traffic` foresees. The `Policy` of the server and of the simulator."""

    def __init__(self, config: ScalingConfig, traffic: Traffic) -> None:
        self._config = config
        self._traffic = traffic
        self._needs = ReplicaNeeds(config, traffic)
        self._budget = DeviceBudget(config.budget, config.swap_margin)
        self._stabilizers: dict[str, Stabilizer] = {}
        self._overrides: dict[str, Override] = {}
        self._last_desired: dict[str, DesiredReplicas] = {}
        self._now_ns = 0

    def override(self, program: str, num_warm: int | None, num_parked: int | None) -> None:
        """Sets a program's numbers by hand, within its bounds and the budget; None twice leaves them to the policy again."""
        if num_warm is None and num_parked is None:
            self._overrides.pop(program, None)
        else:
            self._overrides[program] = Override(num_warm, num_parked)

    def forget(self, program: str) -> None:
        """Forgets a program that is no longer served."""
        for known in (self._overrides, self._stabilizers, self._last_desired):
            known.pop(program, None)

    @property
    def overrides(self) -> dict[str, Override]:
        """The numbers set by hand, by program."""
        return dict(self._overrides)

    def decide(self, loads: Sequence[ProgramLoad], now_ns: int) -> list[DesiredReplicas]:
        """Returns the desired replicas of every program whose number should change; the first time, of all programs."""
        self._now_ns = now_ns = max(now_ns, self._now_ns)
        self._traffic.advance(now_ns)
        groups = loads_by_group(loads)
        joint = [joint_load(group) for group in groups]
        plans = [self._plan(load, group, now_ns) for load, group in zip(joint, groups, strict=True)]
        is_limited = self._budget.limits(joint)
        values = [self._value(group, now_ns) if is_limited else _nothing for group in groups]
        claims = [
            DeviceClaim(load, plan.num_warm, plan.num_parked, value)
            for load, plan, value in zip(joint, plans, values, strict=True)
        ]
        grants = self._budget.share(claims)
        granted = list(zip(joint, groups, plans, grants, strict=True))
        all_desired = [desired for each in granted for desired in self._desired(*each)]
        self._traffic.watch(
            {
                member.program: load.lead.next_s(load.counts) + self._config.interval_s
                for load, group, plan, grant in granted
                if self._can_become_urgent(load, group, plan, grant)
                for member in group
            }
        )
        changed = [desired for desired in all_desired if not self._is_unchanged(desired)]
        self._last_desired.update((desired.program, desired) for desired in changed)
        return changed

    def _plan(self, load: ProgramLoad, group: Sequence[ProgramLoad], now_ns: int) -> _Plan:
        """Returns what the programs that share processes are to have.

        Args:
            load: All of them as one.
        """
        steadying = self._stabilizers.get(load.program)
        if steadying is None:
            steadying = self._stabilizers[load.program] = Stabilizer(load.bounds, load.counts.num_processes, now_ns)
        members = [replace(member, counts=load.counts, lead=load.lead) for member in group]
        need = joint_need([self._needs.warm(member, now_ns) for member in members])
        wanted = math.ceil(need.replicas)
        spare = max(math.ceil(need.keep), wanted)
        num_warm, kept = steadying.stabilize(wanted, spare, load.bounds, now_ns)
        limited = steadying.limit_growth(num_warm, self._config.max_step, self._config.interval_s, now_ns)
        ahead = joint_need([self._needs.processes(member, now_ns) for member in members])
        processes = max(num_warm, math.ceil(ahead.replicas))
        num_parked = steadying.keep_processes(processes, load.bounds, now_ns) - limited
        plan = _Plan(wanted, limited, max(num_parked, 0), _explain(need, wanted, num_warm, limited, kept))
        return self._apply_override(load, self._override_of(group), plan)

    def _override_of(self, group: Sequence[ProgramLoad]) -> Override | None:
        return next((self._overrides[load.program] for load in group if load.program in self._overrides), None)

    @staticmethod
    def _apply_override(load: ProgramLoad, override: Override | None, plan: _Plan) -> _Plan:
        if override is None:
            return plan
        num_warm = plan.num_warm if override.num_warm is None else load.bounds.clamp(override.num_warm)
        num_parked = plan.num_parked if override.num_parked is None else max(override.num_parked, 0)
        return _Plan(plan.wanted, num_warm, min(num_parked, load.bounds.max_replicas - num_warm), "ordered by hand")

    def _value(self, group: Sequence[ProgramLoad], now_ns: int) -> Callable[[int], float]:
        """Returns what the n-th warm process of programs is worth that share it."""
        if self._override_of(group) is not None:
            return lambda number: math.inf
        values = [self._value_of(load, now_ns) for load in group]
        return values[0] if len(values) == 1 else lambda number: sum(value(number) for value in values)

    def _value_of(self, load: ProgramLoad, now_ns: int) -> Callable[[int], float]:
        """Returns what the n-th warm replica of a program is worth: the calls that it serves, times the start-up time that each
        saves.
        """
        horizon_s = self._config.value_horizon_s
        calls = max(load.num_queued + load.num_running, 0) + self._traffic.ahead(load.program, 0.0, horizon_s, now_ns).mean
        pace = useful_pace(load.speed, load.bounds.target_calls, self._config)
        capacity = math.inf if pace is None else pace.rate * horizon_s
        saved_s = max(load.lead.from_parked_s, _MIN_SAVED_S)

        def value(number: int) -> float:
            before = (number - 1) * capacity if number > 1 else 0.0
            return min(max(calls - before, 0.0), capacity) * saved_s

        return value

    def _desired(self, load: ProgramLoad, group: Sequence[ProgramLoad], plan: _Plan, grant: Grant) -> list[DesiredReplicas]:
        steadying = self._stabilizers[load.program]
        steadying.num_warm = grant.num_warm
        steadying.num_processes = grant.num_warm + grant.num_parked
        reason = f"{plan.reason}; {grant.reason}" if grant.reason else plan.reason
        numbers = grant.num_warm, grant.num_parked, reason, grant.most_on
        return [DesiredReplicas(member.program, *numbers) for member in group]

    def _is_unchanged(self, desired: DesiredReplicas) -> bool:
        before = self._last_desired.get(desired.program)
        return before is not None and replace(desired, reason=before.reason) == before

    def _can_become_urgent(self, load: ProgramLoad, group: Sequence[ProgramLoad], plan: _Plan, grant: Grant) -> bool:
        """Returns whether a request could give a program without warm replicas one: not if one is wanted already, and an order,
        a delay or the budget prevents it.
        """
        override = self._override_of(group)
        is_free = override is None or override.num_warm is None
        return grant.num_warm == 0 and not plan.wanted and not grant.reason and is_free and load.bounds.max_replicas > 0


def _nothing(number: int) -> float:
    return 0.0


def _explain(need: Need, wanted: int, num_warm: int, limited: int, kept: str) -> str:
    """Returns the reason for a number, in words."""
    reason = f"{need.reason}: {wanted} wanted"
    if kept:
        reason += f"; {kept}"
    elif num_warm != wanted:
        reason += f"; {num_warm} within its bounds and steps"
    if limited != num_warm:
        reason += f"; {limited} for now, to grow in steps"
    return reason
