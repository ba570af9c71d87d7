"""Learns the graph of each workflow from what its requests do.

A request's path is worked out once for each shape of story, and then only counted: most requests of a workflow have few shapes.
Later requests weigh more, so that the graph follows the traffic: a request's weight halves in 30 s, or with the next 140 requests
if that takes longer. On the event loop's thread.
"""

from collections.abc import Container, Hashable
from typing import Any

from dyorc.engine.request_trace import RequestTrace
from dyorc.telemetry.graph_weights import GraphWeights
from dyorc.telemetry.record import RequestRecord
from dyorc.telemetry.request_paths import path_of_request

WINDOW_S = 45.0
"""The time in which a weight falls to 1/e."""
_MIN_REQUESTS = 200
"""... but not before so many more requests have come."""
_MAX_SHAPES = 512
_MAX_ITEMS = 8192
"""Calls and decisions in all shapes of a workflow together: about 1 MB."""
_MAX_SHAPE_ITEMS = 64
"""Longer stories are not kept as shapes."""
_MAX_OUTCOMES = 16
_MAX_SITES = 64
_MAX_LABEL_CHARS = 60
_MAX_NEW_ITEMS_PER_S = 1000
"""If new shapes have more calls and decisions than this in a second, fewer requests are looked at. They cost 8 us each."""
_MAX_STRIDE = 64
_HEAVY = 1e12
OTHER = "other"


class WorkflowGraph:
    """The graph of one workflow.

    Attributes:
        num_requests: All requests that ended, including those skipped to save time.
        num_looked_at: Requests that were not skipped.
        num_items: Calls and decisions in all shapes that are kept.
    """

    def __init__(self) -> None:
        self.num_requests = self.num_looked_at = self.num_items = 0
        self._weight = 1.0
        self._now_ns = 0
        self._shapes: dict[Hashable, list[Any]] = {}
        """By shape: the path, and the weight of its requests."""
        self._rest = GraphWeights()
        """Requests that no shape holds."""
        self._labels: dict[str, set[str]] = {}
        self._stride = 1
        self._num_new = 0
        self._second = 0

    def learn(self, story: RequestTrace, now_ns: int) -> None:
        """Adds a request. Cost: 2 us for one with two calls and a decision; 25 us if no other has gone that way."""
        self.num_requests += 1
        if self._stride > 1 and self.num_requests % self._stride:
            return
        self.num_looked_at += 1
        if self._now_ns:
            growth = (now_ns - self._now_ns) * (1e-9 / WINDOW_S)
            self._weight *= 1 + min(max(growth, 0.0), 1 / _MIN_REQUESTS)
        self._now_ns = now_ns
        num_items = len(story.calls) + len(story.decisions)
        shape = _shape(story) if num_items <= _MAX_SHAPE_ITEMS else None
        known = self._shapes.get(shape)
        if known is None:
            self._add(story, shape, num_items, now_ns)
        else:
            known[1] += self._weight
        if self._weight > _HEAVY:
            self._rescale()

    def _add(self, story: RequestTrace, shape: Hashable | None, num_items: int, now_ns: int) -> None:
        self._pace(num_items, now_ns)
        path = path_of_request(story, self._label)
        if shape is None:
            self._rest.add(path, self._weight)
            return
        if len(self._shapes) >= _MAX_SHAPES or self.num_items + num_items > _MAX_ITEMS:
            self._forget_shapes()
        self._shapes[shape] = [path, self._weight]
        self.num_items += num_items

    def _pace(self, num_items: int, now_ns: int) -> None:
        """Looks at fewer requests while many are new, and at all again when they are not. Shares do not depend on it."""
        second = now_ns // 1_000_000_000
        if second != self._second:
            self._second, self._num_new = second, 0
            self._stride = max(1, self._stride // 2)
        self._num_new += num_items
        if self._num_new > _MAX_NEW_ITEMS_PER_S:
            self._num_new, self._stride = 0, min(_MAX_STRIDE, self._stride * 2)

    def _forget_shapes(self) -> None:
        """Adds up all shapes, and starts again without any: frequent shapes soon come back."""
        for path, weight in self._shapes.values():
            self._rest.add(path, weight)
        self._shapes.clear()
        self.num_items = 0

    def _rescale(self) -> None:
        for known in self._shapes.values():
            known[1] /= self._weight
        self._rest.scale(1 / self._weight)
        self._weight = 1.0

    def _label(self, site: str, outcome: str) -> str:
        labels = self._labels.get(site)
        if labels is None:
            if len(self._labels) >= _MAX_SITES:
                return OTHER
            labels = self._labels[site] = set()
        label = outcome[:_MAX_LABEL_CHARS]
        if label in labels:
            return label
        if len(labels) >= _MAX_OUTCOMES:
            return OTHER
        labels.add(label)
        return label

    def weights(self) -> GraphWeights:
        """Returns all that is known, so that the latest request weighs 1. Cost: that of all shapes."""
        total = GraphWeights(num_requests=self.num_requests)
        total.merge(self._rest)
        for path, weight in self._shapes.values():
            total.add(path, weight)
        total.scale(1 / self._weight)
        return total


class WorkflowGraphs:
    """The graphs of all workflows: a `Sink`."""

    def __init__(self) -> None:
        self._graphs: dict[str, WorkflowGraph] = {}

    def take(self, record: RequestRecord) -> None:
        """Learns from a record that has a story."""
        if record.story is None:
            return
        graph = self._graphs.get(record.workflow)
        if graph is None:
            graph = self._graphs[record.workflow] = WorkflowGraph()
        graph.learn(record.story, record.ended_ns)

    def keep(self, workflows: Container[str]) -> None:
        """Forgets the graphs of all other workflows, such as versions that have left."""
        for name in [name for name in self._graphs if name not in workflows]:
            del self._graphs[name]

    def of(self, workflow: str) -> GraphWeights:
        """Returns what is known of a workflow."""
        graph = self._graphs.get(workflow)
        return GraphWeights() if graph is None else graph.weights()


def _shape(story: RequestTrace) -> Hashable:
    """Returns everything on which a request's path depends."""
    calls, decisions = story.calls, story.decisions
    places = {call.call_id: place for place, call in enumerate(calls)}
    return (
        story.is_answered,
        tuple(
            [
                (
                    call.program, call.outcome, call.decision, call.branch, call.depth, call.is_guess, call.is_repeat,
                    tuple([places.get(source) for source in call.sources]) if call.sources else (),
                )
                for call in calls
            ]
        ),
        tuple(
            [
                (
                    decision.site, decision.outcome, decision.decision, decision.branch, decision.depth,
                    tuple([places.get(source) for source in decision.sources]) if decision.sources else (),
                )
                for decision in decisions
            ]
        ),
    )  # fmt: skip
