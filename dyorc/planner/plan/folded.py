"""A plan as a small graph: blocks of layers instead of hundreds of operations, and between them the largest tensors with their
layouts. Called by who draws it.

Layers that follow each other, run on the same ranks and hold their parameters alike are one block.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dyorc.planner.plan.plan import Plan
from dyorc.planner.plan.show import largest_piece_bytes
from dyorc.planner.plan.steps import Apply, Collective, CollectiveKind, Step
from dyorc.planner.program import Node, TensorProgram, Value, ValueKind
from dyorc.planner.program.graph import Phase

_MAX_BLOCKS = 6
_MAX_PARAMETERS = 3
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What a block does forwards, or backwards with the optimizer's step.

    Attributes:
        num_operations: Of the program, not of its parts.
        ranks: Who computes.
        sent: For each kind of communication of what the block makes, the bytes of the largest pieces.
    """

    num_operations: int = 0
    ranks: tuple[int, ...] = ()
    sent: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A tensor to draw.

    Attributes:
        name: Of its value.
        tensors: The placed tensors, as it is made and, if it is read in another layout, as it is read.
        num_others: How many others there are.
        num_bytes: Of it and the others, whole.
    """

    name: str
    tensors: tuple[str, ...]
    num_others: int = 0
    num_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A layer, several that are alike, or modules outside of layers.

    Attributes:
        name: For people.
        forward: What it does forwards.
        backward: What it does backwards.
        parameters: Its largest parameters, of the first layer; with how they lie in the beginning.
        num_bytes: Of all its parameters.
    """

    name: str
    forward: Side
    backward: Side
    parameters: tuple[Shown, ...]
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEdge:
    """The largest tensor that goes from one block to another.

    Attributes:
        source: The index of the block, and whether it is its backward side.
        target: The same.
        shown: The tensor.
    """

    source: tuple[int, bool]
    target: tuple[int, bool]
    shown: Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """The graph.

    Attributes:
        blocks: In the order in which the forward pass goes through them.
        edges: The largest first.
    """

    blocks: tuple[Block, ...]
    edges: tuple[LayerEdge, ...]


def fold(plan: Plan, program: TensorProgram) -> Folded:
    """Folds a plan.

    Raises:
        PlanError: The plan is for another program.
    """
    plan.check_program(program)
    homes = _Homes(program)
    seen = _Seeing(plan, homes)
    runs = _limited(_alike([[key] for key in homes.keys], seen), seen)
    place = {key: index for index, run in enumerate(runs) for key in run}
    blocks = tuple(_joined(run, seen) for run in runs)
    edges = (_edge(plan, ends, pairs) for ends, pairs in seen.crossings(place).items())
    return Folded(blocks=blocks, edges=tuple(sorted(edges, key=lambda edge: -edge.shown.num_bytes)))


class _Homes:
    """Where each node and each parameter belongs: to a layer, or to the module whose parameters were read last."""

    def __init__(self, program: TensorProgram) -> None:
        self.program = program
        self.of_node: dict[str, str] = {}
        self._of_value: dict[str, str] = {}
        self._order: dict[str, int] = {}
        self._owners = {after: source for source, after in (*program.gradients.items(), *program.updates.items())}
        modules = (name.rpartition(".")[0] or name for name in program.parameters)
        self._first = next(modules, program.name)
        for node in program.nodes:
            self.of_node[node.name] = home = self._home(node)
            self._order.setdefault(home, len(self._order))
            self._of_value |= dict.fromkeys(filter(None, node.outputs), home)
            if node.phase is Phase.FORWARD:
                for name in node.inputs:
                    if program.values[name].kind is ValueKind.PARAMETER:
                        self._of_value.setdefault(name, home)
        self.keys = tuple(self._order)

    def of_value(self, name: str) -> str:
        return self._of_value.get(name, self._first)

    def _home(self, node: Node) -> str:
        if node.layer is not None:
            return f"layer {node.layer}"
        parameters = [name for name in node.inputs if self.program.values[name].kind is ValueKind.PARAMETER]
        if node.phase is Phase.FORWARD and parameters:
            return parameters[0].rpartition(".")[0] or parameters[0]
        owned = [self._owners[name] for name in node.outputs if name in self._owners]
        if owned and node.phase is not Phase.FORWARD:
            return self.of_value(owned[0])
        made = [name for name in node.inputs if name in self.program.producers]
        saved = [name for name in made if self.program.producers[name].phase is Phase.FORWARD]
        read = made if node.phase is Phase.FORWARD or not saved else saved
        return max(map(self.of_value, read), key=lambda home: self._order.get(home, -1), default=self._first)


class _Seeing:
    """Goes through the steps once."""

    def __init__(self, plan: Plan, homes: _Homes) -> None:
        self.plan = plan
        self.homes = homes
        self._operations: dict[tuple[str, bool], dict[str, None]] = {}
        self._ranks: dict[tuple[str, bool], dict[int, None]] = {}
        self._sent: dict[tuple[str, bool], Counter[str]] = {}
        self._made: dict[str, tuple[str, bool, str]] = {}  # value -> home, side, placed tensor
        self._read: dict[tuple[str, str, bool], str] = {}  # value, home and side of who reads it first -> placed tensor
        for step in plan.steps:
            self._take(step)
        values = (homes.program.values[name] for name in homes.program.parameters if name in plan.sources)
        self.parameters: dict[str, list[Value]] = {}
        for value in values:
            self.parameters.setdefault(homes.of_value(value.name), []).append(value)

    def _take(self, step: Step) -> None:
        if not isinstance(step, Apply):
            value = self.plan.tensors[step.source].value
            home, is_backward, _ = self._made.get(value, (self.homes.of_value(value), False, ""))
            kind = str(step.kind) if isinstance(step, Collective) else "transfer"
            if not isinstance(step, Collective) or not self._is_local(step):
                sent = self._sent.setdefault((home, is_backward), Counter())
                sent[kind] += largest_piece_bytes(self.plan, step.source if kind == "all_gather" else step.target)
            return
        side = self.homes.of_node[step.node], self.homes.program.node_named[step.node].phase is not Phase.FORWARD
        self._operations.setdefault(side, {})[step.node] = None
        self._ranks.setdefault(side, {}).update(dict.fromkeys(self.plan.meshes[step.mesh].ranks))
        for tensor in step.inputs:
            self._read.setdefault((self.plan.tensors[tensor].value, *side), tensor)
        for tensor in filter(None, step.outputs):
            self._made.setdefault(self.plan.tensors[tensor].value, (*side, tensor))

    def _is_local(self, step: Collective) -> bool:
        mesh = self.plan.mesh_of(step.source)
        return step.kind in (CollectiveKind.SLICE, CollectiveKind.MASK) or mesh.axes[mesh.axis_index(step.axis)].is_time

    def side(self, homes: Sequence[str], is_backward: bool) -> Side:
        keys = [(home, is_backward) for home in homes]
        sent = sum((self._sent.get(key, Counter()) for key in keys), Counter[str]())
        return Side(
            num_operations=sum(len(self._operations.get(key, ())) for key in keys),
            ranks=tuple(sorted({rank for key in keys for rank in self._ranks.get(key, ())})),
            sent=dict(sorted(sent.items())),
        )

    def crossings(self, place: Mapping[str, int]) -> dict[tuple[tuple[int, bool], tuple[int, bool]], list[tuple[str, str]]]:
        """For each two sides, the placed tensors of each value that goes from one to the other: as made, and as read."""
        pairs: dict[tuple[tuple[int, bool], tuple[int, bool]], list[tuple[str, str]]] = {}
        for (value, home, is_backward), read in self._read.items():
            if value in self._made:
                source, was_backward, made = self._made[value]
                ends = (place[source], was_backward), (place[home], is_backward)
                if ends[0] != ends[1]:
                    pairs.setdefault(ends, []).append((made, read))
        return pairs


def _signature(home: str, seen: _Seeing) -> object:
    """What two layers have in common that are drawn as one."""
    parameters = [
        (_DIGITS.sub("", value.name), value.shape, [_layout(seen.plan, t) for t in seen.plan.sources[value.name]])
        for value in seen.parameters.get(home, ())
    ]
    ranks = [seen.side([home], is_backward).ranks for is_backward in (False, True)]
    return (repr(ranks), repr(parameters)) if home.startswith("layer ") else home


def _layout(plan: Plan, tensor: str) -> str:
    return f"{plan.tensors[tensor].mesh} {'|'.join(map(str, plan.tensors[tensor].layout))}"


def _alike(runs: Sequence[list[str]], seen: _Seeing) -> list[list[str]]:
    groups: list[list[str]] = []
    for run in runs:
        if groups and _signature(groups[-1][-1], seen) == _signature(run[0], seen):
            groups[-1] += run
        else:
            groups.append(list(run))
    return groups


def _limited(runs: list[list[str]], seen: _Seeing) -> list[list[str]]:
    """Joins the two neighbours with the fewest operations, again and again, until few enough are left."""

    def weight(index: int) -> int:
        homes = [*runs[index], *runs[index + 1]]
        return seen.side(homes, False).num_operations + seen.side(homes, True).num_operations

    while len(runs) > _MAX_BLOCKS:
        index = min(range(len(runs) - 1), key=weight)
        runs[index : index + 2] = [runs[index] + runs[index + 1]]
    return runs


def _joined(run: Sequence[str], seen: _Seeing) -> Block:
    values = [value for home in run for value in seen.parameters.get(home, ())]
    first = seen.parameters.get(run[0], []) if _name(run).startswith("layers") else values
    largest = sorted(first, key=lambda value: (-value.num_bytes, value.name))[:_MAX_PARAMETERS]
    return Block(
        name=_name(run),
        forward=seen.side(run, False),
        backward=seen.side(run, True),
        parameters=tuple(
            Shown(name=value.name, tensors=seen.plan.sources[value.name][:1], num_bytes=value.num_bytes) for value in largest
        ),
        num_bytes=sum(value.num_bytes for value in values),
    )


def _name(run: Sequence[str]) -> str:
    if len(run) == 1:
        return run[0]
    if all(home.startswith("layer ") for home in run):
        return f"layers {run[0].removeprefix('layer ')} to {run[-1].removeprefix('layer ')}"
    return f"{run[0]} ... {run[-1]}"


def _edge(plan: Plan, ends: tuple[tuple[int, bool], tuple[int, bool]], pairs: Sequence[tuple[str, str]]) -> LayerEdge:
    values = {plan.tensors[made].value: (made, read) for made, read in pairs}
    largest = max(values, key=lambda name: (plan.values[name].num_bytes, name))
    made, read = values[largest]
    shown = Shown(
        name=largest,
        tensors=tuple(_different(plan, made, read)),
        num_others=len(values) - 1,
        num_bytes=sum(plan.values[name].num_bytes for name in values),
    )
    return LayerEdge(source=ends[0], target=ends[1], shown=shown)


def _different(plan: Plan, made: str, read: str) -> Iterator[str]:
    yield made
    if plan.tensors[made] != plan.tensors[read]:
        yield read
