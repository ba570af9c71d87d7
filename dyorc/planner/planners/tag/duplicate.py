"""Which operations compute the whole batch on every device, because that is cheaper than to sum gradients.

If the product that makes a gradient is computed from gathered inputs on each device, nothing is left to sum (sufficient factor
broadcasting). An integer program decides it for all operations that are replicated with all-reduce at once:

    min   sum over nodes of (their seconds for the whole batch - for a share) x_i  +  sum over values of c_v b_v
    with  b_v >= x_j - x_i    v is made by i on pieces, and j needs all of it
          b_v >= 1 - x_i      v is made by i on pieces, and what is not duplicated, or the end of the step, needs all of it
          x, b binary

c_v is the time to make all of v from its pieces: an all-gather, or an all-reduce of partial sums; the gain is that a gradient
needs none. For values from other devices, it is how much longer the whole takes than a share. The program is a minimal cut, so
that its relaxation has an integer optimum, and a thousand operations take a fraction of a second.

Source: TAG (TPDS'23). There each edge pays for its gather; here a value is gathered once for all that read it, as in our plans,
and the gain is the sum that is not paid.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dyorc.errors import PlanError
from dyorc.planner.planners.tag.estimate import RedistributionCosts
from dyorc.planner.planners.tag.group_actions import Action, Option, Ranks, SearchContext, place_nodes
from dyorc.planner.program import REPLICATE, Node, Placement, Replicate, Shard
from dyorc.planner.program.costs import cost_of
from dyorc.planner.program.graph import Phase

_FEW = 1e-9
"""Added to each operation's cost: of two choices that cost the same, the one that duplicates less."""


@dataclass(frozen=True, kw_only=True)
class Duplication:
    """The integer program.

    Attributes:
        nodes: What may be duplicated; x_i.
        extra_s: What that takes more, for each.
        whole_s: What it takes to make each value whole; b_v.
        makers: The node that makes each value, by index; None if it may not be duplicated.
        needs: Pairs of a value and a node, by index: the value is needed whole if the node is duplicated and its maker is not.
        always: Values, by index, that are needed whole unless their maker is duplicated.
    """

    nodes: tuple[str, ...]
    extra_s: tuple[float, ...]
    whole_s: tuple[float, ...]
    makers: tuple[int | None, ...]
    needs: tuple[tuple[int, int], ...]
    always: tuple[int, ...]

    def cost_s(self, chosen: Sequence[bool]) -> float:
        """The objective for a choice, with no value made whole that need not be."""
        whole = {v for v, node in self.needs if chosen[node]} | set(self.always)
        paid = [v for v in whole if (maker := self.makers[v]) is None or not chosen[maker]]
        extra_s = sum(s for s, is_chosen in zip(self.extra_s, chosen, strict=True) if is_chosen)
        return extra_s + sum(self.whole_s[v] for v in paid)


def duplication_of(context: SearchContext, actions: Sequence[Action]) -> Duplication:
    """Builds the integer program for a deployment."""
    writing = _Writer(context, actions)
    for name in writing.nodes:
        writing.add_inputs(context.program.node_named[name])
    for name in context.program.results:
        writing.add_result(name)
    return writing.duplication()


class _Writer:
    """Builds the integer program."""

    def __init__(self, context: SearchContext, actions: Sequence[Action]) -> None:
        self._context = context
        self._moves = RedistributionCosts(context)
        self._where = place_nodes(context, actions)
        self._ranks_of = self._replicated(actions)
        self.nodes = {name: index for index, name in enumerate(self._ranks_of)}
        self._values: dict[tuple[str, Ranks], int] = {}
        self._whole_s: list[float] = []
        self._makers: list[int | None] = []
        self._needs: dict[tuple[int, int], None] = {}
        self._always: dict[int, None] = {}

    def add_inputs(self, node: Node) -> None:
        ranks = self._ranks_of[node.name]
        for name, wanted in zip(node.inputs, self._context.along(len(ranks)).strategies[node.name].inputs, strict=True):
            value = self._value(name, ranks, wanted)
            if value is not None:
                self._needs[value, self.nodes[node.name]] = None
                if isinstance(wanted, Replicate):
                    self._always[value] = None

    def add_result(self, name: str) -> None:
        """A result is wanted whole by all ranks that make it."""
        maker = self._context.program.producers[name]
        if maker.name in self.nodes:
            value = self._value(name, self._ranks_of[maker.name], REPLICATE)
            if value is not None:
                self._always[value] = None

    def duplication(self) -> Duplication:
        return Duplication(
            nodes=tuple(self.nodes),
            extra_s=tuple(self._extra_s(name) for name in self.nodes),
            whole_s=tuple(self._whole_s),
            makers=tuple(self._makers),
            needs=tuple(self._needs),
            always=tuple(self._always),
        )

    def _replicated(self, actions: Sequence[Action]) -> dict[str, Ranks]:
        """The operations that may be duplicated, and their ranks."""
        ranks_of: dict[str, Ranks] = {}
        for group, action in zip(self._context.groups, actions, strict=True):
            if action.option is Option.REPLICATE:
                ranks = self._context.ranks_of(action)
                ranks_of |= {name: ranks for unit in group.units for name in unit.nodes}
        named = self._context.program.node_named
        return {name: ranks for name, ranks in ranks_of.items() if named[name].phase is not Phase.UPDATE}

    def _value(self, name: str, ranks: Ranks, wanted: Placement) -> int | None:
        """The index of a value that costs something to be whole on some ranks, or None."""
        index = self._values.get((name, ranks))
        if index is not None:
            return index
        maker = self._context.program.producers.get(name)
        before, made = self._made(name, ranks)
        cost_s = self._moves.seconds(name, (before, made), (ranks, REPLICATE)) if (before, made) != (ranks, REPLICATE) else 0.0
        if before != ranks:
            cost_s -= self._moves.seconds(name, (before, made), (ranks, wanted))
        if cost_s <= 0.0:
            return None
        index = self._values[name, ranks] = len(self._values)
        self._whole_s.append(cost_s)
        self._makers.append(self.nodes.get(maker.name) if maker and before == ranks else None)
        return index

    def _made(self, name: str, ranks: Ranks) -> tuple[Ranks, Placement]:
        """Where a value is and how it lies, seen from some ranks: theirs, if it is there, too."""
        context, maker = self._context, self._context.program.producers.get(name)
        places = self._where.of_node[maker.name] if maker else self._where.of_source[name]
        before = ranks if ranks in places else places[0]
        if len(before) == 1:
            return before, REPLICATE
        along = context.along(len(before))
        return before, along.strategies[maker.name].outputs[maker.outputs.index(name)] if maker else along.sources[name]

    def _extra_s(self, name: str) -> float:
        context, ranks = self._context, self._ranks_of[name]
        strategy = context.along(len(ranks)).strategies[name]
        if not any(isinstance(placement, Shard) for placement in (*strategy.inputs, *strategy.outputs)):
            return 0.0
        cost, cluster = cost_of(context.program.node_named[name], context.program.values), context.cluster
        return max(cluster.compute_s(cost, rank) - cluster.compute_s(cost, rank, 1 / len(ranks)) for rank in ranks)


def solve(problem: Duplication) -> frozenset[str]:
    """Returns the nodes to duplicate.

    Raises:
        PlanError: The solver fails, which it does not for a program that always has the solution of zeros.
    """
    import numpy as np  # heavy, and only planners need them
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import lil_matrix

    num_nodes, num_values = len(problem.nodes), len(problem.whole_s)
    if not num_nodes or not num_values:
        return frozenset()
    rows: list[tuple[int, int | None]] = [*problem.needs, *((v, None) for v in problem.always)]
    matrix, least = lil_matrix((len(rows), num_nodes + num_values)), np.zeros(len(rows))
    for row, (v, node) in enumerate(rows):
        matrix[row, num_nodes + v] = 1  # b_v - x_j + x_i >= 0, or b_v + x_i >= 1
        maker = problem.makers[v]
        if maker is not None:
            matrix[row, maker] += 1
        if node is None:
            least[row] = 1
        else:
            matrix[row, node] -= 1
    scale = max(*problem.extra_s, *problem.whole_s)
    costs = np.array([*(s / scale + _FEW for s in problem.extra_s), *(s / scale for s in problem.whole_s)])
    rules = LinearConstraint(matrix.tocsr(), lb=least)  # pyright: ignore[reportArgumentType] SciPy says float, and takes arrays
    solution = milp(costs, constraints=rules, integrality=1, bounds=Bounds(0, 1))
    if solution.x is None:
        raise PlanError(f"the integer program of duplicated operations was not solved: {solution.message}")
    return frozenset(name for name, x in zip(problem.nodes, solution.x, strict=False) if x > 0.5)
