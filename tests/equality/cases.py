"""The plans that are tried: every planner, some with options of their own, on every model and cluster.

Searches are kept short: what they find need not be good here, but right.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from typing import Any

import torch

from dyorc.planner.cluster import uneven_cluster
from dyorc.planner.plan import Plan
from dyorc.planner.planners import PLANNERS
from tests.unit.planner.examples import EXAMPLES, Example, example, example_of
from tests.unit.planner.tiny import Scale

TINY = "tiny"
"""The model that the exhaustive search can plan."""
MODELS = (TINY, *EXAMPLES)

_NO_SPEED = 1e-6
"""Of a rank that gets nothing of anything that is divided by speed."""
SHARES: Mapping[str, Sequence[float]] = {
    "2 even": (1, 1),
    "2 of 3:1": (3, 1),
    "2, one empty": (1, _NO_SPEED),
    "4 even": (1, 1, 1, 1),
    "4 of 3:1": (3, 1, 3, 1),
    "4, one empty": (3, 1, _NO_SPEED, 4),
}
"""The clusters, by the speeds of their ranks."""


@dataclass(frozen=True)
class Variant:
    """A planner with options.

    Attributes:
        planner: Its name in `PLANNERS`.
        options: Its own.
        num_ranks: The only number of ranks that the options are for, if there is one.
    """

    planner: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    num_ranks: int | None = None


_SHORT: Mapping[str, dict[str, Any]] = {
    "hap": {"max_states": 8, "max_rounds": 2},
    "hidup": {"max_states": 4},
    "duplex_hap": {"max_states": 4, "max_rounds": 1},
    "tag": {"max_groups": 10, "playouts": 20},
}
_VARIANTS: Mapping[str, Variant] = {
    "zero of 2 microbatches": Variant("zero", {"microbatches": 2}),
    "megatron 2x2": Variant("megatron", {"dp": 2}, 4),
    "megatron pipeline": Variant("megatron", {"pp": 2, "microbatches": 2}, 4),
}


def variants() -> dict[str, Variant]:
    """All planners, and what else they can do, by name."""
    return {name: Variant(name, _SHORT.get(name, {})) for name in PLANNERS} | dict(_VARIANTS)


@dataclass(frozen=True)
class Case:
    """One plan to try."""

    variant: str
    model: str
    shares: str

    def __str__(self) -> str:
        return f"{self.variant}, {self.model}, {self.shares}"

    @property
    def example(self) -> Example:
        """The program, and what one device makes of it."""
        return _tiny() if self.model == TINY else example(self.model)

    def plan(self) -> Plan:
        """Plans it.

        Raises:
            PlanError: There is no such plan.
        """
        variant, speeds = variants()[self.variant], SHARES[self.shares]
        cluster = uneven_cluster(speeds, flops_per_s=1e9, bytes_per_s=1e9, latency_s=1e-7)
        planner, options = PLANNERS[variant.planner], dict(variant.options)
        if "ratios" in signature(planner).parameters:
            options["ratios"] = tuple(0.0 if speed == _NO_SPEED else float(speed) for speed in speeds)
        return planner(self.example.program, cluster, **options)


def cases(names: Sequence[str], models: Sequence[str]) -> Iterator[Case]:
    """All cases of some variants and models, those of a model together."""
    for model in models:
        for name in names:
            variant = variants()[name]
            if variant.planner == "exhaustive" and model != TINY:
                continue
            for shares, speeds in SHARES.items():
                if variant.num_ranks in (None, len(speeds)):
                    yield Case(name, model, shares)


@cache
def _tiny() -> Example:
    torch.manual_seed(0)
    return example_of(Scale(), (torch.randn(8, dtype=torch.float64),))
