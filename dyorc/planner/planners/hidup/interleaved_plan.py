"""Turns a program that the search found into a plan whose steps interleave the two microbatches.

    stage i:   communicate for microbatch 1 | compute stage i - 1 of microbatch 2        (slot 1)
               communicate for microbatch 2 | compute stage i of microbatch 1            (slot 2)

Collectives run during computation, so each slot lists its communication first. What needs both microbatches (sums of gradients,
counts over the batch) comes between the slots, when both have computed stage i - 1. The optimizer
runs last, on the pieces of the parameters, gradients and states, wherever they are.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan, PlanBuilder, Provenance
from dyorc.planner.planners.hidup.halves import TIME, Halves
from dyorc.planner.planners.hidup.items import NodeItem, ReductionItem
from dyorc.planner.planners.hidup.microbatch_costs import Conversion, TimedTensor
from dyorc.planner.planners.hidup.pareto_search import DuplexProgram, ItemRecord
from dyorc.planner.program import REPLICATE, Node, Partial, Placement, Strategy, TensorProgram, ValueKind
from dyorc.planner.program.graph import Phase

_MESH, _SPACE = "ranks", "rank"
Stages = Sequence[Sequence[ItemRecord]]


def stages_of(program: DuplexProgram) -> list[list[ItemRecord]]:
    """Cuts a program's records where stages begin."""
    stages: list[list[ItemRecord]] = [[]]
    for record in program.records:
        if record.opens:
            stages.append([])
        stages[-1].append(record)
    return stages


def build_plan(
    program: TensorProgram,
    halves: Halves,
    duplex: DuplexProgram,
    cluster: Cluster,
    ratios: Sequence[float],
    provenance: Provenance,
    *,
    is_interleaved: bool = True,
) -> Plan:
    """Builds the plan.

    Args:
        program: The program.
        halves: What is cut in two.
        duplex: What the search found.
        cluster: What the plan is for.
        ratios: The share of each rank.
        provenance: Where the plan comes from.
        is_interleaved: False lists one microbatch's steps of a stage after the other's, for comparison.
    """
    emission = _Emission(program, halves, duplex, ratios)
    emission.body(is_interleaved)
    emission.finish()
    return emission.builder.build(provenance, cluster=cluster.digest)


class _Emission:
    def __init__(self, program: TensorProgram, halves: Halves, duplex: DuplexProgram, ratios: Sequence[float]) -> None:
        self._program = program
        self._halves = halves
        self._stages = stages_of(duplex)
        self._held = {t.value: p for record in reversed(duplex.records) for t, p in reversed(record.begins)}
        self.builder = PlanBuilder(program, halves.axes)
        self.builder.mesh(_MESH, [TIME, MeshAxis(name=_SPACE, size=len(ratios))], range(len(ratios)), {_SPACE: ratios})
        for tensor, placement in dict.fromkeys(beginning for record in duplex.records for beginning in record.begins):
            self.builder.source(tensor.value, _MESH, [tensor.along_time, placement])
        self._held |= states_like_parameters(program, self._held)
        placed = {tensor.value for record in duplex.records for tensor, _ in record.begins}
        for name in program.sources:
            if name not in placed:  # only the optimizer reads it
                self.builder.source(name, _MESH, [halves.placed[name], self._held.get(name, REPLICATE)])

    def body(self, is_interleaved: bool) -> None:
        before: Sequence[ItemRecord] = ()
        for stage in (*self._stages, ()):
            if is_interleaved:
                self._communicate(stage, 0)
                self._compute(before, 1)
                self._settle(before)
                self._communicate(stage, 1)
                self._compute(stage, 0)
            else:
                self._compute(before, 1)
                self._settle(before)
                self._communicate(stage, 0)
                self._compute(stage, 0)
                self._communicate(stage, 1)
            before = stage

    def finish(self) -> None:
        """Places the results, and runs the optimizer on them."""
        program = self._program
        owner_of = {result: owner for owner, result in [*program.gradients.items(), *program.updates.items()]}
        for name in dict.fromkeys((program.loss, *program.gradients.values())):
            self._result(name, owner_of.get(name))
        lies = self._held | {result: self._held.get(owner, REPLICATE) for result, owner in owner_of.items()}
        for name, strategy in update_strategies(program, self._halves, lies).items():
            for part in range(TIME.size):
                self.builder.apply(program.node_named[name], _MESH, [self._halves.along_time[name], strategy], part)
        for before, after in program.updates.items():
            self._result(after, before)

    def _communicate(self, stage: Sequence[ItemRecord], part: int) -> None:
        for record in stage:
            if not isinstance(record.item, ReductionItem):
                for conversion in record.conversions:
                    for each in self._parts_in_slot(conversion.tensor, part):
                        self._convert(conversion, each)

    def _parts_in_slot(self, tensor: TimedTensor, part: int) -> Sequence[int]:
        """What is put together from both microbatches is there in the second slot alone: then once, or for each of them."""
        if self._halves.placed[tensor.value] in (REPLICATE, tensor.along_time):
            return (part,)
        if part == 0:
            return ()
        return (part,) if tensor.is_once else range(TIME.size)

    def _settle(self, stage: Sequence[ItemRecord]) -> None:
        for record in stage:
            if isinstance(record.item, ReductionItem):
                for conversion in record.conversions:
                    self._convert(conversion, None)

    def _convert(self, conversion: Conversion, part: int | None) -> None:
        tensor = conversion.tensor
        source = self.builder.want(tensor.value, _MESH, [tensor.along_time, conversion.before], part)
        self.builder.collective(source, _SPACE, conversion.after, part, conversion.algorithm)

    def _compute(self, stage: Sequence[ItemRecord], part: int) -> None:
        for record in stage:
            if isinstance(record.item, NodeItem) and record.strategy:
                node = record.item.node
                self.builder.apply(node, _MESH, [self._halves.along_time[node.name], record.strategy], part)

    def _result(self, name: str, owner: str | None) -> None:
        if owner is not None:
            self.builder.result(name, _MESH, [REPLICATE, self._held.get(owner, REPLICATE)])
            return
        self.builder.result(name, _MESH, self._as_made(name))

    def _as_made(self, name: str) -> list[Placement]:
        """How a result that belongs to nothing lies: the loss, as a sum of terms if it is made so."""
        for stage in self._stages:
            for record in stage:
                if isinstance(record.item, NodeItem) and record.strategy and name in record.item.node.outputs:
                    index = record.item.node.outputs.index(name)
                    return [REPLICATE, record.strategy.outputs[index]]
        return [REPLICATE, REPLICATE]


def states_like_parameters(program: TensorProgram, held: Mapping[str, Placement]) -> dict[str, Placement]:
    """Places each state of the optimizer like the parameter that it is updated with: one of the same shape."""
    belongs = {gradient: parameter for parameter, gradient in program.gradients.items()}
    placements: dict[str, Placement] = {}
    for node in program.nodes:
        if node.phase is not Phase.UPDATE:
            continue
        parameter = next((belongs[name] for name in node.inputs if name in belongs), None)
        if parameter is None:
            continue
        shape = program.values[parameter].shape
        for name in (*node.inputs, *node.outputs):
            if name and program.values[name].shape == shape:
                belongs.setdefault(name, parameter)
                if program.values[name].kind is ValueKind.STATE:
                    placements[name] = held.get(parameter, REPLICATE)
    return placements


def update_strategies(program: TensorProgram, halves: Halves, held: Mapping[str, Placement]) -> dict[str, Strategy]:
    """Chooses a strategy for each of the optimizer's nodes, so that as little as possible is moved.

    Args:
        program: The program.
        halves: Its strategies.
        held: How each source and each gradient lies.
    """
    placed, chosen = dict(held), dict[str, Strategy]()
    for node in program.nodes:
        if node.phase is Phase.UPDATE:
            possible = [s for s in halves.strategies[node.name] if not any(isinstance(p, Partial) for p in s.inputs)]
            chosen[node.name] = min(possible, key=partial(_moved, node, placed))
            placed |= {name: p for name, p in zip(node.outputs, chosen[node.name].outputs, strict=True) if name}
    return chosen


def _moved(node: Node, placed: Mapping[str, Placement], strategy: Strategy) -> tuple[int, int]:
    """How many inputs have to be moved; then how many are cut."""
    pairs = [(placed.get(name, REPLICATE), wanted) for name, wanted in zip(node.inputs, strategy.inputs, strict=True)]
    return sum(before not in (wanted, REPLICATE) for before, wanted in pairs), sum(before != wanted for before, wanted in pairs)
