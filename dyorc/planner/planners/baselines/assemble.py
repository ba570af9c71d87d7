"""Turns choices along each axis of a mesh into a plan, on one mesh or on one mesh for each stage of a pipeline."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan, PlanBuilder, Provenance
from dyorc.planner.planners.baselines.follow import AxisPlan, Choices
from dyorc.planner.program import Node
from dyorc.planner.program.graph import Phase


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Which nodes and sources belong to which stage of a pipeline.

    Attributes:
        ranks: Of each stage.
        of_node: The stages that run each node: several if it is cheaper to compute than to send.
        of_source: The stages that hold each source when the step begins; the first one owns it.
        inside: For each stage, what happens along its own axes, inside the common ones; empty if no stage has any.
    """

    ranks: tuple[tuple[int, ...], ...]
    of_node: Mapping[str, tuple[int, ...]]
    of_source: Mapping[str, tuple[int, ...]]
    inside: tuple[tuple[AxisPlan, ...], ...] = ()


def one_stage(choices: Choices, num_ranks: int) -> Stages:
    """Everything on one mesh of all ranks."""
    program = choices.program
    nodes, sources = dict.fromkeys((n.name for n in program.nodes), (0,)), dict.fromkeys(program.sources, (0,))
    return Stages(ranks=(tuple(range(num_ranks)),), of_node=nodes, of_source=sources)


def build_plan(
    choices: Choices, axes: Sequence[AxisPlan], stages: Stages, order: Iterable[tuple[Node, int]], planner: str, cluster: Cluster
) -> Plan:
    """Builds the plan.

    Args:
        choices: The program. axes: What happens along each axis that the meshes of all stages have, outermost first. stages: Of
        the pipeline. order: Pairs of a node and a part, in the order in which they run. The optimizer's nodes come after
        everything else, and are not in it. planner: Its name. cluster: What the plan is for.
    """
    assembly = _Assembly(choices, axes, stages)
    for node, part in order:
        assembly.apply(node, part)
    assembly.finish()
    return assembly.builder.build(Provenance(planner=planner), cluster=cluster.digest)


class _Assembly:
    def __init__(self, choices: Choices, axes: Sequence[AxisPlan], stages: Stages) -> None:
        self._program = choices.program
        self._stages = stages
        self._axes = [(*axes, *inside) for inside in stages.inside or ((),) * len(stages.ranks)]
        self.builder = PlanBuilder(choices.program, choices.axes)
        for stage, (ranks, alongs) in enumerate(zip(stages.ranks, self._axes, strict=True)):
            ratios = {along.axis.name: along.ratios for along in alongs}
            self.builder.mesh(_mesh(stage), [along.axis for along in alongs], ranks, ratios)
        for name in choices.program.sources:
            for stage in stages.of_source[name]:
                self.builder.source(name, _mesh(stage), [along.sources[name] for along in self._axes[stage]])

    def apply(self, node: Node, part: int) -> None:
        for stage in self._stages.of_node[node.name]:
            self.builder.apply(node, _mesh(stage), [along.strategies[node.name] for along in self._axes[stage]], part)

    def finish(self) -> None:
        """Brings outputs and gradients where they belong, and then runs the optimizer."""
        program = self._program
        owners = {gradient: parameter for parameter, gradient in program.gradients.items()}
        for name in dict.fromkeys((*program.returned, *program.gradients.values())):
            self._result(name, owners.get(name))
        for node in program.nodes:
            if node.phase is Phase.UPDATE:
                for part in range(self._num_parts()):
                    self.apply(node, part)
        for before, after in program.updates.items():
            self._result(after, before)

    def _result(self, name: str, owner: str | None) -> None:
        producer = self._program.producers.get(name)
        stages = self._stages.of_source[owner or name] if owner or producer is None else self._stages.of_node[producer.name]
        self.builder.result(name, _mesh(stages[0]), [along.results[name] for along in self._axes[stages[0]]])

    def _num_parts(self) -> int:
        return max((along.axis.size for along in self._axes[0] if along.axis.is_time), default=1)


def _mesh(stage: int) -> str:
    return f"stage{stage}"


def in_order(choices: Choices, num_parts: int = 1) -> Iterable[tuple[Node, int]]:
    """The program's own order, each node for all parts of the work before the next."""
    for node in choices.program.nodes:
        if node.phase is not Phase.UPDATE:
            for part in range(num_parts):
                yield node, part
