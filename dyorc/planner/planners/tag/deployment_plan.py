"""Builds the plan of decided actions."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from dyorc.planner.plan import MeshAxis, Plan, PlanBuilder, Provenance
from dyorc.planner.plan.adapters import seconds_on
from dyorc.planner.planners.tag.group_actions import Action, Ranks, SearchContext, place_nodes
from dyorc.planner.program import REPLICATE, Node, Placement, Strategy
from dyorc.planner.program.graph import Phase


def realise(
    scene: SearchContext,
    actions: Sequence[Action],
    provenance: Provenance | None = None,
    duplicated: AbstractSet[str] = frozenset(),
) -> Plan:
    """Builds a plan.

    Args:
        scene: The program and the cluster.
        actions: One for each op group.
        provenance: Where the decisions come from.
        duplicated: Nodes that each of their devices computes for the whole batch.
    """
    return _Realisation(scene, actions, duplicated).plan(provenance or Provenance(planner="tag"))


class _Realisation:
    def __init__(self, scene: SearchContext, actions: Sequence[Action], duplicated: AbstractSet[str]) -> None:
        self._scene = scene
        self._duplicated = duplicated
        self._where = place_nodes(scene, actions)
        self._builder = PlanBuilder(scene.program, scene.choices.axes, seconds_on(scene.cluster))
        self._meshes: dict[Ranks, str] = {}
        for name in scene.program.sources:
            for ranks in self._where.of_source[name]:
                self._builder.source(name, self._mesh(ranks), [self._begins(name, ranks)])

    def plan(self, provenance: Provenance) -> Plan:
        program = self._scene.program
        home_of = {gradient: self._where.of_source[name][0] for name, gradient in program.gradients.items()}
        home_of |= {after: self._where.of_source[before][0] for before, after in program.updates.items()}
        wanted = set(program.results)
        for node in program.nodes:
            for ranks in self._where.of_node[node.name]:
                self._builder.apply(node, self._mesh(ranks), [self._strategy(node, ranks)])
            for name in wanted.intersection(node.outputs):  # at once, so that sums of gradients overlap with what follows
                home = home_of.get(name, self._where.of_node[node.name][0])
                self._builder.result(name, self._mesh(home), [REPLICATE])
        return self._builder.build(provenance, cluster=self._scene.cluster.digest)

    def _mesh(self, ranks: Ranks) -> str:
        mesh = self._meshes.get(ranks)
        if mesh is None:
            name = "ranks-" + "-".join(map(str, ranks))
            axis = MeshAxis(name="data", size=len(ranks))
            mesh = self._meshes[ranks] = self._builder.mesh(name, [axis], ranks)
        return mesh

    def _begins(self, name: str, ranks: Ranks) -> Placement:
        return self._scene.along(len(ranks)).sources[name] if len(ranks) > 1 else REPLICATE

    def _strategy(self, node: Node, ranks: Ranks) -> Strategy:
        is_whole = len(ranks) == 1 or node.phase is Phase.UPDATE or node.name in self._duplicated
        return self._scene.choices.strategies[node.name][0] if is_whole else self._scene.along(len(ranks)).strategies[node.name]
