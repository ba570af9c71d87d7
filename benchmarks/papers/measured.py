"""Programs and simulated times for the tables: captured once for each size, without weights."""

from collections.abc import Callable
from functools import cache

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
        overlap: Whether communication runs beside computation.
    """
    return simulate(PLANNERS[planner](program, cluster), program, cluster, overlap=overlap).total_s
