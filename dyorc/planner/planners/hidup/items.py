"""What the search goes through, one after another: nodes, places where both microbatches meet, and reductions of gradients."""

from collections.abc import Mapping
from dataclasses import dataclass

from dyorc.errors import PlanError
from dyorc.planner.planners.hidup.halves import Halves
from dyorc.planner.planners.hidup.microbatch_costs import TimedTensor
from dyorc.planner.planners.strategy_assignment import without_sizes
from dyorc.planner.program import REPLICATE, Node, Placement, Strategy, TensorProgram, ValueKind
from dyorc.planner.program.graph import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeItem:
    """A node runs.

    Attributes:
        node: The node.
        inputs: What it reads.
        outputs: What it makes; None for an unread output.
        strategies: The ways to run it along space that hints allow.
    """

    node: Node
    inputs: tuple[TimedTensor, ...]
    outputs: tuple[TimedTensor | None, ...]
    strategies: tuple[Strategy, ...]


@dataclass(frozen=True, slots=True)
class RegroupItem:
    """A tensor is put together from both microbatches, or cut in two for them."""

    source: TimedTensor
    target: TimedTensor

    @property
    def is_waiting(self) -> bool:
        """Whether it needs both microbatches."""
        return not self.source.is_once


@dataclass(frozen=True, slots=True)
class ReductionItem:
    """A result that belongs to a source is summed over both microbatches and brought where the source lies: a gradient to its
    parameter, a new value to the one it replaces.
    """

    source: TimedTensor
    target: TimedTensor
    owner: TimedTensor


Item = NodeItem | RegroupItem | ReductionItem
Hints = Mapping[str, Placement]


@dataclass(frozen=True, kw_only=True)
class Items:
    """A program as the search sees it.

    Attributes:
        items: In the program's order, without the optimizer's nodes.
        last_use: For each tensor, the index of the last item that needs to know where it lies.
        owners: Sources to which results belong: they lie in one way from the beginning, and the results lie the same way.
        sources: All sources, as tensors.
        hints: Placements that the user has fixed, by value.
    """

    items: tuple[Item, ...]
    last_use: Mapping[TimedTensor, int]
    owners: frozenset[TimedTensor]
    sources: Mapping[TimedTensor, ValueKind]
    hints: Hints


def items_of(program: TensorProgram, halves: Halves, hints: Hints) -> Items:
    """Lists the items of a program.

    Raises:
        PlanError: A hint names no value, or a placement that no strategy makes.
    """
    for name in hints:
        if name not in program.values:
            raise PlanError(f"a hint places {name}, and {program.name} has no such value")
    listing = _Listing(program, halves, hints)
    for node in program.nodes:
        if node.phase is not Phase.UPDATE:
            listing.add(node)
    return listing.items()


class _Listing:
    def __init__(self, program: TensorProgram, halves: Halves, hints: Hints) -> None:
        self._program = program
        self._halves = halves
        self._hints = hints
        self._items: list[Item] = []
        self._tensors: dict[tuple[str, Placement], TimedTensor] = {}
        self._met: set[TimedTensor] = set()
        self._owner_of: dict[str, list[str]] = {}
        for owner, result in [*program.gradients.items(), *program.updates.items()]:
            self._owner_of.setdefault(result, []).append(owner)

    def add(self, node: Node) -> None:
        along = self._halves.along_time[node.name]
        inputs = tuple(self._as_read(name, p) for name, p in zip(node.inputs, along.inputs, strict=True))
        outputs = tuple(self._tensor(n, p) if n else None for n, p in zip(node.outputs, along.outputs, strict=True))
        self._items.append(NodeItem(node=node, inputs=inputs, outputs=outputs, strategies=self._allowed(node)))
        for output in outputs:
            for owner in self._owner_of.get(output.value, ()) if output else ():
                assert output
                target = self._tensor(output.value, REPLICATE)
                self._items.append(ReductionItem(output, target, self._tensor(owner, self._halves.placed[owner])))

    def items(self) -> Items:
        last_use: dict[TimedTensor, int] = {}
        owners: set[TimedTensor] = set()
        for index, item in enumerate(self._items):
            match item:
                case NodeItem():
                    used = (*item.inputs, *(output for output in item.outputs if output))
                case RegroupItem():
                    used = (item.source, item.target)
                case ReductionItem():
                    used = (item.source, item.target, item.owner)
                    owners.add(item.owner)
            last_use.update(dict.fromkeys(used, index))
        sources = {self._tensor(n, self._halves.placed[n]): self._program.values[n].kind for n in self._program.sources}
        return Items(items=tuple(self._items), last_use=last_use, owners=frozenset(owners), sources=sources, hints=self._hints)

    def _tensor(self, value: str, along_time: Placement) -> TimedTensor:
        return self._tensors.setdefault((value, along_time), TimedTensor(value, along_time))

    def _as_read(self, name: str, wanted: Placement) -> TimedTensor:
        made, read = self._tensor(name, self._halves.placed[name]), self._tensor(name, wanted)
        if made is not read and read not in self._met:
            self._met.add(read)
            self._items.append(RegroupItem(made, read))
        return read

    def _allowed(self, node: Node) -> tuple[Strategy, ...]:
        strategies = [s for s in self._halves.strategies[node.name] if self._fits(node, s)]
        if not strategies:
            hinted = ", ".join(f"{name} as {self._hints[name]}" for name in node.outputs if name in self._hints)
            raise PlanError(f"no strategy of {node.name} ({node.op}) makes {hinted}, as a hint wants")
        return tuple(strategies)

    def _fits(self, node: Node, strategy: Strategy) -> bool:
        pairs = [(n, p) for n, p in zip(node.outputs, strategy.outputs, strict=True) if n in self._hints]
        return all(without_sizes(self._hints[name]) == placement for name, placement in pairs)
