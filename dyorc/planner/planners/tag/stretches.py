"""A program in stretches: operations that run one after another on the same devices, without a movement between them.

How the operations of an op group fall into stretches depends on the group's own action alone. So stretches are found once for
each group and action, and an estimate of all groups together only joins them: that is what makes it quick.

Values have numbers here, and so have the spots where they lie, which are the ranks of a mesh and a placement on it.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from dyorc.planner.planners.tag.group_actions import Action, Ranks, SearchContext
from dyorc.planner.planners.tag.op_groups import is_free_source
from dyorc.planner.program import REPLICATE, Node, Placement, Shard, Strategy, ValueKind
from dyorc.planner.program.costs import costs_of
from dyorc.planner.program.graph import Phase

_SPOT_BITS = 12


class SpotNeed(NamedTuple):
    """A value that must lie somewhere.

    Attributes:
        key: The number of the pair.
        value: The value.
        spot: Where it is needed.
        source: Where it lies besides where it was made: what is new with each step lies with all that read it. Or -1.
    """

    key: int
    value: int
    spot: int
    source: int = -1


class Stretch(NamedTuple):
    """Operations that run on the same devices without a movement between them.

    Attributes:
        needs: What they read.
        work: For each rank that computes, how long.
        makes: What others read of what they make.
        kept: For each rank, the bytes of what they make and the backward pass or the end of the step needs.
        wants: Results, where they must lie in the end.
    """

    needs: tuple[SpotNeed, ...]
    work: tuple[tuple[int, float], ...]
    makes: tuple[SpotNeed, ...]
    kept: tuple[tuple[int, int], ...]
    wants: tuple[SpotNeed, ...]


class Stretches:
    """Finds stretches and remembers them. Not for several threads."""

    def __init__(self, context: SearchContext) -> None:
        self.context = context
        self.costs = costs_of(context.program)
        self.blocks = _blocks(context)
        self.spots: list[tuple[Ranks, Placement]] = []
        self.values = tuple(context.program.values)
        self.results = frozenset(context.program.results)
        self._kept = _kept_values(context)
        self._value_numbers = {name: number for number, name in enumerate(self.values)}
        self._spot_numbers: dict[tuple[Ranks, Placement], int] = {}
        self._homes: dict[tuple[int, Action], dict[str, tuple[Ranks, Ranks]]] = {}
        self._known: dict[tuple[int, Action], tuple[Stretch, ...]] = {}
        self._free = _free_values(context)

    def of_block(self, block: int, action: Action) -> tuple[Stretch, ...]:
        """Returns the stretches of a block under its group's action."""
        stretches = self._known.get((block, action))
        if stretches is None:
            group, nodes = self.blocks[block]
            stretches = self._known[block, action] = tuple(self._divided(nodes, self._places(group, action)))
        return stretches

    def beginning(self, group: int, action: Action) -> Stretch:
        """Returns what the parameters of a group and their states make when the step begins."""
        place, made = self.context.place(group, action), list[SpotNeed]()
        held: dict[int, int] = {}
        for unit, home in zip(self.context.groups[group].units, place.home_of_unit, strict=True):
            for name in unit.sources:
                made.append(self.need(name, home, REPLICATE))
                for rank in home:
                    held[rank] = held.get(rank, 0) + self.kept_bytes(name, home, REPLICATE)
        return Stretch((), (), tuple(made), tuple(held.items()), ())

    def need(self, name: str, ranks: Ranks, placement: Placement) -> SpotNeed:
        """Returns the numbers of a value in a spot; an input of the program lies with its readers as the batch is cut."""
        value, spot, source = self._value_numbers[name], self._spot(ranks, placement), -1
        if self.context.program.values[name].kind is ValueKind.INPUT:
            source = self._spot(ranks, self.context.source_placement(name, ranks))
        return SpotNeed(value << _SPOT_BITS | spot, value, spot, source)

    def inputs_of(self, node: Node, strategy: Strategy) -> Iterable[tuple[str, Placement]]:
        """What a node reads, and how; without constants, which are computed wherever they are read."""
        return [pair for pair in zip(node.inputs, strategy.inputs, strict=True) if pair[0] not in self._free]

    def kept_bytes(self, name: str, ranks: Ranks, placement: Placement) -> int:
        """What a value needs on each rank for as long as it counts; 0 if it is gone by the backward pass."""
        if name not in self._kept:
            return 0
        num_bytes = self.context.program.values[name].num_bytes
        return num_bytes // len(ranks) if isinstance(placement, Shard) else num_bytes

    def _spot(self, ranks: Ranks, placement: Placement) -> int:
        number = self._spot_numbers.get((ranks, placement))
        if number is None:
            number = self._spot_numbers[ranks, placement] = len(self.spots)
            self.spots.append((ranks, placement))
            assert number < 1 << _SPOT_BITS
        return number

    def _places(self, group: int, action: Action) -> dict[str, tuple[Ranks, Ranks]]:
        """For each node of a group, the ranks that run it, and the ranks that hold its unit's parameters."""
        places = self._homes.get((group, action))
        if places is None:
            place = self.context.place(group, action)
            each = zip(self.context.groups[group].units, place.of_unit, place.home_of_unit, strict=True)
            places = {name: (ranks, home) for unit, ranks, home in each for name in unit.nodes}
            self._homes[group, action] = places
        return places

    def _divided(self, nodes: Sequence[str], places: dict[str, tuple[Ranks, Ranks]]) -> Iterable[Stretch]:
        stretch: _Growing | None = None
        for name in nodes:
            node = self.context.program.node_named[name]
            ranks, home = places[name]
            if node.phase is Phase.UPDATE:
                ranks = home
            strategy = self.context.strategy(node, ranks)
            if stretch is None or not stretch.fits(node, ranks, strategy):
                if stretch:
                    yield stretch.finish()
                stretch = _Growing(self, ranks)
            stretch.add(node, strategy, home)
            if stretch.wants:  # at once, so that sums of gradients overlap with what follows
                yield stretch.finish()
                stretch = None
        if stretch:
            yield stretch.finish()


class _Growing:
    """A stretch while operations are added."""

    def __init__(self, stretches: Stretches, ranks: Ranks) -> None:
        self._stretches = stretches
        self._ranks = ranks
        self._nodes: set[str] = set()
        self._made: dict[str, Placement] = {}
        self._needs: dict[SpotNeed, None] = {}
        self._work = [0.0] * len(ranks)
        self.wants: list[SpotNeed] = []

    def fits(self, node: Node, ranks: Ranks, strategy: Strategy) -> bool:
        """Whether a node can run after the others without a movement between them."""
        return ranks == self._ranks and all(
            self._made.get(name, placement) == placement for name, placement in zip(node.inputs, strategy.inputs, strict=True)
        )

    def add(self, node: Node, strategy: Strategy, home: Ranks) -> None:
        stretches, ranks = self._stretches, self._ranks
        self._nodes.add(node.name)
        for name, placement in stretches.inputs_of(node, strategy):
            if name not in self._made:
                self._needs[stretches.need(name, ranks, placement)] = None
        is_cut = any(isinstance(p, Shard) for p in (*strategy.inputs, *strategy.outputs))
        cost, cluster = stretches.costs[node.name], stretches.context.cluster
        for index, rank in enumerate(ranks):
            self._work[index] += cluster.compute_s(cost, rank, 1 / len(ranks) if is_cut else 1.0)
        for name, placement in zip(node.outputs, strategy.outputs, strict=True):
            if name:
                self._made[name] = placement
                place = ranks if name == stretches.context.program.loss else home
                if name in stretches.results and (ranks, placement) != (place, REPLICATE):
                    self.wants.append(stretches.need(name, place, REPLICATE))

    def finish(self) -> Stretch:
        stretches, ranks = self._stretches, self._ranks
        wanted = {need.value for need in self.wants}
        made = [stretches.need(name, ranks, placement) for name, placement in self._made.items() if self._is_read(name)]
        wants = [stretches.need(name, ranks, p) for name, p in self._made.items() if not self._is_read(name)]
        made += [need for need in wants if need.value in wanted]
        kept = sum(stretches.kept_bytes(name, ranks, placement) for name, placement in self._made.items())
        return Stretch(
            needs=tuple(self._needs),
            work=tuple((rank, each_s) for rank, each_s in zip(ranks, self._work, strict=True) if each_s),
            makes=tuple(made),
            kept=tuple((rank, kept) for rank in ranks) if kept else (),
            wants=tuple(self.wants),
        )

    def _is_read(self, name: str) -> bool:
        """Whether anything outside reads a value."""
        return any(reader.name not in self._nodes for reader in self._stretches.context.program.consumers[name])


def _blocks(context: SearchContext) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Runs of operations of one group, in the program's order."""
    group_of = {name: number for number, group in enumerate(context.groups) for unit in group.units for name in unit.nodes}
    names = [node.name for node in context.program.nodes if node.name in group_of]
    return tuple((group, tuple(run)) for group, run in groupby(names, key=lambda name: group_of[name]))


def _free_values(context: SearchContext) -> set[str]:
    program = context.program
    values = {name for name in program.sources if is_free_source(program, name)}
    return values.union(*(program.node_named[name].outputs for name in context.grouping.shared))


def _kept_values(context: SearchContext) -> set[str]:
    """Parameters, states, results, and what the forward pass computes and the backward pass reads; not mere views."""
    program, costs = context.program, costs_of(context.program)

    def is_read_later(name: str) -> bool:
        for reader in program.consumers[name]:
            is_look = not costs[reader.name].num_bytes
            if reader.phase is not Phase.FORWARD or (is_look and any(is_read_later(n) for n in reader.outputs if n)):
                return True
        return False

    values = {*program.sources, *program.results}
    for node in program.nodes:
        if node.phase is Phase.FORWARD and costs[node.name].num_bytes:
            values.update(n for n in node.outputs if n and is_read_later(n))
    return values
