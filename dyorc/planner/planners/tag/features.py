"""What the network sees of a search: op groups and machines as nodes of one graph, with five kinds of edges between them.

    link         machine - machine    bytes per second
    prev, succ   group - group        bytes that pass between them, in the program's order and against it
    place        group -> machine     how long the group takes there, and whether it has been put there
    serve        machine -> group     the same

Times are parts of the norm of all groups' times, bandwidths of the largest, and bytes of what the largest moves in that time: so
models and clusters of any size look alike. Nothing depends on the order of the nodes.

Source: TAG (TPDS'23), the features of its code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from dyorc.planner.planners.tag.estimate import Estimate
from dyorc.planner.planners.tag.group_actions import Action, Option, SearchContext
from dyorc.planner.program.costs import costs_of

NUM_GROUP_FEATURES, NUM_MACHINE_FEATURES, NUM_EDGE_FEATURES, NUM_OPTIONS = 13, 5, 5, len(Option)
_SHARES = (1.0, 0.5, 0.25, 0.125)
_OPTIONS = list(Option)
_LARGEST = 20.0
"""Features that grow with how bad a deployment is end here."""


class EdgeKind(IntEnum):
    """The kinds of edges."""

    LINK = 0
    PREV = 1
    SUCC = 2
    PLACE = 3
    SERVE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGraph:
    """What the network sees, as arrays of float32 unless said otherwise. Nodes are groups, then machines.

    Attributes:
        groups: `[group, feature]`.
        machines: `[machine, feature]`.
        edges: `[target, source, feature]`; what a kind of edge has fewer of is 0.
        is_edge: `[kind, target, source]` of bool.
        current: The group that is decided next.
        placements: `[action, machine]`: 1 where an action has the machine.
        options: `[action, option]`: 1 at the action's option.
    """

    groups: np.ndarray
    machines: np.ndarray
    edges: np.ndarray
    is_edge: np.ndarray
    current: int
    placements: np.ndarray
    options: np.ndarray


class Features:
    """Makes graphs of one scene: what never changes is found once."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context
        self._times_s = _times_s(context)
        self._scale_s = float(np.linalg.norm(self._times_s[:, :, 0].mean(axis=1))) or 1.0
        self._fastest = max(link.bytes_per_s for link in context.cluster.links) if context.cluster.links else 1.0
        self._groups = self._group_features()
        self._machines = self._machine_features()
        self._edges, self._is_edge = self._edge_features()
        placed = [[float(number in action.machines) for number in range(len(context.machines))] for action in context.actions]
        self._placements = np.array(placed, np.float32)
        self._options = np.eye(NUM_OPTIONS, dtype=np.float32)[[_OPTIONS.index(action.option) for action in context.actions]]

    def graph(self, actions: Sequence[Action], num_decided: int, estimate: Estimate) -> FeatureGraph:
        """Makes the graph of a state of the search.

        Args:
            actions: One for each group; those of the first ones are decided.
            num_decided: How many.
            estimate: Of all these actions.
        """
        num_groups, context = len(self._groups), self._context
        groups, machines, edges = self._groups.copy(), self._machines.copy(), self._edges.copy()
        for number, action in enumerate(actions):
            groups[number, 6 + _OPTIONS.index(action.option)] = 1.0
            for machine in action.machines:
                edges[number, num_groups + machine, 4] = edges[num_groups + machine, number, 4] = 1.0
        groups[:, 9] = np.minimum(np.array(estimate.spans_s) / self._scale_s, _LARGEST)
        groups[:, 10] = np.minimum(np.array(estimate.idle_s) / self._scale_s / context.cluster.num_ranks, _LARGEST)
        groups[:num_decided, 11] = 1.0
        groups[num_decided, 12] = 1.0
        devices = context.cluster.devices
        for number, ranks in enumerate(context.machines):
            fullest = max(estimate.memory_bytes[rank] / devices[rank].memory_bytes for rank in ranks)
            machines[number, 3] = min(fullest, _LARGEST)
            machines[number, 4] = sum(estimate.busy_s[rank] for rank in ranks) / len(ranks) / (estimate.total_s or 1.0)
        return FeatureGraph(
            groups=groups,
            machines=machines,
            edges=edges,
            is_edge=self._is_edge,
            current=num_decided,
            placements=self._placements,
            options=self._options,
        )

    def _size(self, num_bytes: float) -> float:
        return min(num_bytes / (self._scale_s * self._fastest), _LARGEST)

    def _group_features(self) -> np.ndarray:
        context, program = self._context, self._context.program
        features = np.zeros((len(context.groups), NUM_GROUP_FEATURES), np.float32)
        features[:, :4] = self._times_s.mean(axis=1) / self._scale_s
        for number, group in enumerate(context.groups):
            inside = {unit.nodes[0] for unit in group.units}
            features[number, 4] = self._size(sum(program.values[name].num_bytes for unit in group.units for name in unit.sources))
            within = [size for (source, target), size in context.grouping.edges.items() if source in inside and target in inside]
            features[number, 5] = self._size(sum(within))
        return features

    def _machine_features(self) -> np.ndarray:
        context = self._context
        features = np.zeros((len(context.machines), NUM_MACHINE_FEATURES), np.float32)
        for number, ranks in enumerate(context.machines):
            memory = sum(context.cluster.devices[rank].memory_bytes for rank in ranks) / len(ranks)
            inside = context.cluster.link_between(ranks[0], ranks[1]).bytes_per_s if len(ranks) > 1 else 0.0
            features[number, :3] = len(ranks) / 4, self._size(memory), inside / self._fastest
        return features

    def _edge_features(self) -> tuple[np.ndarray, np.ndarray]:
        context, num_groups, num_machines = self._context, len(self._context.groups), len(self._context.machines)
        total = num_groups + num_machines
        edges, is_edge = np.zeros((total, total, NUM_EDGE_FEATURES), np.float32), np.zeros((len(EdgeKind), total, total), bool)
        machines = range(num_groups, total)
        for source in machines:
            for target in machines:
                if source != target:
                    ranks = context.machines[source - num_groups][0], context.machines[target - num_groups][0]
                    edges[source, target, 0] = context.cluster.link_between(*ranks).bytes_per_s / self._fastest
                    is_edge[EdgeKind.LINK, source, target] = True
        for (before, after), num_bytes in _between(context).items():
            edges[after, before, 0] += self._size(num_bytes)
            edges[before, after, 0] += self._size(num_bytes)
            is_edge[EdgeKind.PREV, after, before] = is_edge[EdgeKind.SUCC, before, after] = True
        times = (self._times_s / self._scale_s).astype(np.float32)
        edges[:num_groups, num_groups:, :4] = times
        edges[num_groups:, :num_groups, :4] = times.transpose(1, 0, 2)
        is_edge[EdgeKind.PLACE, num_groups:, :num_groups] = True
        is_edge[EdgeKind.SERVE, :num_groups, num_groups:] = True
        return edges, is_edge


def _times_s(context: SearchContext) -> np.ndarray:
    """How long each group takes on a device of each machine, for each part of the batch: `[group, machine, part]`."""
    costs = costs_of(context.program)
    return np.array(
        [
            [
                [
                    sum(context.cluster.compute_s(costs[name], ranks[0], share) for unit in group.units for name in unit.nodes)
                    for share in _SHARES
                ]
                for ranks in context.machines
            ]
            for group in context.groups
        ]
    )


def _between(context: SearchContext) -> dict[tuple[int, int], int]:
    """Bytes from each group to each other one."""
    program, num_bytes = context.program, dict[tuple[int, int], int]()
    group_of = {name: n for n, group in enumerate(context.groups) for unit in group.units for name in unit.nodes}
    for name, producer in program.producers.items():
        source = group_of.get(producer.name)
        for target in dict.fromkeys(group_of.get(reader.name) for reader in program.consumers[name]):
            if source is not None and target is not None and source != target:
                num_bytes[source, target] = num_bytes.get((source, target), 0) + program.values[name].num_bytes
    return num_bytes
