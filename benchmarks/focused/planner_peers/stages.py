"""Makes a plan of what Sailor has chosen: stages of layers, and for each the kinds of devices and the degrees of parallelism."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan
from dyorc.planner.planners.baselines.assemble import build_plan, in_order
from dyorc.planner.planners.baselines.data_parallel import parts_along
from dyorc.planner.planners.baselines.follow import batch_of, choices_of, follow
from dyorc.planner.planners.baselines.megatron import columns_and_rows
from dyorc.planner.planners.baselines.pipeline import one_forward_one_backward, stages_with
from dyorc.planner.program import TensorProgram


@dataclass(frozen=True, slots=True)
class PeerStage:
    """One stage of a pipeline.

    Attributes:
        layers: As `sailor_files.layer_of_parameters` counts them.
        replicas: For each data-parallel replica, the kind of its devices and how many there are.
    """

    layers: tuple[int, ...]
    replicas: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class PeerPipeline:
    """A whole pipeline.

    Attributes:
        stages: In order.
        samples: In a microbatch of one replica.
        step_s: What the other planner expects of a step.
    """

    stages: tuple[PeerStage, ...]
    samples: int
    step_s: float

    def __str__(self) -> str:
        stages = [
            f"layers {stage.layers[0]}-{stage.layers[-1]}: " + ", ".join(f"{count} {kind}" for kind, count in stage.replicas)
            for stage in self.stages
        ]
        return f"{'; '.join(stages)}; {self.samples} samples in a microbatch"


def read_pipelines(answer: Mapping[str, Any]) -> tuple[PeerPipeline, ...]:
    """Reads what `ask_sailor` wrote: plans, the best first."""
    return tuple(
        PeerPipeline(
            tuple(
                PeerStage(tuple(layers), tuple((each["kind"], each["tensor_parallel"]) for each in replicas))
                for layers, replicas in zip(entry["layers"], entry["replicas"], strict=True)
            ),
            entry["samples"],
            entry["step_s"],
        )
        for entry in answer["plans"]
    )


def plan_of_pipeline(
    program: TensorProgram,
    cluster: Cluster,
    pipeline: PeerPipeline,
    layer_of: Mapping[str, int],
    kinds: Mapping[str, Sequence[int]],
    planner: str,
) -> Plan:
    """Returns the plan. A rank that the other planner leaves out has nothing to do.

    Args:
        program: The model.
        cluster: Where it runs.
        found: What the other planner has chosen.
        layer_of: The layer of each parameter.
        kinds: The ranks of each kind of device.
        planner: Its name.

    Raises:
        PlanError: Replicas of a stage differ in their tensor-parallel degrees, which no mesh does, or the batch cannot be cut.
    """
    choices, dp = choices_of(program), len(pipeline.stages[0].replicas)
    batch = program.values[program.inputs[0]].shape[0]
    num_parts = -(-batch // (pipeline.samples * dp))
    axes = parts_along(choices, num_parts)
    axes += [follow(choices, MeshAxis(name="data", size=dp), batch_of(choices))] if dp > 1 else []
    shards = columns_and_rows(choices)
    inside = tuple(
        (follow(choices, MeshAxis(name="tensor", size=_degree(stage)), shards, pinned=shards.keys()),)
        for stage in pipeline.stages
    )
    stage_of = {layer: index for index, stage in enumerate(pipeline.stages) for layer in stage.layers}
    stages = stages_with(choices, {name: stage_of[layer] for name, layer in layer_of.items()}, _ranks(pipeline, kinds))
    stages = replace(stages, inside=inside)
    order = in_order(choices) if num_parts == 1 else one_forward_one_backward(choices, axes[0], stages)
    return build_plan(choices, axes, stages, order, planner, cluster)


def _degree(stage: PeerStage) -> int:
    degrees = {degree for _, degree in stage.replicas}
    if len(degrees) > 1:
        raise PlanError(f"replicas of one stage are tensor-parallel over {' and '.join(map(str, sorted(degrees)))} devices")
    return degrees.pop()


def _ranks(pipeline: PeerPipeline, kinds: Mapping[str, Sequence[int]]) -> list[tuple[int, ...]]:
    """Deals out ranks of each kind in order."""
    left = {kind: list(ranks) for kind, ranks in kinds.items()}
    stages: list[tuple[int, ...]] = []
    for stage in pipeline.stages:
        ranks: list[int] = []
        for kind, count in stage.replicas:
            ranks += left[kind][:count]
            del left[kind][:count]
        stages.append(tuple(ranks))
    return stages
