"""A layer on a whole graph: with a tensor for all edges, with projections at edges or after sums, or by a sparse product."""

import torch

from benchmarks.papers.models.gnn.graph import Graph
from benchmarks.papers.models.gnn.layers import SagaLayer


def whole(layer: SagaLayer, graph: Graph, x: torch.Tensor) -> torch.Tensor:
    """Computes it stage by stage, with vertices' part at vertices (NGra's operator motion).

    Args:
        layer: The layer.
        graph: The graph.
        x: `[vertices, features]`.
    """
    scale = graph.scales.to(x.dtype)
    source, target = layer.project(x, scale)
    messages = layer.message(source[graph.sources], target[graph.targets])
    return layer.update(x, scale, _gathered(layer, graph, messages))


def unhoisted(layer: SagaLayer, graph: Graph, x: torch.Tensor) -> torch.Tensor:
    """Computes the same with all work for edges at edges, as programs are written that know no better."""
    scale = graph.scales.to(x.dtype)
    source, _ = layer.project(x[graph.sources], scale[graph.sources])
    _, target = layer.project(x[graph.targets], scale[graph.targets])
    return layer.update(x, scale, _gathered(layer, graph, layer.message(source, target)))


def fused(layer: SagaLayer, graph: Graph, x: torch.Tensor) -> torch.Tensor:
    """Computes the same without a tensor for edges.

    Raises:
        ValueError: The layer's messages are more than what sources project.
    """
    _check_linear(layer)
    scale = graph.scales.to(x.dtype)
    source, _ = layer.project(x, scale)
    return layer.update(x, scale, _multiplied(graph, source))


def sums_first(layer: SagaLayer, graph: Graph, x: torch.Tensor, *, is_fused: bool = False) -> torch.Tensor:
    """Computes the same by adding up features, and projecting the sums: less is moved where features are fewer than projections.

    Args:
        layer: The layer.
        graph: The graph.
        x: `[vertices, features]`.
        is_fused: Add up by a sparse product, without a tensor for edges.

    Raises:
        ValueError: The layer's messages are more than what sources project.
    """
    _check_linear(layer)
    scale = graph.scales.to(x.dtype)
    weighted = layer.weighted(x, scale)
    sums = _multiplied(graph, weighted) if is_fused else _gathered(layer, graph, weighted[graph.sources])
    gathered, _ = layer.project(sums, torch.ones_like(scale))
    return layer.update(x, scale, gathered)


def _check_linear(layer: SagaLayer) -> None:
    if not layer.is_linear:
        raise ValueError(f"{type(layer).__name__} computes something at edges: no sparse product does that")


def _multiplied(graph: Graph, rows: torch.Tensor) -> torch.Tensor:
    """Adds up at each vertex the rows of vertices that have an edge to it, as a product with the sparse matrix of edges."""
    size = (graph.num_vertices, graph.num_vertices)
    ones = torch.ones(graph.num_edges, dtype=rows.dtype)
    adjacency = torch.sparse_coo_tensor(torch.stack([graph.targets, graph.sources]), ones, size, check_invariants=False)
    return torch.sparse.mm(adjacency, rows)


def _gathered(layer: SagaLayer, graph: Graph, messages: torch.Tensor) -> torch.Tensor:
    if layer.gather == "sum":
        return messages.new_zeros(graph.num_vertices, messages.shape[1]).index_add(0, graph.targets, messages)
    values, logits = messages[:, :-1], messages[:, -1]
    highest = logits.detach().new_full((graph.num_vertices,), -torch.inf)
    highest = highest.scatter_reduce(0, graph.targets, logits.detach(), "amax")
    weights = (logits - highest[graph.targets]).exp()
    total = weights.new_zeros(graph.num_vertices).index_add(0, graph.targets, weights)
    mixed = values.new_zeros(graph.num_vertices, values.shape[1]).index_add(0, graph.targets, values * weights.unsqueeze(1))
    return mixed / total.clamp(min=torch.finfo(total.dtype).tiny).unsqueeze(1)
