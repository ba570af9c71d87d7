"""A Monte Carlo tree search over the actions of the op groups, one after another.

A node of the tree has decided the first groups; the others do what the first one does. Each playout walks from the root to a leaf
by the bound `Q + c P sqrt(N) / (1 + n)` with `c = sqrt(children / 10)`, evaluates the leaf, adds the leaf's children, and counts
its reward on the way back. What has been tried in full is not tried again, so that a small tree is searched to its end.
Rewards are relative to data parallelism.

Source: TAG (TPDS'23); its rewards, and its choice of c.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from random import Random
from typing import TypeAlias

from dyorc.planner.planners.tag.estimate import Estimator
from dyorc.planner.planners.tag.group_actions import Action

Evaluate: TypeAlias = Callable[[Sequence[Action]], float]
"""Returns the seconds of a step, infinity if memory does not suffice."""
Prior: TypeAlias = Callable[[Sequence[Action], int], Sequence[float]]
"""Returns how promising each action of the next group is, by all actions and how many are decided; adds up to 1."""


def reward(baseline_s: float, found_s: float) -> float:
    """How much quicker than the baseline; large gains count less, and what does not run is worth -1."""
    if found_s == float("inf"):
        return -1.0
    gain = baseline_s / found_s - 1
    return gain**0.25 if gain > 1 else gain


@dataclass(frozen=True, kw_only=True)
class Game:
    """What is searched.

    Attributes:
        actions: What can be decided about each group.
        num_groups: How many groups there are.
        evaluate: Asked about one action for each group.
        baseline_s: The seconds that rewards are relative to.
    """

    actions: Sequence[Action]
    num_groups: int
    evaluate: Evaluate
    baseline_s: float


class _Node:
    __slots__ = ("action", "children", "is_done", "num_visits", "prior", "value")

    def __init__(self, action: Action | None, prior: float) -> None:
        self.action = action
        self.prior = prior
        self.num_visits = 0
        self.value = 0.0  # the mean reward
        self.children: list[_Node] | None = None
        self.is_done = False  # whether everything below has been tried


class TreeSearch:
    """One search. Not for several threads."""

    def __init__(self, game: Game, seed: int, prior: Prior | None = None) -> None:
        self._game = game
        self._prior = prior
        self._random = Random(seed)
        self._root = _Node(None, 1.0)
        self._decided: list[Action] = []
        self._known: dict[tuple[Action, ...], float] = {}

    def playouts(self) -> Iterator[tuple[tuple[Action, ...], float]]:
        """Yields what each playout tried, and its seconds; ends when everything has been tried."""
        while not self._root.is_done:
            yield self._playout()

    def state(self) -> tuple[Sequence[Action], int]:
        """Returns one action for each group where the search begins, and how many of them are decided."""
        return self._filled(self._decided), len(self._decided)

    def visits(self) -> Sequence[float]:
        """Returns which part of the playouts tried each action of the next group."""
        by_action = {child.action: child.num_visits for child in self._root.children or ()}
        total = sum(by_action.values()) or 1
        return [by_action.get(action, 0) / total for action in self._game.actions]

    def decide(self, action: Action) -> None:
        """Decides the next group: the search goes on below."""
        self._root = next(child for child in self._root.children or () if child.action == action)
        self._decided.append(action)

    def _playout(self) -> tuple[tuple[Action, ...], float]:
        path = [self._root]
        while path[-1].children:
            path.append(self._chosen(path[-1]))
        decided = [*self._decided, *(node.action for node in path[1:] if node.action)]
        actions = self._filled(decided)
        if actions not in self._known:
            self._known[actions] = self._game.evaluate(actions)
        if len(decided) < self._game.num_groups:
            self._expand(path[-1], actions, len(decided))
        else:
            path[-1].is_done = True
        self._count(path, reward(self._game.baseline_s, self._known[actions]))
        return actions, self._known[actions]

    def _filled(self, decided: Sequence[Action]) -> tuple[Action, ...]:
        first = decided[0] if decided else self._game.actions[0]
        return (*decided, *(first,) * (self._game.num_groups - len(decided)))

    def _chosen(self, node: _Node) -> _Node:
        assert node.children is not None
        factor = sqrt(len(node.children) / 10) * sqrt(node.num_visits)
        open_ones = [child for child in node.children if not child.is_done]
        return max(open_ones, key=lambda child: child.value + factor * child.prior / (1 + child.num_visits))

    def _expand(self, leaf: _Node, actions: Sequence[Action], num_decided: int) -> None:
        known = self._game.actions
        priors = self._prior(actions, num_decided) if self._prior else [1 / len(known)] * len(known)
        leaf.children = [_Node(action, prior) for action, prior in zip(known, priors, strict=True)]
        self._random.shuffle(leaf.children)  # among equals, the first is tried first

    def _count(self, path: Sequence[_Node], gained: float) -> None:
        for node in reversed(path):
            node.num_visits += 1
            node.value += (gained - node.value) / node.num_visits
            if node.children:
                node.is_done = all(child.is_done for child in node.children)


class SearchBaseline:
    """Estimates the usual plans: data parallelism, or if memory does not suffice for it, everything spread."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        context = estimator.context
        self.data_parallel_s = self.seconds(context.data_parallel)
        self.best_s = min(self.data_parallel_s, self.seconds(context.spread))

    def game(self) -> Game:
        """Returns what is searched."""
        context, baseline_s = self._estimator.context, self.data_parallel_s
        if not isfinite(baseline_s):
            baseline_s = self._estimator.estimate(context.spread).total_s
        return Game(actions=context.actions, num_groups=len(context.groups), evaluate=self.seconds, baseline_s=baseline_s)

    def seconds(self, actions: Sequence[Action]) -> float:
        """Returns what is estimated for actions; infinity if memory does not suffice."""
        estimate = self._estimator.estimate(actions)
        return estimate.total_s if estimate.fits(self._estimator.context.cluster) else float("inf")
