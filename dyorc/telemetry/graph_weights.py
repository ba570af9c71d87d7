"""The learned graph of a workflow: the paths of many requests, added up by weight. Plain objects, no I/O."""

from collections.abc import Iterable, Mapping
from typing import Any

from dyorc.telemetry.request_paths import ANSWER, INPUT, EdgeUse, PathEdge, PathNode, RequestPath

_MIN_SHARE = 0.0005
"""Parts used by a smaller share of the requests are not shown."""


class GraphWeights:
    """Paths of requests, added up.

    Attributes:
        num_requests: The number of requests, regardless of weight.
        weight: The total weight of the requests.
        nodes: How many times each node was executed.
        edges: How each edge was used.
    """

    def __init__(self, num_requests: int = 0) -> None:
        self.num_requests = num_requests
        self.weight = 0.0
        self.nodes: dict[PathNode, float] = {}
        self.edges: dict[PathEdge, EdgeUse] = {}

    def add(self, path: RequestPath, weight: float) -> None:
        """Adds requests that all took this path."""
        self.weight += weight
        self._add(path.nodes, path.edges, weight)

    def merge(self, other: "GraphWeights") -> None:
        """Adds another sum."""
        self.num_requests += other.num_requests
        self.weight += other.weight
        self._add(other.nodes, other.edges, 1.0)

    def _add(self, nodes: Mapping[PathNode, float], edges: Mapping[PathEdge, EdgeUse], weight: float) -> None:
        for node, number in nodes.items():
            self.nodes[node] = self.nodes.get(node, 0.0) + number * weight
        for edge, use in edges.items():
            total = self.edges.get(edge)
            if total is None:
                total = self.edges[edge] = EdgeUse()
            total.number += use.number * weight
            total.num_sources += use.num_sources * weight
            total.num_guessed += use.num_guessed * weight

    def scale(self, factor: float) -> None:
        """Multiplies all weights."""
        self.weight *= factor
        self.nodes = {node: number * factor for node, number in self.nodes.items()}
        for use in self.edges.values():
            use.number *= factor
            use.num_sources *= factor
            use.num_guessed *= factor

    # Between processes, and for people

    def as_values(self) -> dict[str, Any]:
        """Returns it as plain values, for `of_values`."""
        return {
            "num_requests": self.num_requests,
            "weight": self.weight,
            "nodes": [[*node, number] for node, number in self.nodes.items()],
            "edges": [
                [*edge.source, *edge.target, edge.label, use.number, use.num_sources, use.num_guessed]
                for edge, use in self.edges.items()
            ],
        }

    @classmethod
    def of_values(cls, values: dict[str, Any]) -> "GraphWeights":
        """Returns what `as_values` was called on."""
        total = cls(values["num_requests"])
        total.weight = values["weight"]
        total.nodes = {PathNode(kind, name): number for kind, name, number in values["nodes"]}
        for from_kind, from_name, to_kind, to_name, label, *numbers in values["edges"]:
            total.edges[PathEdge(PathNode(from_kind, from_name), PathNode(to_kind, to_name), label)] = EdgeUse(*numbers)
        return total

    def report(self, programs: Iterable[str], requests_per_s: float) -> dict[str, Any]:
        """Returns the graph as plain values, without very rare nodes and edges.

        Args:
            programs: The programs that the workflow may call; they are shown even if no request has called them.
            requests_per_s: The workflow's true rate.
        """
        weight = self.weight or 1.0
        nodes = {INPUT: weight, ANSWER: 0.0} | {PathNode("program", name): 0.0 for name in programs}
        nodes |= {node: number for node, number in sorted(self.nodes.items()) if node in nodes or number / weight >= _MIN_SHARE}
        edges = {  # in a stable order
            edge: use
            for edge, use in sorted(self.edges.items(), key=lambda item: item[0])
            if use.number / weight >= _MIN_SHARE and edge.source in nodes and edge.target in nodes
        }
        return {
            "num_requests": self.num_requests,
            "nodes": [_node(node, number / weight, requests_per_s) for node, number in nodes.items()],
            "edges": [_edge(edge, use, nodes[edge.source], use.number / weight * requests_per_s) for edge, use in edges.items()],
        }


def _node(node: PathNode, per_request: float, requests_per_s: float) -> dict[str, Any]:
    return {
        "id": _id(node),
        "kind": node.kind,
        "name": node.name,
        "per_request": round(per_request, 4),
        "calls_per_s": round(per_request * requests_per_s, 3),
    }


def _edge(edge: PathEdge, use: EdgeUse, num_sources: float, per_s: float) -> dict[str, Any]:
    return {
        "source": _id(edge.source),
        "target": _id(edge.target),
        "label": edge.label,
        "share": round(min(1.0, use.num_sources / num_sources), 4) if num_sources else 0.0,
        "per_s": round(per_s, 3),
        "guessed_share": round(use.num_guessed / use.number, 4),
    }


def _id(node: PathNode) -> str:
    """Returns the id: a decision's site, a program's name; no program is named like the other two."""
    return node.name if node.kind in ("program", "decision") else f"({node.name})"
