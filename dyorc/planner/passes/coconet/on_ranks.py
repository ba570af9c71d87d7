"""Measures plans on real ranks of this machine."""

from collections.abc import Callable, Mapping
from statistics import median

import torch

from dyorc.planner.plan import Plan
from dyorc.planner.program import TensorProgram, ValueKind
from dyorc.planner.runtime import RankOptions, Ranks


def seconds_on_ranks(program: TensorProgram, sources: Mapping[str, torch.Tensor], num_times: int = 5) -> Callable[[Plan], float]:
    """Returns a function that runs a plan's step several times, and returns the median seconds of the slowest rank.

    Args:
        program: What plans distribute.
        sources: A tensor for each of its sources.
        num_times: How often, after a step that does not count.
    """
    inputs = {name: sources[name] for name in program.inputs if program.values[name].kind is ValueKind.INPUT}

    def measure(plan: Plan) -> float:
        with Ranks(RankOptions(num_ranks=plan.num_ranks)) as ranks:
            ranks.load(plan, sources)
            seconds: list[float] = []
            for _ in range(num_times + 1):
                ranks.begin_step(inputs, [])
                seconds.append(max(ranks.end_step().seconds))
        return median(seconds[1:])

    return measure
