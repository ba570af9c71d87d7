"""The planner: groups, searches, and confirms by the simulator what the estimate finds best."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan, PlanBuilder, Provenance
from dyorc.planner.plan.adapters import seconds_on
from dyorc.planner.planners import Progress
from dyorc.planner.planners.pricing import BestPlan
from dyorc.planner.planners.tag.duplicate import duplication_of, solve
from dyorc.planner.planners.tag.estimate import Estimator
from dyorc.planner.planners.tag.group_actions import Action, Ranks, SearchContext, place_nodes
from dyorc.planner.planners.tag.policy_network import NetworkPrior, load_network, one_thread
from dyorc.planner.planners.tag.tree_search import SearchBaseline, TreeSearch
from dyorc.planner.program import REPLICATE, Node, Strategy, TensorProgram

_NUM_CONFIRMED = 8
"""How many of the best estimates are simulated in the end."""
_BETTER = 0.99
"""What an estimate must be of the best one, to be simulated at once."""


def tag(
    program: TensorProgram,
    cluster: Cluster,
    *,
    playouts: int = 200,
    max_groups: int = 40,
    seed: int = 0,
    guided: bool = True,
    duplicate: bool = True,
    max_search_s: float = 60.0,
    progress: Progress | None = None,
) -> Plan:
    """Plans groups of operations on groups of devices.

    Without the weights of its network it searches with no action more promising than others; the plan's notes say so. Ctrl-C and
    the limit of seconds end the search with the best plan so far; before there is one, Ctrl-C is passed on.

    Args:
        program: What is distributed.
        cluster: Where it runs.
        playouts: How many deployments the search tries.
        max_groups: How many op groups there may be.
        seed: Of the search.
        guided: Whether the network says which actions are promising.
        duplicate: Whether operations may compute the whole batch on each device if that saves a sum of gradients.
        max_search_s: How long it may search. Within it, the same seed finds the same plan.
        progress: Called with the progress of the search.

    Raises:
        PlanError: No deployment has the memory that it needs.
    """
    estimator = Estimator(SearchContext(program, cluster, max_groups))
    network = load_network() if guided else None
    prior = NetworkPrior(estimator, network) if network else None
    with one_thread():
        best = BestPlan(program, cluster, progress=progress, reorder=False, must_fit=True)
        return _Planner(estimator, best, seed, prior, may_duplicate=duplicate).plan(playouts, max_search_s)


class _Planner:
    def __init__(
        self, estimator: Estimator, best: BestPlan, seed: int, prior: NetworkPrior | None, *, may_duplicate: bool
    ) -> None:
        self._context = estimator.context
        self._estimator = estimator
        self._seed = seed
        self._prior = prior
        self._may_duplicate = may_duplicate
        self._num_duplicated = 0
        self._best = best
        self._best_actions: tuple[Action, ...] = ()
        self._estimates: dict[tuple[Action, ...], float] = {}
        self._simulated: set[tuple[Action, ...]] = set()

    def plan(self, playouts: int, max_search_s: float) -> Plan:
        num_done = 0
        with self._best.until_stopped():
            for num_done in self._search(playouts):
                self._best.report(num_done / playouts)
                if self._best.search_s > max_search_s:
                    break
            else:
                for actions in self._most_promising():
                    self._confirm(actions)
            self._duplicate()
        counts = {"groups": len(self._context.groups), "playouts": num_done, "duplicated": self._num_duplicated}
        notes = {name: str(count) for name, count in counts.items()} | {"prior": "network" if self._prior else "uniform"}
        error = f"{self._context.program.name} has no deployment on {self._context.cluster.name} that memory suffices for"
        return self._best.finish(error, Provenance(planner="tag", seed=self._seed, notes=notes))

    def _search(self, playouts: int) -> Iterator[int]:
        """Yields how many playouts are done. Actions with a better estimate than any before are simulated at once."""
        for known in (self._context.data_parallel, self._context.spread):
            self._confirm(known)
        start = SearchBaseline(self._estimator)
        best_s = start.best_s
        search = TreeSearch(start.game(), self._seed, self._prior)
        for number, (actions, found_s) in zip(range(1, playouts + 1), search.playouts(), strict=False):
            self._estimates[actions] = found_s
            if found_s < best_s * _BETTER:
                best_s = found_s
                self._confirm(actions)
            yield number

    def _most_promising(self) -> Sequence[tuple[Action, ...]]:
        return sorted(self._estimates, key=lambda actions: self._estimates[actions])[:_NUM_CONFIRMED]

    def _confirm(self, actions: tuple[Action, ...]) -> None:
        """Simulates a deployment, and keeps it if it is the best."""
        if actions in self._simulated:
            return
        self._simulated.add(actions)
        if self._best.offer(build_plan(self._context, actions)):
            self._best_actions = actions

    def _duplicate(self) -> None:
        """Duplicates operations of the best deployment and of data parallelism, and keeps what the simulator finds better."""
        if not self._best.has_plan or not self._may_duplicate:
            return
        for actions in dict.fromkeys((self._best_actions, self._context.data_parallel)):
            duplicated = solve(duplication_of(self._context, actions))
            if duplicated and self._best.offer(build_plan(self._context, actions, duplicated=duplicated)):
                self._num_duplicated = len(duplicated)


def build_plan(
    context: SearchContext,
    actions: Sequence[Action],
    duplicated: AbstractSet[str] = frozenset(),
) -> Plan:
    """Builds a plan.

    Args:
        scene: The program and the cluster.
        actions: One for each op group.
        duplicated: Nodes that each of their devices computes for the whole batch.
    """
    return _PlanWriter(context, actions, duplicated).plan()


class _PlanWriter:
    def __init__(self, context: SearchContext, actions: Sequence[Action], duplicated: AbstractSet[str]) -> None:
        self._context = context
        self._duplicated = duplicated
        self._where = place_nodes(context, actions)
        self._builder = PlanBuilder(context.program, context.choices.axes, seconds_on(context.cluster))
        self._meshes: dict[Ranks, str] = {}
        for name in context.program.sources:
            for ranks in self._where.of_source[name]:
                self._builder.source(name, self._mesh(ranks), [context.source_placement(name, ranks)])

    def plan(self) -> Plan:
        program = self._context.program
        home_of = {gradient: self._where.of_source[name][0] for name, gradient in program.gradients.items()}
        home_of |= {after: self._where.of_source[before][0] for before, after in program.updates.items()}
        results = set(program.results)
        for node in program.nodes:
            for ranks in self._where.of_node[node.name]:
                self._builder.apply(node, self._mesh(ranks), [self._strategy(node, ranks)])
            for name in node.outputs:
                if name in results:  # at once, so that sums of gradients overlap with what follows
                    home = home_of.get(name, self._where.of_node[node.name][0])
                    self._builder.result(name, self._mesh(home), [REPLICATE])
        return self._builder.build(Provenance(planner="tag"), cluster=self._context.cluster.digest)

    def _mesh(self, ranks: Ranks) -> str:
        mesh = self._meshes.get(ranks)
        if mesh is None:
            name = "ranks-" + "-".join(map(str, ranks))
            axis = MeshAxis(name="data", size=len(ranks))
            mesh = self._meshes[ranks] = self._builder.mesh(name, [axis], ranks)
        return mesh

    def _strategy(self, node: Node, ranks: Ranks) -> Strategy:
        is_duplicated = node.name in self._duplicated
        return self._context.choices.strategies[node.name][0] if is_duplicated else self._context.strategy(node, ranks)
