"""A layer on a graph that does not fit: vertices' features lie in the host's memory, and chunks of edges are computed one by one.

Forward, column by column: what arrives at one chunk of vertices is added up while the chunks of sources pass by. Backward, row by
row, each chunk of edges computes its messages again rather than keep them. So the device holds two chunks of vertices and one of
edges, however many edges there are. What is in the host's memory is not counted.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch

from benchmarks.papers.models.gnn.graph import Chunk, Graph, Grid
from benchmarks.papers.models.gnn.layers import SagaLayer
from dyorc.planner.memory import TensorCounter

_Run = Callable[..., tuple[torch.Tensor, ...]]


@dataclass(eq=False)
class Streaming:
    """How a graph is streamed, and what that took.

    Attributes:
        grid: The chunks.
        counter: Counts the device's bytes, and enforces its limit; None: nothing is counted.
        selective: Send only source vertices that have an edge in the chunk, where at most this part of them has; 0: all always.
        moved_bytes: What went from the host to the device so far.
    """

    grid: Grid
    counter: TensorCounter | None = None
    selective: float = 0.5
    moved_bytes: int = 0

    def on_device(self) -> AbstractContextManager[Any]:
        """Enter it for what happens on the device."""
        return self.counter or nullcontext()

    def load(self, rows: torch.Tensor) -> torch.Tensor:
        """Copies rows to the device."""
        self.moved_bytes += rows.numel() * rows.element_size()
        return rows.clone()

    def load_sources(self, x: torch.Tensor, i: int, chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Copies the rows that a chunk of edges reads.

        Returns:
            The rows, each edge's row in them, and which rows of the chunk of vertices they are; None: all.
        """
        rows = x[self.grid.rows[i]]
        if len(chunk.used) <= self.selective * len(rows):
            return self.load(rows[chunk.used]), chunk.packed, chunk.used
        return self.load(rows), chunk.sources, None


def streamed(layer: SagaLayer, x: torch.Tensor, streaming: Streaming) -> torch.Tensor:
    """Computes a layer chunk by chunk; its gradients, too.

    Args:
        layer: The layer.
        x: `[vertices, features]`.
        streaming: How.

    Raises:
        MemoryError: A chunk needs more than the device's limit: take more chunks.
    """
    scale, parameters = streaming.grid.graph.scales.to(x.dtype), tuple(layer.parameters())
    source, target = _VertexStage.apply(layer.project, streaming, 2, x, scale, *parameters)
    gathered = _EdgeStage.apply(layer, streaming, source, target)

    def update(x: torch.Tensor, scale: torch.Tensor, gathered: torch.Tensor) -> tuple[torch.Tensor]:
        return (layer.update(x, scale, _normalized(layer, gathered)),)

    return _VertexStage.apply(update, streaming, 3, x, scale, gathered, *parameters)[0]


def num_chunks_for(graph: Graph, widths: Sequence[int], limit_bytes: int, element_bytes: int = 4) -> int:
    """Returns the smallest power of two of chunks whose working set fits (section 4 of the paper, with two buffers for sources).

    Args:
        graph: The graph.
        widths: Of what is projected at sources, of what is gathered, and of features.
        limit_bytes: The device's memory.
        element_bytes: Of one number.

    Raises:
        ValueError: Not even single vertices fit.
    """
    num_chunks = 1
    while num_chunks <= graph.num_vertices:
        if working_set_bytes(graph, num_chunks, widths, element_bytes) <= limit_bytes:
            return num_chunks
        num_chunks *= 2
    raise ValueError(f"not even one vertex at a time fits into {limit_bytes:,} bytes")


def working_set_bytes(graph: Graph, num_chunks: int, widths: Sequence[int], element_bytes: int = 4) -> int:
    """Returns what so many chunks need at most, in training; see `num_chunks_for`."""
    projected, gathered, features = widths
    of_vertices = ceil(graph.num_vertices / num_chunks) * (2 * projected + gathered + 2 * features)
    of_edges = Grid(graph, num_chunks).max_edges * (2 * projected + 3 * gathered)
    return (of_vertices + of_edges) * element_bytes


def _normalized(layer: SagaLayer, gathered: torch.Tensor) -> torch.Tensor:
    if layer.gather == "sum":
        return gathered
    return gathered[:, :-1] / gathered[:, -1:].clamp(min=torch.finfo(gathered.dtype).tiny)


class _VertexStage(torch.autograd.Function):
    """Runs a function of vertices' rows, chunk by chunk; computes it again for gradients."""

    @staticmethod
    def forward(ctx: Any, run: _Run, streaming: Streaming, num_rows: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns what `run` returns, for all vertices."""
        ctx.run, ctx.streaming, ctx.num_rows = run, streaming, num_rows
        ctx.save_for_backward(*tensors)
        made: list[tuple[torch.Tensor, ...]] = []
        for rows in streaming.grid.rows:
            with streaming.on_device():
                made.append(run(*(streaming.load(x[rows]) for x in tensors[:num_rows])))
        return tuple(torch.cat(parts) for parts in zip(*made, strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        """Returns the gradients of the rows and of the parameters."""
        streaming, num_rows = ctx.streaming, ctx.num_rows
        hosted, parameters = ctx.saved_tensors[:num_rows], ctx.saved_tensors[num_rows:]
        of_rows = [torch.zeros_like(x) for x in hosted]
        of_parameters = [torch.zeros_like(p) for p in parameters]
        for rows in streaming.grid.rows:
            with streaming.on_device(), torch.enable_grad():
                loaded = [streaming.load(x[rows].detach()).requires_grad_() for x in hosted]
                made = ctx.run(*loaded)
                incoming = [streaming.load(gradient[rows]) for gradient in gradients]
                pairs = [(y, g) for y, g in zip(made, incoming, strict=True) if y.requires_grad]
                results = torch.autograd.grad(
                    [y for y, _ in pairs], [*loaded, *parameters], [g for _, g in pairs], allow_unused=True
                )
            for total, gradient in zip(of_rows, results[:num_rows], strict=True):
                if gradient is not None:
                    total[rows] = gradient
            for total, gradient in zip(of_parameters, results[num_rows:], strict=True):
                if gradient is not None:
                    total += gradient
        return (None, None, None, *of_rows, *of_parameters)


class _EdgeStage(torch.autograd.Function):
    """Computes messages and adds them up at their targets; a softmax also adds up weights, in a last column."""

    @staticmethod
    def forward(ctx: Any, layer: SagaLayer, streaming: Streaming, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Returns what every vertex gathers."""
        ctx.layer, ctx.streaming = layer, streaming
        grid, made = streaming.grid, list[torch.Tensor]()
        highest: list[torch.Tensor | None] = []
        for j, rows in enumerate(grid.rows):
            with streaming.on_device():
                here = streaming.load(target[rows])
                highest.append(_highest(layer, streaming, source, here, j) if layer.gather == "softmax" else None)
                total: torch.Tensor | None = None
                for chunk, messages in _messages(layer, streaming, source, here, j):
                    weighted = _weighted(messages, chunk, highest[j])
                    if total is None:
                        total = weighted.new_zeros(len(here), weighted.shape[1])
                    total.index_add_(0, chunk.targets, weighted)
                made.append(total if total is not None else here.new_zeros(len(here), 0))
        width = max(part.shape[1] for part in made)
        ctx.highest = highest
        ctx.save_for_backward(source, target)
        return torch.cat([part if part.shape[1] else part.new_zeros(len(part), width) for part in made])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the gradients of what sources and targets projected."""
        layer, streaming = ctx.layer, ctx.streaming
        source, target = ctx.saved_tensors
        of_source, of_target, grid = torch.zeros_like(source), torch.zeros_like(target), streaming.grid
        for i, rows in enumerate(grid.rows):
            for j, columns in enumerate(grid.rows):
                chunk = grid.chunk(i, j)
                if chunk is None:
                    continue
                with streaming.on_device(), torch.enable_grad():
                    there, index, used = streaming.load_sources(source.detach(), i, chunk)
                    there.requires_grad_()
                    here = streaming.load(target[columns].detach()).requires_grad_()
                    weighted = _weighted(layer.message(there[index], here[chunk.targets]), chunk, ctx.highest[j])
                    incoming = streaming.load(gradient[columns])[chunk.targets]
                    results = torch.autograd.grad(weighted, (there, here), incoming, allow_unused=True)
                if results[0] is not None:
                    of_source[rows].index_add_(0, torch.arange(len(of_source[rows])) if used is None else used, results[0])
                if results[1] is not None:
                    of_target[columns] += results[1]
                del there, here, weighted, incoming, results
        return None, None, of_source, of_target


def _messages(
    layer: SagaLayer, streaming: Streaming, source: torch.Tensor, here: torch.Tensor, j: int
) -> Iterator[tuple[Chunk, torch.Tensor]]:
    for i in range(streaming.grid.num_chunks):
        chunk = streaming.grid.chunk(i, j)
        if chunk is not None:
            there, index, _ = streaming.load_sources(source, i, chunk)
            yield chunk, layer.message(there[index], here[chunk.targets])


def _highest(layer: SagaLayer, streaming: Streaming, source: torch.Tensor, here: torch.Tensor, j: int) -> torch.Tensor:
    """Returns each vertex's largest logit: what is subtracted from all, so that no exponential overflows."""
    highest = here.new_full((len(here),), -torch.inf)
    for chunk, messages in _messages(layer, streaming, source, here, j):
        highest.scatter_reduce_(0, chunk.targets, messages[:, -1], "amax")
    return highest


def _weighted(messages: torch.Tensor, chunk: Chunk, highest: torch.Tensor | None) -> torch.Tensor:
    if highest is None:
        return messages
    weights = (messages[:, -1:] - highest[chunk.targets].unsqueeze(1)).exp()
    return torch.cat([messages[:, :-1] * weights, weights], dim=1)
