"""Pipelines: which stage runs which nodes, and in which order the stages take the microbatches."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dyorc.errors import PlanError
from dyorc.planner.planners.baselines.assemble import Stages, in_order
from dyorc.planner.planners.baselines.boundaries import boundaries_of, with_least_crossing
from dyorc.planner.planners.baselines.follow import AxisPlan, Choices
from dyorc.planner.program import Node, Placement, Replicate, TensorProgram, ValueKind
from dyorc.planner.program.graph import Phase

_LAYER = re.compile(r"(?:^|\.)\d+\.")


def stages_of(choices: Choices, num_stages: int, num_ranks: int) -> Stages:
    """Divides a program into stages of as nearly as possible the same number of layers.

    A layer is the first number in the name of a parameter. If there are fewer than stages, the modules that hold
    parameters count as layers.

    Raises:
        PlanError: There are fewer such modules than stages.
    """
    size = num_ranks // num_stages
    ranks = [tuple(range(stage * size, (stage + 1) * size)) for stage in range(num_stages)]
    return stages_with(choices, layers_of(choices.program, num_stages), ranks)


def stages_with(
    choices: Choices, of_parameter: Mapping[str, int], ranks: Sequence[tuple[int, ...]], branches: Sequence[int] = ()
) -> Stages:
    """Divides a program into stages, given the stages of some parameters.

    Args:
        choices: The program.
        of_parameter: The stages of parameters. Others belong where they are read first.
        ranks: Of each stage. Going forward, no stage waits for a later one.
        branches: The branch of each stage but the last, if there are branches: what reads several belongs to the last stage.
    """
    staging = _Staging(choices.program, of_parameter, len(ranks), branches)
    return Stages(ranks=tuple(ranks), of_node=staging.nodes(), of_source=staging.sources())


def layers_of(program: TensorProgram, num_stages: int, names: Iterable[str] | None = None) -> dict[str, int]:
    """Returns the stage of each parameter that belongs to a layer.

    Args:
        program: In whose order layers come.
        num_stages: How many stages there are.
        names: The parameters to consider; all if None.

    Raises:
        PlanError: There are fewer layers than stages.
    """
    used = dict.fromkeys(name for node in program.nodes for name in node.inputs)
    wanted = set(program.parameters if names is None else names)
    names = [name for name in used if name in wanted]
    numbered = {name: name[: match.end()] for name in names if (match := _LAYER.search(name))}
    if len(set(numbered.values())) < num_stages:
        numbered = {name: name.rpartition(".")[0] for name in names}
    layers = list(dict.fromkeys(numbered.values()))
    if len(layers) < num_stages:
        raise PlanError(f"{program.name} has {len(layers)} layers, too few for {num_stages} stages")
    return {name: layers.index(layer) * num_stages // len(layers) for name, layer in numbered.items()}


class _Staging:
    def __init__(
        self, program: TensorProgram, of_parameter: Mapping[str, int], num_stages: int, branches: Sequence[int] = ()
    ) -> None:
        self._program = program
        self._num_stages = num_stages
        self._branches = branches
        self._meeting: set[str] = set()  # what the stage in which branches meet reads of them
        self._of_value = dict(of_parameter)  # values that depend on parameters, and parameters of layers
        self._owners = {gradient: parameter for parameter, gradient in program.gradients.items()}
        self._of_node: dict[str, tuple[int, ...]] = {}
        self._made_of: dict[str, set[str]] = {}  # values made of parameters alone that belong nowhere yet -> those parameters

    def nodes(self) -> dict[str, tuple[int, ...]]:
        stage_of: dict[str, int] = {}
        for node in self._program.nodes:
            stage = self._stage(node)
            if stage is not None:
                stage_of[node.name] = stage
                self._of_value |= dict.fromkeys(filter(None, node.outputs), stage)
        fixed = {node.name for node in self._program.nodes if self._belongs_to_parameters(node)}
        boundaries = boundaries_of(list(self._branches) or [0] * (self._num_stages - 1))
        stage_of = with_least_crossing(self._program, stage_of, fixed, boundaries)
        self._of_node = {name: (stage,) for name, stage in stage_of.items()}
        for node in reversed(self._program.nodes):
            readers = {stage for name in node.outputs if name for stage in self._readers(name)}
            if node.name not in self._of_node:  # depends on no parameter: computed wherever it is read
                self._of_node[node.name] = tuple(sorted(readers)) or (self._num_stages - 1,)
        return self._of_node

    def _stage(self, node: Node) -> int | None:
        """Where the last of its inputs from the forward pass is, or the first gradient, whichever comes first."""
        for output in node.outputs:
            if (owner := self._owners.get(output)) in self._of_value:
                return self._of_value[owner]  # type: ignore[index]
        inputs = [name for name in node.inputs if name in self._of_value]
        if not inputs:
            parameters = {parameter for name in node.inputs for parameter in self._parameters_in(name)}
            if parameters and all(self._parameters_in(name) for name in node.inputs):
                self._made_of |= dict.fromkeys(filter(None, node.outputs), parameters)
                return None  # such as the transpose of a matrix: where it is read
            stage = 0 if parameters else None
        else:
            left = [name for name in inputs if not self._is_backward(name)]
            back = [self._of_value[name] for name in inputs if self._is_backward(name)]
            stage = min([*back, self._of_left(node, left)] if left else back)
        if stage is not None:
            for name in node.inputs:
                for parameter in self._parameters_in(name):
                    self._of_value.setdefault(parameter, stage)
        return stage

    def _of_left(self, node: Node, names: Sequence[str]) -> int:
        """Where what comes from the forward pass is together."""
        last = max(self._of_value[name] for name in names)
        if not self._branches:
            return last
        meeting = self._num_stages - 1
        of = {self._branches[self._of_value[name]] for name in names if self._of_value[name] < meeting}
        if node.phase is Phase.FORWARD:
            last = meeting if len(of) > 1 else last
            self._meeting |= set(names) if last == meeting else set()
        return meeting if self._meeting.issuperset(names) else last

    def _parameters_in(self, name: str) -> set[str]:
        """The parameters and states that a value is, or is made of alone."""
        is_owned = self._program.values[name].kind in (ValueKind.PARAMETER, ValueKind.STATE)
        return {name} if is_owned else self._made_of.get(name, set())

    def _belongs_to_parameters(self, node: Node) -> bool:
        return any(map(self._parameters_in, node.inputs)) or any(output in self._owners for output in node.outputs)

    def _is_backward(self, name: str) -> bool:
        producer = self._program.producers.get(name)
        return producer is not None and producer.phase is not Phase.FORWARD

    def _readers(self, name: str) -> set[int]:
        return {stage for node in self._program.consumers[name] for stage in self._of_node.get(node.name, ())}

    def sources(self) -> dict[str, tuple[int, ...]]:
        stages_of: dict[str, tuple[int, ...]] = {}
        for name in self._program.sources:
            is_owned = self._program.values[name].kind in (ValueKind.PARAMETER, ValueKind.STATE)
            if is_owned and name in self._of_value:
                stages_of[name] = (self._of_value[name],)
            else:
                stages_of[name] = tuple(sorted(self._readers(name))) or (0,)
        return stages_of


def one_forward_one_backward(choices: Choices, time: AxisPlan, stages: Stages) -> list[tuple[Node, int]]:
    """The order 1F1B (PipeDream-flush, arXiv 2006.09503): each stage runs a few microbatches forward to fill the pipeline, then
    one backward for each forward.

    Where a value of one microbatch depends on all others, as statistics of a batch do, no such order exists: nodes are run in
    the program's order then, each for all microbatches.
    """
    num_stages, num_parts = len(stages.ranks), time.axis.size
    queues = [_queue(stage, num_stages, num_parts) for stage in range(num_stages)]
    return order_passes(choices, time, stages, queues) or list(in_order(choices, num_parts))


@dataclass(frozen=True, slots=True)
class StagePass:
    """All that a stage does in one pass over one microbatch."""

    stage: int
    is_forward: bool
    part: int


def order_passes(
    choices: Choices, time: AxisPlan, stages: Stages, queues: Sequence[Sequence[StagePass]]
) -> list[tuple[Node, int]] | None:
    """Returns the order of nodes in which each queue is worked off from its beginning, one turn at a time and as far as the
    inputs of a turn are there; None if that stops before the end.

    Nodes that read no parameter and that are needed of all microbatches come first.
    """
    return _Turns(choices, time, stages).order(queues)


def _queue(stage: int, num_stages: int, num_parts: int) -> list[StagePass]:
    """The passes of a stage in 1F1B."""
    num_ahead = min(num_stages - stage - 1, num_parts)
    passes = [StagePass(stage, True, part) for part in range(num_ahead)]
    for part in range(num_parts):
        if part + num_ahead < num_parts:
            passes.append(StagePass(stage, True, part + num_ahead))
        passes.append(StagePass(stage, False, part))
    return passes


class _Turns:
    def __init__(self, choices: Choices, time: AxisPlan, stages: Stages) -> None:
        self._program = choices.program
        self._time = time
        self._num_parts = time.axis.size
        self._done: set[tuple[str, int]] = set()
        self._order: list[tuple[Node, int]] = []
        first = self._before_all()
        self._units: dict[tuple[int, bool], list[Node]] = {}
        for node in self._program.nodes:
            if node.phase is not Phase.UPDATE and node.name not in first:
                is_forward = node.phase is Phase.FORWARD
                stage = min(stages.of_node[node.name]) if is_forward else max(stages.of_node[node.name])  # which needs it first
                self._units.setdefault((stage, is_forward), []).append(node)
        for node in self._program.nodes:
            if node.name in first:
                for part in range(self._num_parts):
                    self._emit(node, part)

    def order(self, queues: Sequence[Sequence[StagePass]]) -> list[tuple[Node, int]] | None:
        """Works in rounds. In each, a stage runs once on the results of earlier rounds: of stages that share a rank, none waits
        for another rank while its neighbour could run.
        """
        waiting = [deque(queue) for queue in queues]
        while any(waiting):
            ready = [queue for queue in waiting if queue and self._can_run(self._unit(queue[0]), queue[0].part)]
            for queue in ready:
                turn = queue.popleft()
                for node in self._unit(turn):
                    self._emit(node, turn.part)
            if not ready:
                return None
        return self._order

    def _unit(self, turn: StagePass) -> list[Node]:
        return self._units.get((turn.stage, turn.is_forward), [])

    def _can_run(self, unit: Sequence[Node], part: int) -> bool:
        made = {(name, part) for node in unit for name in node.outputs}
        return all(need in self._done or need in made for node in unit for need in self._needs(node, part))

    def _emit(self, node: Node, part: int) -> None:
        self._order.append((node, part))
        self._done.update((name, part) for name in node.outputs)

    def _needs(self, node: Node, part: int) -> Iterator[tuple[str, int]]:
        for name, wanted in zip(node.inputs, self._time.strategies[node.name].inputs, strict=True):
            if name in self._program.producers:
                if self._is_same_part(name, wanted):
                    yield name, part
                else:
                    yield from ((name, each) for each in range(self._num_parts))

    def _is_same_part(self, name: str, wanted: Placement) -> bool:
        """Whether a value is read in the placement along time in which it is made, so that each part needs only its own."""
        node = self._program.producers[name]
        made = self._time.strategies[node.name].outputs[node.outputs.index(name)]
        return isinstance(made, Replicate) or made == wanted

    def _before_all(self) -> set[str]:
        """Nodes that read no parameter and that something needs of all microbatches, such as the number of targets."""
        depends: set[str] = {name for name, value in self._program.values.items() if value.kind is ValueKind.PARAMETER}
        for node in self._program.nodes:
            if not depends.isdisjoint(node.inputs):
                depends.update(filter(None, node.outputs))
        needed: set[str] = set()
        for node in reversed(self._program.nodes):
            if depends.isdisjoint(node.outputs) and not needed.isdisjoint(node.outputs):
                needed.update(node.inputs)
            for name, wanted in zip(node.inputs, self._time.strategies[node.name].inputs, strict=True):
                if name in self._program.producers and not self._is_same_part(name, wanted):
                    needed.add(name)
        names = {node.name for node in self._program.nodes if not needed.isdisjoint(node.outputs)}
        return {name for name in names if depends.isdisjoint(self._program.node_named[name].outputs)}
