"""Which strategy each node takes, as one problem of choices with additive costs.

The program's nodes are *choices*. Each of a choice's alternatives asks for some values in some forms, makes others in some forms,
and takes some time. A value that is made in one form and asked for in others costs what changing it costs. Parameters, and what
else the step keeps, are made by choices of their own; a second value, their *token*, records the form in which they are kept,
which nothing can change, so that their gradients and updates end in the same form.

The joint graph of forward and backward is ordered for the search, not for running: a backward node comes next to the forward node
whose results it reads, so that few values are open at any place, however many layers there are.

Source: HAP (EuroSys'24), sections 4.1 and 4.2, whose triples are the alternatives here. That cost-minimal joint choices need an
order of elimination rather than of execution is ours; HAP searches the forward graph alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Algorithm, CollectiveKind, shares
from dyorc.planner.plan.steps import kind_between
from dyorc.planner.planners.baselines.follow import choices_of
from dyorc.planner.planners.collective_costs import best_algorithm
from dyorc.planner.planners.forms import TERM, WHOLE, form_of, placement_of
from dyorc.planner.planners.hap.form_costs import NEVER, FormCosts, in_units
from dyorc.planner.planners.strategy_assignment import StrategyAssignment
from dyorc.planner.program import Axes, Node, Shard, Strategy, TensorProgram, Value, ValueKind
from dyorc.planner.program.costs import NodeCost, costs_of
from dyorc.planner.program.graph import Phase


class Alternative(NamedTuple):
    """One way to make a choice.

    Attributes:
        inputs: Values and the forms in which it asks for them.
        outputs: Values and the forms in which it makes them.
        cost: In units of time.
    """

    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    cost: int


@dataclass(frozen=True, slots=True)
class SynthesisChoice:
    """Something that is decided: a node's strategy, or the form in which a source is kept."""

    name: str
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True)
class SynthesisProblem:
    """All choices in the order of the search, and what changing the form of each value costs."""

    choices: tuple[SynthesisChoice, ...]
    forms: Mapping[str, FormCosts]


@dataclass(frozen=True, kw_only=True)
class SynthesisSpace:
    """The part of the problem that does not depend on ratios: the program, its strategies, costs and order."""

    program: TensorProgram
    axes: Axes
    strategies: Mapping[str, tuple[Strategy, ...]]
    costs: Mapping[str, NodeCost]
    kept: tuple[tuple[str, str], ...]
    whole_parameters: bool = False

    @staticmethod
    def of(program: TensorProgram, whole_parameters: bool = False) -> "SynthesisSpace":
        """Analyses a program."""
        choices = choices_of(program)
        kept = (*program.gradients.items(), *program.updates.items())
        return SynthesisSpace(
            program=program,
            axes=choices.axes,
            strategies=choices.strategies,
            costs=costs_of(program),
            kept=kept,
            whole_parameters=whole_parameters,
        )


def token(source: str) -> str:
    """The token of a source: a value in the form in which the source is kept."""
    return f"form of {source}"


class Pricing:
    """Turns a space into a problem, for given ratios."""

    def __init__(
        self,
        space: SynthesisSpace,
        cluster: Cluster,
        ratios: Sequence[float],
        kept_byte_s: float = 0.0,
        overlap_weight: float = 1.0,
    ) -> None:
        """Args:
        space: The program.
        cluster: Where it runs.
        ratios: The share of each rank.
        kept_byte_s: The cost of each byte that a rank keeps of a parameter or state, so that parameters that do not fit shrink.
        overlap_weight: The weight of communication that can run during computation: of gradients, and of what the step keeps.
        """
        self._space = space
        self._cluster = cluster
        self.ratios = tuple(ratios)
        self._kept_byte_s = kept_byte_s
        self._overlap_weight = overlap_weight
        self._sizes: dict[int, tuple[int, ...]] = {}
        self._divisions: dict[tuple[int, ...], int] = {}
        self._division_of: dict[int, int] = {}
        self._work_of: dict[int | None, list[tuple[int, float]]] = {}
        self._forms: dict[tuple[object, ...], FormCosts] = {}
        self._times: dict[tuple[NodeCost, int | None], int] = {}

    def problem(self) -> SynthesisProblem:
        """Returns all choices, priced."""
        program = self._space.program
        kept = self._kept_sources()
        overlapping = {*kept, *program.gradients.values()} if self._overlap_weight != 1.0 else set[str]()
        forms = {name: self._forms_of(program.values[name], name, name in overlapping) for name in program.values}
        never = {size: _unchangeable(size) for size in {len(forms[name].table) for name in kept}}  # one object for all alike
        forms |= {token(name): never[len(forms[name].table)] for name in kept}
        placed: list[tuple[tuple[float, int], SynthesisChoice]] = []
        positions = _positions(program)
        for name in kept:
            placed.append(((positions[program.consumers[name][0].name] - 0.5, 0), self._source(name)))
        for index, node in enumerate(program.nodes):
            placed.append(((positions[node.name], index), self._node(node, kept)))
        for source, result in self._space.kept:
            if result in program.producers:
                choice = self._keeping(source, result) if source in kept else _everywhere(result)
                placed.append(((positions[program.producers[result].name] + 0.5, 0), choice))
        if program.loss in program.producers:
            placed.append(((positions[program.producers[program.loss].name] + 0.5, 0), _everywhere(program.loss)))
        placed.sort(key=lambda item: item[0])
        return SynthesisProblem(tuple(choice for _, choice in placed), forms)

    def pieces(self, value: Value, form: int) -> tuple[int, ...]:
        """The bytes that each rank holds of a value."""
        if form in (WHOLE, TERM):
            return (value.num_bytes,) * len(self.ratios)
        axis = self._space.axes.outermost[value.name][form - 2]
        if axis is None:
            return (value.num_bytes, *(0,) * (len(self.ratios) - 1))
        unit = value.num_bytes // max(self._space.axes.extents[axis], 1)
        return tuple(size * unit for size in self._shares(axis))

    def change(self, value: Value, before: int, after: int) -> tuple[float, CollectiveKind, Algorithm]:
        """What changes a form, and its seconds."""
        kind = kind_between(placement_of(before), placement_of(after))
        pieces = tuple(max(a, b) for a, b in zip(self.pieces(value, before), self.pieces(value, after), strict=True))
        if kind is CollectiveKind.ALL_GATHER:
            pieces = self.pieces(value, before)
        elif kind is CollectiveKind.REDUCE_SCATTER:
            pieces = self.pieces(value, after)
        seconds, algorithm = best_algorithm(self._cluster, kind, pieces)
        return seconds, kind, algorithm

    def _kept_sources(self) -> list[str]:
        """Sources whose form matters: parameters and states, and what the step replaces. Inputs are read in any form."""
        program = self._space.program
        kinds = (ValueKind.PARAMETER, ValueKind.STATE)
        return [
            name
            for name in program.sources
            if program.consumers[name] and (program.values[name].kind in kinds or name in program.updates)
        ]

    def _shares(self, axis: int) -> tuple[int, ...]:
        sizes = self._sizes.get(axis)
        if sizes is None:
            sizes = self._sizes[axis] = shares(self._space.axes.extents[axis], self.ratios)
        return sizes

    def _division(self, axis: int) -> int:
        """A number that axes have in common that are divided alike."""
        number = self._division_of.get(axis)
        if number is None:
            number = self._division_of[axis] = self._divisions.setdefault(self._shares(axis), len(self._divisions))
        return number

    def _forms_of(self, value: Value, name: str, is_overlapping: bool) -> FormCosts:
        outermost = self._space.axes.outermost[name]
        key = (value.num_bytes, tuple(None if axis is None else self._division(axis) for axis in outermost), is_overlapping)
        forms = self._forms.get(key)
        if forms is None:
            num_forms = 2 + len(outermost)
            weight = self._overlap_weight if is_overlapping else 1.0
            rows = [[self._change_units(value, a, b, weight) for b in range(num_forms)] for a in range(num_forms)]
            forms = self._forms[key] = FormCosts(tuple(map(tuple, rows)))
        return forms

    def _change_units(self, value: Value, before: int, after: int, weight: float) -> int:
        if before == after:
            return 0
        if before > TERM and after == TERM:
            return NEVER
        return in_units(weight * self.change(value, before, after)[0])

    def _node(self, node: Node, kept: Sequence[str]) -> SynthesisChoice:
        program = self._space.program
        alternatives: list[Alternative] = []
        for strategy in self._space.strategies[node.name]:
            inputs = {name: form_of(placement) for name, placement in zip(node.inputs, strategy.inputs, strict=True)}
            inputs = {n: f for n, f in inputs.items() if n in program.producers or n in kept}
            outputs = ((name, form_of(p)) for name, p in zip(node.outputs, strategy.outputs, strict=True) if name)
            alternatives.append(Alternative(tuple(inputs.items()), tuple(outputs), self._compute(node, strategy)))
        return SynthesisChoice(node.name, tuple(alternatives))

    def _compute(self, node: Node, strategy: Strategy) -> int:
        """The time of the slowest rank."""
        is_cut = any(isinstance(placement, Shard) for placement in (*strategy.inputs, *strategy.outputs))
        key = (self._space.costs[node.name], strategy.axis if is_cut else None)
        units = self._times.get(key)
        if units is None:
            cost, axis = key
            units = in_units(max(self._cluster.compute_s(cost, rank, part) for rank, part in self._work(axis)))
            self._times[key] = units
        return units

    def _work(self, axis: int | None) -> list[tuple[int, float]]:
        """The parts of work along an axis that ranks do, for each kind of devices each size once."""
        work = self._work_of.get(axis)
        if work is None:
            sizes = [1] * len(self.ratios) if axis is None else self._shares(axis)
            extent = 1 if axis is None else max(self._space.axes.extents[axis], 1)
            pairs = dict.fromkeys(zip(self._cluster.first_alike, sizes, strict=True))
            work = self._work_of[axis] = [(rank, size / extent) for rank, size in pairs]
        return work

    def _source(self, name: str) -> SynthesisChoice:
        value = self._space.program.values[name]
        outermost = self._space.axes.outermost[name]
        forms = [WHOLE]
        if value.kind is not ValueKind.BUFFER and not self._space.whole_parameters:
            forms += [2 + dim for dim, axis in enumerate(outermost) if axis is not None]
        alternatives = tuple(
            Alternative((), ((name, form), (token(name), form)), in_units(self._kept_byte_s * max(self.pieces(value, form))))
            for form in forms
        )
        return SynthesisChoice(f"source {name}", alternatives)

    def _keeping(self, source: str, result: str) -> SynthesisChoice:
        forms = [form for _, form in (alternative.outputs[0] for alternative in self._source(source).alternatives)]
        alternatives = tuple(Alternative(((token(source), form), (result, form)), (), 0) for form in forms)
        return SynthesisChoice(f"{result} lies as {source}", alternatives)


def _everywhere(result: str) -> SynthesisChoice:
    return SynthesisChoice(f"{result} is everywhere", (Alternative(((result, WHOLE),), (), 0),))


def _unchangeable(size: int) -> FormCosts:
    return FormCosts(tuple(tuple(0 if a == b else NEVER for b in range(size)) for a in range(size)))


def _positions(program: TensorProgram) -> dict[str, float]:
    """Where each node stands in the order of the search: a forward node at its number, a backward node next to the last forward
    node that makes, or first reads, something that it reads.
    """
    position_of: dict[str, float] = {}
    of_value: dict[str, float] = {}
    for index, node in enumerate(program.nodes):
        forward = [of_value[name] for name in node.inputs if name in of_value and not _is_late(program, name)]
        late = [of_value[name] for name in node.inputs if name in of_value and _is_late(program, name)]
        if node.phase is Phase.FORWARD or not (forward or late):
            position = float(index)
        else:
            position = max(forward) if forward else min(late)
        position_of[node.name] = position
        for name in node.inputs:
            if program.values[name].kind in (ValueKind.PARAMETER, ValueKind.STATE):
                of_value.setdefault(name, position)
        if any(name in of_value for name in node.inputs):  # masks and constants, which all layers read, are next to no layer
            of_value |= dict.fromkeys((name for name in node.outputs if name), position)
    return position_of


def _is_late(program: TensorProgram, name: str) -> bool:
    producer = program.producers.get(name)
    return producer is not None and producer.phase is not Phase.FORWARD


def alternatives_of(space: SynthesisSpace, problem: SynthesisProblem, assignment: StrategyAssignment) -> tuple[int, ...] | None:
    """Returns the number of each choice's alternative; None if one of them is not allowed here."""
    forms = {name: form_of(placement) for name, placement in assignment.sources.items()}
    forms |= {token(name): form for name, form in forms.items()}
    numbers: list[int] = []
    for choice in problem.choices:
        number = _number(space, choice, assignment, forms)
        if number is None:
            return None
        numbers.append(number)
    return tuple(numbers)


def _number(space: SynthesisSpace, choice: SynthesisChoice, assignment: StrategyAssignment, forms: dict[str, int]) -> int | None:
    strategies = space.strategies.get(choice.name)
    if strategies is not None:
        strategy = assignment.strategies.get(choice.name)
        return strategies.index(strategy) if strategy in strategies else None
    for number, alternative in enumerate(choice.alternatives):
        if all(forms.get(name, form) == form for name, form in (*alternative.inputs, *alternative.outputs)):
            return number
    return None
