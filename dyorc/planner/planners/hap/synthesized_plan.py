"""Turns chosen alternatives into a plan: forms are changed where they are first needed, each by the algorithm that is faster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan, PlanBuilder, Provenance
from dyorc.planner.planners.forms import TERM, WHOLE, form_of, placement_of
from dyorc.planner.planners.hap.problem import Pricing, SynthesisProblem, SynthesisSpace, token
from dyorc.planner.program import Strategy
from dyorc.planner.program.graph import Phase

_MESH, _AXIS = "ranks", "rank"


@dataclass(frozen=True, kw_only=True)
class DistributedProgram:
    """A distributed program without ratios: what HAP calls Q.

    Attributes:
        strategies: Of each node.
        made: The form in which each value is made, or kept.
        requested: The forms in which readers want it.
    """

    strategies: Mapping[str, Strategy]
    made: Mapping[str, int]
    requested: Mapping[str, int]


def distributed_program(space: SynthesisSpace, problem: SynthesisProblem, numbers: Sequence[int]) -> DistributedProgram:
    """Reads off a solution what each node does and which forms of each value there are."""
    chosen = {choice.name: (choice.alternatives[number], number) for choice, number in zip(problem.choices, numbers, strict=True)}
    made: dict[str, int] = {}
    requested: dict[str, int] = {}
    for alternative, _ in chosen.values():
        made |= alternative.outputs
        for name, form in alternative.inputs:
            requested[name] = requested.get(name, 0) | 1 << form
    strategies = {node.name: space.strategies[node.name][chosen[node.name][1]] for node in space.program.nodes}
    return DistributedProgram(strategies=strategies, made=made, requested=requested)


def build_plan(
    space: SynthesisSpace,
    pricing: Pricing,
    problem: SynthesisProblem,
    distributed: DistributedProgram,
    cluster: Cluster,
    provenance: Provenance,
) -> Plan:
    """Builds the plan, with the sizes and the algorithms that the pricing's ratios lead to."""
    emitter = _Emitter(space, pricing, problem, distributed)
    program = space.program
    for name in program.sources:
        emitter.source(name)
    owners = {result: source for source, result in reversed(space.kept)}
    is_updating = False
    for node in program.nodes:
        if node.phase is Phase.UPDATE and not is_updating:
            is_updating = True
            emitter.results((program.loss, *program.gradients.values()), owners)
        emitter.apply(node.name)
    emitter.results(program.results, owners)
    return emitter.builder.build(provenance, cluster=cluster.digest)


class _Emitter:
    def __init__(self, space: SynthesisSpace, pricing: Pricing, problem: SynthesisProblem, program: DistributedProgram) -> None:
        self._space = space
        self._pricing = pricing
        self._distributed = program
        self._ways = {
            name: {after: before for before, after in problem.forms[name].ways(1 << form, program.requested.get(name, 0))}
            for name, form in program.made.items()
            if name in space.program.values
        }
        self._ids: dict[tuple[str, int], str] = {}
        self.builder = PlanBuilder(space.program, space.axes)
        size = len(pricing.ratios)
        self.builder.mesh(_MESH, [MeshAxis(name=_AXIS, size=size)], range(size), {_AXIS: pricing.ratios})

    def source(self, name: str) -> None:
        """Places a source: as it is kept, or, if it is new with each step, as it is asked for."""
        forms = (
            [self._distributed.made[name]] if name in self._distributed.made else sorted(self._requested_forms(name) or {WHOLE})
        )
        for form in forms:
            self._ids[name, form] = self.builder.source(name, _MESH, [placement_of(form)])

    def _requested_forms(self, name: str) -> set[int]:
        forms: set[int] = set()
        for node in self._space.program.consumers[name]:
            forms.add(self._form_for(node.name, name))
        return {WHOLE if form == TERM else form for form in forms}

    def _form_for(self, node: str, name: str) -> int:
        index = self._space.program.node_named[node].inputs.index(name)
        return form_of(self._distributed.strategies[node].inputs[index])

    def apply(self, name: str) -> None:
        node = self._space.program.node_named[name]
        strategy = self._distributed.strategies[name]
        for value in dict.fromkeys(node.inputs):
            self._have(value, self._form_for(name, value))
        self.builder.apply(node, _MESH, [strategy])
        for value, placement in zip(node.outputs, strategy.outputs, strict=True):
            if value:
                self._ids[value, self._distributed.made[value]] = self.builder.want(value, _MESH, [placement])

    def results(self, names: Sequence[str], owners: Mapping[str, str]) -> None:
        """Places results: with what they belong to, or everywhere."""
        for name in dict.fromkeys(names):
            form = self._distributed.made.get(token(owners.get(name, "")), WHOLE)
            if name in self._distributed.made:
                self._have(name, form)
            self.builder.result(name, _MESH, [placement_of(form)])

    def _have(self, value: str, form: int) -> str:
        known = self._ids.get((value, form))
        if known is None:
            before = self._ways.get(value, {}).get(form, WHOLE)
            source = self._have(value, before)
            _, _, algorithm = self._pricing.change(self._space.program.values[value], before, form)
            known = self.builder.collective(source, _AXIS, placement_of(form), None, algorithm)
            self._ids[value, form] = known
        return known
