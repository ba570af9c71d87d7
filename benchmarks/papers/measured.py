"""Programs and simulated times for the tables: captured once for each size, without weights."""

import time
from collections.abc import Callable, Sequence
from functools import cache
from statistics import median

import torch
from torch import nn

from dyorc.planner.cluster import Cluster
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram, capture
from dyorc.planner.simulate import simulate

Model = tuple[nn.Module, tuple[torch.Tensor, ...]]
Builder = Callable[..., Model]


@cache
def program_of(build: Builder, **sizes: int) -> TensorProgram:
    """Captures one of the papers' models, which have no weights."""
    return capture(*build(**sizes))


def simulated(program: TensorProgram, cluster: Cluster, planner: str, *, overlap: bool) -> float:
    """Returns the seconds of one step of a planner's plan.

    Args:
        program: What is planned.
        cluster: Where.
        planner: Its name.
        overlap: Whether communication runs during computation.
    """
    return simulate(PLANNERS[planner](program, cluster), program, cluster, overlap=overlap).total_s


def seconds_in_turns(runs: Sequence[Callable[[], object]], num_rounds: int, num_warm_ups: int = 0) -> list[float]:
    """Returns each function's median of seconds.

    Args:
        runs: Called one after another, in each round.
        num_rounds: How often.
        num_warm_ups: Rounds before these, which do not count.
    """
    times: list[list[float]] = [[] for _ in runs]
    for number in range(num_warm_ups + num_rounds):
        for run, seconds in zip(runs, times, strict=True):
            begun_s = time.perf_counter()
            run()
            if number >= num_warm_ups:
                seconds.append(time.perf_counter() - begun_s)
    return [median(seconds) for seconds in times]
