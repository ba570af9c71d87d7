"""Plans that people write: how each operation is cut, where and in which order its parts run; the rest follows.

    recipe = Recipe(program)
    recipe.transform(nodes, axis=batch, parts=4, kind=Cut.IN_TIME)        # phase 1: transformation
    recipe.assign(nodes, ranks=[0, 1])                                    # phase 2: space-time scheduling, in space
    recipe.order([[(node, 0), ...], [(node, 1), ...]])                    #          ... and in time
    plan = recipe.materialise("mine", cluster)                            # phase 3: dependency materialisation

What a person writes can be slow but not wrong: operations are cut only in ways that are right, and collectives and transfers
bring each input where it is read, by the cheapest path.

Source: the three phases are SuperScaler's (arXiv 2301.08984) and nnScaler's (OSDI'24).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import TypeAlias

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan, PlanBuilder, Provenance
from dyorc.planner.plan.adapters import seconds_on
from dyorc.planner.planners.baselines.follow import Choices, choices_of
from dyorc.planner.program import PARTIAL, Node, Placement, Replicate, Strategy, TensorProgram


class Cut(Enum):
    """Where the parts of an operation go."""

    IN_SPACE = "space"  # to different ranks
    IN_TIME = "time"  # to the same ranks, one after the other
    COPIES = "copies"  # each rank computes all of it


@dataclass(frozen=True, slots=True)
class Transformation:
    """One cut of an operation.

    Attributes:
        axis: The axis of the program that is cut; None for copies.
        parts: Into how many parts.
        kind: Where they go.
        chosen: How each node runs, by name, where the axis does not say it all.
    """

    axis: int | None
    parts: int
    kind: Cut
    chosen: Mapping[str, Strategy] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkUnit:
    """Parts of nodes that run directly after one another.

    Attributes:
        work: Nodes and parts, in order; a part that a node does not have is ignored.
        forgotten: Values that are made again from here on, because what was made of them is not kept.
    """

    work: Sequence[tuple[Node, int]]
    forgotten: Sequence[str] = ()


@dataclass
class _Placing:
    cuts: list[Transformation] = field(default_factory=list[Transformation])
    ranks: tuple[int, ...] = ()


class Recipe:
    """What a person says about a plan. Not for several threads."""

    def __init__(self, program: TensorProgram, *, time_first: bool = False) -> None:
        """Begins with nothing said.

        Args:
            program: What is planned.
            time_first: Whether what is cut in time is cut before it is cut in space: each part is then the same slice of the
                whole on all meshes, as microbatches of a pipeline are. Otherwise each rank cuts what it holds.
        """
        self.program = program
        self.time_first = time_first
        self.choices: Choices = choices_of(program)
        self._placings: dict[str, _Placing] = {node.name: _Placing() for node in program.nodes}
        self._units: list[WorkUnit] | None = None

    def axis(self, value: str, dim: int) -> int:
        """Returns the axis that cutting a dimension of a value means.

        Raises:
            PlanError: The dimension cannot be cut.
        """
        if value not in self.program.values:
            raise PlanError(f"{self.program.name} has no value {value!r}")
        axes = self.choices.axes.outermost[value]
        if not 0 <= dim < len(axes) or (axis := axes[dim]) is None:
            raise PlanError(f"dimension {dim} of {value}, of shape {list(self.program.values[value].shape)}, cannot be cut")
        return axis

    def can_cut(self, node: Node, axis: int) -> bool:
        """Whether a node can be cut along an axis."""
        return any(strategy.axis == axis for strategy in self.choices.strategies[node.name])

    def transform(
        self,
        nodes: Iterable[Node],
        axis: int | None,
        parts: int,
        kind: Cut = Cut.IN_SPACE,
        chosen: Mapping[str, Strategy] | None = None,
    ) -> None:
        """Cuts nodes along an axis. Every rank that would have a part computes a node whole if it cannot be cut so.

        Args:
            nodes: What is cut.
            axis: Of the program; None for copies.
            parts: Into how many.
            kind: Where the parts go.
            chosen: The strategy of each node by name, instead of the one that follows from the axis.

        Raises:
            PlanError: A node is cut in time already: nothing is cut in time twice.
        """
        for node in nodes:
            cuts = self._placings[node.name].cuts
            if kind is Cut.IN_TIME and any(cut.kind is Cut.IN_TIME for cut in cuts):
                raise PlanError(f"{node.name} is cut in time already")
            cuts.append(Transformation(axis, parts, kind, chosen))

    def assign(self, nodes: Iterable[Node], ranks: Sequence[int]) -> None:
        """Assigns nodes to ranks: as many as there are parts in space, the last cut varying fastest."""
        for node in nodes:
            self._placings[node.name].ranks = tuple(ranks)

    def order(self, units: Iterable[WorkUnit]) -> None:
        """Sets the order in which everything runs; otherwise the program's order, all parts of a node before the next."""
        self._units = list(units)

    def num_parts(self, node: Node) -> int:
        """In how many parts in time a node runs."""
        return prod(cut.parts for cut in self._placings[node.name].cuts if cut.kind is Cut.IN_TIME)

    def materialise(self, planner: str, cluster: Cluster, notes: Mapping[str, str] | None = None) -> Plan:
        """Builds the plan.

        Raises:
            PlanError: A node has no ranks, or others than it has parts; or the order asks for what is not made yet.
        """
        writer = _PlanWriter(self, self._placings, cluster)
        default = (WorkUnit(work=[(node, part) for part in range(self.num_parts(node))]) for node in self.program.nodes)
        for unit in self._units or default:
            writer.run(unit)
        writer.results()
        return writer.builder.build(Provenance(planner=planner, notes=dict(notes or {})), cluster=cluster.digest)


_Key: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Of a mesh: its ranks, and the sizes of its axes of space."""


def _cuts(node: Node, placing: _Placing) -> tuple[_Key, list[Transformation]]:
    cuts = [cut for cut in placing.cuts if cut.kind is not Cut.IN_TIME]
    num_parts = prod(cut.parts for cut in cuts)
    if not placing.ranks or len(placing.ranks) % num_parts:
        raise PlanError(f"{node.name} has {num_parts} parts in space, and is assigned to ranks {list(placing.ranks)}")
    if len(placing.ranks) > num_parts or not cuts:
        cuts.append(Transformation(None, len(placing.ranks) // num_parts, Cut.COPIES))
    return (placing.ranks, tuple(cut.parts for cut in cuts)), cuts


def _times(program: TensorProgram, placings: Mapping[str, _Placing]) -> dict[_Key, int]:
    """In how many parts in time each mesh works."""
    parts_of: dict[_Key, int] = {}
    for node in program.nodes:
        for cut in placings[node.name].cuts:
            if cut.kind is Cut.IN_TIME:
                key, _ = _cuts(node, placings[node.name])
                if parts_of.setdefault(key, cut.parts) != cut.parts:
                    raise PlanError(
                        f"{node.name} is cut into {cut.parts} parts in time, and others on its ranks into {parts_of[key]}"
                    )
    return parts_of


class _PlanWriter:
    """Phase 3: meshes, sources and conversions."""

    def __init__(
        self,
        recipe: Recipe,
        placings: Mapping[str, _Placing],
        cluster: Cluster,
    ) -> None:
        self.builder = PlanBuilder(recipe.program, recipe.choices.axes, seconds_on(cluster))
        self._program = recipe.program
        self._choices = recipe.choices
        self._time_first = recipe.time_first
        self._placings = placings
        self._meshes: dict[_Key, str] = {}
        self._times = _times(recipe.program, placings)
        self._lies: dict[str, tuple[str, list[Placement]]] = {}  # value -> its mesh and its placements when it was made
        self._chosen: dict[str, list[Strategy]] = {}
        self._placed: set[str] = set()

    def run(self, unit: WorkUnit) -> None:
        self.builder.forget(unit.forgotten)
        for node, part in unit.work:
            mesh, cuts = self._mesh(node)
            strategies = self._strategies(node, mesh, cuts)
            num_parts = prod(cut.parts for cut in cuts if cut.kind is Cut.IN_TIME and cut.axis is not None)
            if part < num_parts:
                self._place_sources(node, mesh, strategies)
                self.builder.apply(node, mesh, strategies, part if num_parts > 1 else None)
                for index, name in enumerate(node.outputs):
                    self._lies[name] = mesh, [strategy.outputs[index] for strategy in strategies]

    def results(self) -> None:
        """Puts each gradient where its parameter lies, what replaces a source where the source lies, the loss on all ranks."""
        owners = {value: source for source, value in (*self._program.gradients.items(), *self._program.updates.items())}
        for name in self._program.results:
            place = owners.get(name, name)
            mesh, placements = self._lies[place if place in self._lies else name]
            whole = [Replicate()] * len(placements)
            self.builder.result(name, mesh, placements if name in owners and PARTIAL not in placements else whole)

    def _mesh(self, node: Node) -> tuple[str, list[Transformation]]:
        """The mesh that a node runs on, and its cut along each axis. Nodes that are not cut in time share the mesh with nodes
        that are, and run once.
        """
        key, cuts = _cuts(node, self._placings[node.name])
        parts = self._times.get(key, 1)
        time = [cut for cut in self._placings[node.name].cuts if cut.kind is Cut.IN_TIME]
        if parts > 1:
            time = time or [Transformation(None, parts, Cut.IN_TIME)]
            cuts = [*time, *cuts] if self._time_first else [*cuts, *time]
        if key not in self._meshes:
            axes = [
                MeshAxis(name="time" if is_time else f"space{number}", size=cut.parts, is_time=is_time)
                for number, cut in enumerate(cuts)
                for is_time in [cut.kind is Cut.IN_TIME]
            ]
            self._meshes[key] = self.builder.mesh(f"mesh{len(self._meshes)}", axes, self._placings[node.name].ranks)
        return self._meshes[key], cuts

    def _strategies(self, node: Node, mesh: str, cuts: Sequence[Transformation]) -> list[Strategy]:
        if node.name not in self._chosen:
            self._chosen[node.name] = [self._strategy(node, mesh, index, cut) for index, cut in enumerate(cuts)]
        return self._chosen[node.name]

    def _strategy(self, node: Node, mesh: str, index: int, cut: Transformation) -> Strategy:
        """Along the axis, if that is possible; otherwise on partial sums, if the inputs are such; otherwise whole."""
        strategies = self._choices.strategies[node.name]
        if cut.chosen is not None:
            return cut.chosen[node.name]
        if cut.kind is Cut.IN_TIME and cut.axis is None:  # runs once, on what all parts add up to
            return strategies[0]
        for strategy in strategies:
            if cut.axis is not None and strategy.axis == cut.axis:
                return strategy
        partial = [PARTIAL if self._is_partial(name, mesh, index) else None for name in node.inputs]
        for strategy in strategies:
            if PARTIAL in partial and all(
                (p == PARTIAL) == (q == PARTIAL) for p, q in zip(strategy.inputs, partial, strict=True)
            ):
                return strategy
        return strategies[0]

    def _is_partial(self, name: str, mesh: str, index: int) -> bool:
        where, placements = self._lies.get(name, ("", []))
        return where == mesh and placements[index] == PARTIAL

    def _place_sources(self, node: Node, mesh: str, strategies: Sequence[Strategy]) -> None:
        for index, name in enumerate(node.inputs):
            if name in self._program.producers or name in self._placed:
                continue
            self._placed.add(name)
            placements = [strategy.inputs[index] for strategy in strategies]
            self.builder.source(name, mesh, placements)
            self._lies[name] = mesh, placements
