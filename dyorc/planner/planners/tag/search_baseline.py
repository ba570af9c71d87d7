"""Where a search begins: what its rewards are relative to."""

from collections.abc import Sequence
from math import isfinite

from dyorc.planner.planners.tag.estimate import Estimator, has_memory
from dyorc.planner.planners.tag.group_actions import Action
from dyorc.planner.planners.tag.tree_search import Game


class SearchBaseline:
    """Estimates what everybody knows: data parallelism, or if memory does not suffice for it, everything spread."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        scene = estimator.scene
        self.data_parallel_s = self.seconds(scene.data_parallel)
        self.best_s = min(self.data_parallel_s, self.seconds(scene.spread))

    def game(self) -> Game:
        """Returns what is searched."""
        scene, baseline_s = self._estimator.scene, self.data_parallel_s
        if not isfinite(baseline_s):
            baseline_s = self._estimator.estimate(scene.spread).total_s
        return Game(actions=scene.actions, num_groups=len(scene.groups), evaluate=self.seconds, baseline_s=baseline_s)

    def seconds(self, actions: Sequence[Action]) -> float:
        """Returns what is estimated for actions; infinity if memory does not suffice."""
        estimate = self._estimator.estimate(actions)
        return estimate.total_s if has_memory(self._estimator.scene, estimate) else float("inf")
