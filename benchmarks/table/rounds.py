"""Measures systems in turns of a few seconds: each once in a round, in another order each time, until the rounds agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import median
from typing import TypeAlias

from benchmarks.table.goals import SATURATED_RATIO
from loadgen.results import RunResult

Measure: TypeAlias = Callable[[str, int], RunResult | None]
"""Measures a system in a round. None if it could not be measured; then it is left out from then on."""
Runs: TypeAlias = Mapping[str, Mapping[int, RunResult]]
"""By system and round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How many rounds there are.

    Attributes:
        max_rounds: As many if rounds do not agree.
        max_spread: Rounds agree if half of the ratios of p50 to DyOrc's are so near each other: the largest of them divided by
            the smallest, minus 1.
    """

    min_rounds: int
    max_rounds: int
    max_spread: float = 0.1


def interleaved(systems: Sequence[str], ours: Sequence[str], rule: Rule, measure: Measure) -> Runs:
    """Returns the runs of all systems.

    After the least number of rounds, only peers whose ratios do not agree are measured again, and DyOrc beside them. A system
    that cannot keep up with the load is measured once: its figures mean nothing, and what it has queued would only grow.

    Args:
        ours: Those of the systems with which the others are compared.
    """
    runs: dict[str, dict[int, RunResult]] = {system: {} for system in systems}
    left = list(systems)
    for number in range(rule.max_rounds):
        for system in rotated(left, number):
            result = measure(system, number)
            if result is None:
                left.remove(system)
                continue
            runs[system][number] = result
            if result.goodput_ratio < SATURATED_RATIO:
                left.remove(system)
        if number + 1 >= rule.min_rounds:
            doubtful = [system for system in left if system not in ours and not _agree(runs, system, ours, rule.max_spread)]
            left = [system for system in left if system in doubtful or (doubtful and system in ours)]
        if not left:
            break
    return runs


def rotated(systems: Sequence[str], number: int) -> Sequence[str]:
    """Returns the order of systems in a round: in each, another one is the first."""
    start = number % len(systems) if systems else 0
    return [*systems[start:], *systems[:start]]


def _agree(runs: Runs, system: str, ours: Sequence[str], max_spread: float) -> bool:
    """Whether half of a system's ratios to DyOrc's figures are near their median."""
    for mine in ours:
        both = [number for number in runs[system] if number in runs[mine]]
        ratios = sorted(log(runs[system][number].latency_ms.p50 / runs[mine][number].latency_ms.p50) for number in both)
        if ratios and median([abs(ratio - median(ratios)) for ratio in ratios]) > log(1 + max_spread) / 2:
            return False
    return True
