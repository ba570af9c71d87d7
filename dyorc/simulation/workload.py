"""A workload: a workflow, and what its programs cost on simulated replicas."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from jaxtyping import Float64

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.errors import InvalidInputError

Number: TypeAlias = Float64[np.ndarray, ""]
"""What travels between the programs of a workload."""
Numbers: TypeAlias = Float64[np.ndarray, "batch"]
"""The same for a batch."""
MAX_QUEUED_CALLS = 2**31
"""For every simulated program: a queue that is too long shall be seen, not refused."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A program with its cost and its replicas. A batch of n calls takes ``base_s + item_s * n`` seconds."""

    program: Program
    base_s: float
    item_s: float
    num_replicas: int = 1


@dataclass(frozen=True, eq=False)
class Workload:
    """What is simulated: requests of one workflow.

    Attributes:
        name: Its name on the command line.
        workflow: Takes one number (see `dyorc.simulation.draws`) and gives one, or yields some.
        deployments: Every program that it calls.
    """

    name: str
    workflow: Workflow
    deployments: tuple[Deployment, ...]

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        return tuple(deployment.program for deployment in self.deployments)

    def num_replicas(self, replicas: int | Mapping[str, int] | None) -> dict[str, int]:
        """Replicas by program: the workload's own numbers, or one number for all programs, or one for each.

        Raises:
            InvalidInputError: If a program gets none, or is unknown.
        """
        chosen = {deployment.program.name: deployment.num_replicas for deployment in self.deployments}
        if isinstance(replicas, int):
            chosen = dict.fromkeys(chosen, replicas)
        elif replicas is not None:
            if unknown := sorted(set(replicas) - set(chosen)):
                raise InvalidInputError(f"workload {self.name!r} has no programs {unknown}; it has {sorted(chosen)}")
            chosen.update(replicas)
        for name, number in chosen.items():
            if number < 1:
                raise InvalidInputError(f"program {name!r} gets {number} replicas, expected at least 1")
        return chosen
