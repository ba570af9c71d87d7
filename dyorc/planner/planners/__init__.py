"""All planners, by name. Each is imported when it is first used.

A planner is a function `plan(program, cluster, **options) -> Plan`. Any plan it returns computes what the program computes;
planners differ in how long a step takes.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Protocol

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan
from dyorc.planner.program import TensorProgram
from dyorc.system import extras

extras.require("planner", "dyorc.planner.planners")

Progress = Callable[[float, float | None], None]
"""Planners that search call it with the part of the search that is done, and the seconds of the best plan so far, if any."""


class Planner(Protocol):
    """How every planner can be called; its own options have defaults."""

    def __call__(self, program: TensorProgram, cluster: Cluster, **options: Any) -> Plan:
        """Plans a program on a cluster."""
        ...


class _Table(Mapping[str, Planner]):
    """Imports a planner's module when the planner is looked up."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Planner:
        module, function = self._places[name].split(":")
        return getattr(import_module(f"{__name__}.{module}"), function)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


PLANNERS: Mapping[str, Planner] = _Table(
    {
        "dp_even": "baselines.data_parallel:dp_even",
        "dp_proportional": "baselines.data_parallel:dp_proportional",
        "zero": "baselines.data_parallel:zero",
        "megatron": "baselines.megatron:megatron",
        "pipeline": "baselines.megatron:pipeline",
        "expert_parallel": "baselines.data_parallel:expert_parallel",
        "coshard": "superscaler.coshard:coshard",
        "interlaced": "superscaler.pipelines:interlaced",
        "3f1b": "superscaler.pipelines:three_forward_one_backward",
        "hap": "hap.hap:hap",
        "hidup": "hidup.plan:hidup",
        "duplex_hap": "duplex_hap:duplex_hap",
        "exhaustive": "exhaustive:exhaustive",
        "tag": "tag.plan:tag",
        "tessel": "tessel.plan:tessel",
        "joint": "joint.plan:joint",
        "parameter_server": "baselines.parameter_server:parameter_server",
    }
)
"""Where each planner is: the module below this package, and the function in it."""

FOR_INFERENCE = ("megatron", "pipeline")
"""The planners for inference: they divide weights that do not fit one device."""
