"""What each tier finds of each faulty plan."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.papers.mutants import steps, tensors
from benchmarks.papers.mutants.places import Mutation
from dyorc.planner.plan import Plan
from dyorc.planner.program import TensorProgram
from dyorc.planner.verify.report import Tier
from dyorc.planner.verify.verify import verify


def _number(name: str) -> int:
    first = name.split()[0]
    return int(first) if first.isdecimal() else 1000


_ALL = {**steps.MUTATIONS, **tensors.MUTATIONS, **steps.KERNEL_MUTATIONS}
MUTATIONS: Mapping[str, Mutation] = {name: _ALL[name] for name in sorted(_ALL, key=_number)}
"""All faults by name, the published ones first and by their numbers."""
NUM_PUBLISHED = sum(_number(name) < 1000 for name in MUTATIONS)
"""How many of them are TrainVerify's (SOSP'25)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the tiers, each by itself, found of a mutant.

    Attributes:
        name: The mutation.
        kinds: For each tier, the kind of its first finding; empty if it found nothing.
        seconds: Of one core, for each tier.
    """

    name: str
    kinds: Mapping[Tier, str]
    seconds: Mapping[Tier, float]


def outcomes(program: TensorProgram, plans: Sequence[Plan], tiers: Sequence[Tier] = tuple(Tier)) -> Iterator[Outcome]:
    """Yields what each tier finds of each fault, in the first of several plans of one program that has a place for it."""
    for name, mutate in MUTATIONS.items():
        mutant = next((made for plan in plans if (made := mutate(program, plan))), None)
        if mutant is None:
            continue
        kinds: dict[Tier, str] = {}
        seconds: dict[Tier, float] = {}
        for tier in tiers:
            start = time.process_time()
            findings = verify(program, mutant, tiers=[tier]).findings
            seconds[tier] = time.process_time() - start
            kinds[tier] = findings[0].kind if findings else ""
        yield Outcome(name=name, kinds=kinds, seconds=seconds)
