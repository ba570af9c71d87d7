"""Graphs, and their edges in a grid of chunks: column j has the edges into vertex chunk j, row i those out of chunk i."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import torch

Order = Literal["natural", "random", "metis"]


@dataclass(frozen=True, eq=False)
class Graph:
    """A directed graph.

    Attributes:
        num_vertices: How many there are.
        sources: Of each edge, `[edges]` of int64.
        targets: Of each edge, alike.
    """

    num_vertices: int
    sources: torch.Tensor
    targets: torch.Tensor

    @property
    def num_edges(self) -> int:
        """How many edges there are."""
        return len(self.sources)

    @cached_property
    def scales(self) -> torch.Tensor:
        """For each vertex, the root of the inverse of its degree; 1 where it has none. `[vertices, 1]` of float64."""
        degree = torch.bincount(self.targets, minlength=self.num_vertices).clamp(min=1).double()
        return degree.rsqrt().unsqueeze(1)

    def reordered(self, order: Order, num_parts: int = 8, seed: int = 0) -> tuple["Graph", torch.Tensor]:
        """Returns the graph with vertices in another order, and for each new vertex the old one.

        Args:
            order: `metis` puts vertices together that have many edges between them.
            num_parts: Into how many groups METIS puts them.
            seed: Of the random order.
        """
        if order == "natural":
            old = torch.arange(self.num_vertices)
        elif order == "random":
            old = torch.randperm(self.num_vertices, generator=torch.Generator().manual_seed(seed))
        else:
            old = torch.argsort(self._parts(num_parts), stable=True)
        new = torch.empty_like(old)
        new[old] = torch.arange(self.num_vertices)
        return Graph(self.num_vertices, new[self.sources], new[self.targets]), old

    def _parts(self, num_parts: int) -> torch.Tensor:
        import pymetis

        ends = torch.stack([torch.cat([self.sources, self.targets]), torch.cat([self.targets, self.sources])])
        ends = torch.unique(ends[:, ends[0] != ends[1]], dim=1)
        starts = torch.searchsorted(ends[0].contiguous(), torch.arange(self.num_vertices + 1))
        _, parts = pymetis.part_graph(num_parts, pymetis.CSRAdjacency(starts.tolist(), ends[1].tolist()))
        return torch.tensor(parts)


@dataclass(frozen=True)
class Chunk:
    """The edges from one vertex chunk to another.

    Attributes:
        sources: Of each edge, counted within their chunk of vertices.
        targets: Of each edge, counted within theirs.
        used: The source vertices that have an edge here, counted within their chunk.
        packed: Of each edge, its source's place in `used`.
    """

    sources: torch.Tensor
    targets: torch.Tensor
    used: torch.Tensor
    packed: torch.Tensor


class Grid:
    """A graph's edges in chunks.

    Args:
        graph: The graph; neighbouring numbers should be neighbours.
        num_chunks: Of vertices: there are the square of it of edges.
    """

    def __init__(self, graph: Graph, num_chunks: int) -> None:
        self.graph = graph
        self.num_chunks = num_chunks
        bounds = torch.linspace(0, graph.num_vertices, num_chunks + 1).long()
        self.rows = [slice(int(begin), int(end)) for begin, end in pairwise(bounds)]
        row = torch.searchsorted(bounds, graph.sources, right=True) - 1
        column = torch.searchsorted(bounds, graph.targets, right=True) - 1
        order = torch.argsort(column * num_chunks + row, stable=True)
        counts = torch.bincount(column * num_chunks + row, minlength=num_chunks**2).tolist()
        self._chunks: dict[tuple[int, int], Chunk] = {}
        for number, edges in enumerate(order.split(counts)):
            j, i = divmod(number, num_chunks)
            if len(edges):
                sources, targets = graph.sources[edges] - bounds[i], graph.targets[edges] - bounds[j]
                used, packed = torch.unique(sources, return_inverse=True)
                self._chunks[i, j] = Chunk(sources, targets, used, packed)

    def chunk(self, i: int, j: int) -> Chunk | None:
        """Returns the edges from vertex chunk i to j, if there are any."""
        return self._chunks.get((i, j))

    @cached_property
    def max_edges(self) -> int:
        """The edges of the largest chunk."""
        return max(len(chunk.sources) for chunk in self._chunks.values())

    def largest(self, x: torch.Tensor) -> tuple[Graph, torch.Tensor]:
        """Returns the chunk with the most edges as its own graph, sources before targets, and its rows of `x`."""
        (i, j), chunk = max(self._chunks.items(), key=lambda item: len(item[1].sources))
        there, here = x[self.rows[i]], x[self.rows[j]]
        return Graph(len(there) + len(here), chunk.sources, chunk.targets + len(there)), torch.cat([there, here])


def rmat(scale: int, num_edges: int, seed: int = 0) -> Graph:
    """Draws a graph whose degrees follow a power law (R-MAT with 0.57, 0.19, 0.19, 0.05), of 2 ** scale vertices."""
    generator = torch.Generator().manual_seed(seed)
    quarter = torch.multinomial(torch.tensor([0.57, 0.19, 0.19, 0.05]), scale * num_edges, True, generator=generator)
    bits = quarter.view(scale, num_edges)
    places = (2 ** torch.arange(scale)).unsqueeze(1)
    return Graph(2**scale, ((bits // 2) * places).sum(0), ((bits % 2) * places).sum(0))


def random_graph(num_vertices: int, num_edges: int, seed: int = 0) -> Graph:
    """Draws a graph with edges between any two vertices alike."""
    sources, targets = torch.randint(num_vertices, (2, num_edges), generator=torch.Generator().manual_seed(seed)).unbind(0)
    return Graph(num_vertices, sources, targets)


def grid_graph(side: int) -> Graph:
    """Returns a square of `side` by `side` vertices, each with edges to and from its neighbours."""
    at = torch.arange(side * side).view(side, side)
    pairs = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    ends = torch.cat([a.flatten() for a, _ in pairs])
    other = torch.cat([b.flatten() for _, b in pairs])
    return Graph(side * side, torch.cat([ends, other]), torch.cat([other, ends]))
