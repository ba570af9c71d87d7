"""The oracle: it knows the trace, and has each replica warm when it is needed and no longer.

Its plan is made from the calls that programs get when every replica is warm: a program needs as many replicas as its work of the
next moments takes in full batches. The plan is then replayed, and wherever a request misses its limit because of it, the program
that it waited for longest gets one more replica, until none does. So the plan has no misses caused by cold starts, and is an
upper bound of the least that a policy could cost; the time of all calls in full batches is a lower one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dyorc.scaling.model import DesiredReplicas, ProgramLoad
from dyorc.simulation.scaling.replay import Replay, Scene, replay
from dyorc.simulation.scaling.scaling_loop import Limits, SimulatedScaler
from dyorc.simulation.scaling.scaling_results import Standard, missed_requests

INTERVAL_S = 0.25
_AHEAD_S = 2.0
"""A program's work of this long is done in as long: requests may wait a little, and batches fill."""
_TAIL_S = 1.0
_MAX_ROUNDS = 12

Need = NDArray[np.int64]
"""Replicas that a program needs, for each cell of `INTERVAL_S`."""


class OraclePolicy:
    """Follows the plan."""

    def __init__(self, plan: Mapping[str, Need]) -> None:
        self._plan = plan

    def decide(self, loads: Sequence[ProgramLoad], now_ns: int) -> Sequence[DesiredReplicas]:
        """Returns the desired replicas of each program."""
        cell = round(now_ns / 1e9 / INTERVAL_S)
        return [DesiredReplicas(load.program, self._now(load.program, cell), 0, "foreknown") for load in loads]

    def _now(self, program: str, cell: int) -> int:
        plan = self._plan[program]
        return int(plan[min(cell, len(plan) - 1)])


@dataclass(frozen=True)
class OracleReplay:
    """The oracle's replay.

    Attributes:
        least_s: Replica-seconds that no policy can do without: all measured calls in full batches.
    """

    outcome: Replay
    least_s: float


def replay_oracle(scene: Scene, warm: Replay, standard: Standard) -> OracleReplay:
    """Finds the plan and replays it."""
    num_cells = math.ceil(scene.span_ns / 1e9 / INTERVAL_S) + 240
    needs = {d.program.name: _need(warm.calls.at_ns[d.program.name], d.full_batch_item_s, num_cells) for d in warm.deployments}
    least_s = sum(
        d.full_batch_item_s * sum(at_ns >= scene.from_ns for at_ns in warm.calls.at_ns[d.program.name]) for d in warm.deployments
    )
    alone_ns = {d.program.name: d.batch_ns(1) for d in warm.deployments}
    outcome = None
    for _ in range(_MAX_ROUNDS):
        plan = {program: _planned(need, scene.limits) for program, need in needs.items()}
        outcome = replay(scene, SimulatedScaler(policy=OraclePolicy(plan), interval_s=INTERVAL_S))
        late = missed_requests(scene, outcome, standard.slo_ns) & standard.met
        if not late:
            break
        _add(needs, outcome, late, alone_ns, scene.limits)
    assert outcome is not None
    return OracleReplay(outcome, least_s)


def _need(calls_ns: Sequence[int], item_s: float, num_cells: int) -> Need:
    """Returns how many replicas a program needs for its work, and at least one from each call until it is done."""
    counts = np.bincount((np.asarray(calls_ns, np.int64) / 1e9 / INTERVAL_S).astype(np.int64), minlength=num_cells)[:num_cells]
    window = round(_AHEAD_S / INTERVAL_S)
    ahead = np.convolve(counts, np.ones(window))[window - 1 :][:num_cells]
    behind = np.convolve(counts, np.ones(window + round(_TAIL_S / INTERVAL_S)))[:num_cells]
    work = np.maximum(ahead, behind[:num_cells] * _AHEAD_S / (_AHEAD_S + _TAIL_S)) * item_s / _AHEAD_S
    return np.maximum(np.ceil(work - 1e-9), behind > 0).astype(np.int64)


def _planned(need: Need, limits: Limits) -> Need:
    """Returns how many replicas to have in each cell: each starts ahead of its need, and stays over gaps shorter than a start."""
    lead = math.ceil(limits.times.cold_to_warm_s / INTERVAL_S) + 1
    plan = np.full(len(need), limits.bounds.min_warm, np.int64)
    for level in range(1, limits.bounds.max_replicas + 1):
        needed = np.flatnonzero(need >= level)
        if not len(needed):
            break
        starts = np.flatnonzero(np.diff(needed, prepend=-(10**9)) > 2 * lead)
        ends = np.append(starts[1:], len(needed)) - 1
        for first, last in zip(needed[starts].tolist(), needed[ends].tolist(), strict=True):
            plan[max(0, first - lead) : last + 1] = np.maximum(plan[max(0, first - lead) : last + 1], level)
    return plan


def _add(needs: dict[str, Need], outcome: Replay, late: set[int], alone_ns: Mapping[str, int], limits: Limits) -> None:
    """Adds a replica to the program that each late request waited for longest, for as long as it did and a moment before."""
    raised = {program: np.zeros(len(need), bool) for program, need in needs.items()}
    for request_id in late:
        spans = outcome.calls.spans_ns(request_id)
        program, start_ns, end_ns = max(spans, key=lambda span: span[2] - span[1] - alone_ns[span[0]])
        cells = slice(max(0, int(start_ns / 1e9 / INTERVAL_S) - round(_AHEAD_S / INTERVAL_S)), int(end_ns / 1e9 / INTERVAL_S) + 1)
        raised[program][cells] = True
    for program, is_raised in raised.items():
        needs[program] = np.minimum(needs[program] + is_raised, limits.bounds.max_replicas)
