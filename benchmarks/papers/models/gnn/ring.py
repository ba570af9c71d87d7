"""A layer on several ranks: each has a chunk of the vertices and the edges into them, and chunks of sources go round a ring."""

from typing import Any

import torch
import torch.distributed as dist

from benchmarks.papers.models.gnn.graph import Grid
from benchmarks.papers.models.gnn.layers import SagaLayer


def on_ring(layer: SagaLayer, grid: Grid, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Computes this rank's rows of a layer. Gradients of its parameters must be summed over ranks.

    Args:
        layer: The same on all ranks.
        grid: With as many chunks as there are ranks.
        x: This rank's rows, `[vertices, features]`.
        group: Of all ranks.

    Raises:
        ValueError: The grid has another number of chunks, or a rank would need all chunks at a time (softmax).
    """
    num_ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    if grid.num_chunks != num_ranks:
        raise ValueError(f"the graph has {grid.num_chunks} chunks of vertices for {num_ranks} ranks: it must be one for each")
    if layer.gather != "sum":
        raise ValueError(f"{type(layer).__name__} gathers by {layer.gather}; a ring adds up what passes by")
    scale = grid.graph.scales[grid.rows[rank]].to(x.dtype)
    source, target = layer.project(x, scale)
    return layer.update(x, scale, _Ring.apply(layer, grid, group, source, target))


class _Ring(torch.autograd.Function):
    """Adds up messages while sources pass by. Backward they pass again, with their gradients, which arrive complete."""

    @staticmethod
    def forward(
        ctx: Any, layer: SagaLayer, grid: Grid, group: dist.ProcessGroup, source: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        """Returns what this rank's vertices gather."""
        ctx.layer, ctx.grid, ctx.group = layer, grid, group
        ctx.save_for_backward(source, target)
        rank, passing, total = dist.get_rank(group), source, None
        for step in range(grid.num_chunks):
            owner = (rank - step) % grid.num_chunks
            chunk = grid.chunk(owner, rank)
            if chunk is not None:
                messages = layer.message(passing[chunk.sources], target[chunk.targets])
                total = messages.new_zeros(len(target), messages.shape[1]) if total is None else total
                total.index_add_(0, chunk.targets, messages)
            if step + 1 < grid.num_chunks:
                passing = _passed(passing, _length(grid, owner - 1), group)
        if total is None:
            width = layer.message(source[:0], target[:0]).shape[1]
            total = source.new_zeros(len(target), width)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the gradients of what this rank's sources and targets projected."""
        layer, grid, group = ctx.layer, ctx.grid, ctx.group
        source, target = ctx.saved_tensors
        rank = dist.get_rank(group)
        of_target = torch.zeros_like(target)
        passing = torch.cat([source, torch.zeros_like(source)], dim=1)
        for step in range(grid.num_chunks):
            owner = (rank - step) % grid.num_chunks
            chunk = grid.chunk(owner, rank)
            if chunk is not None:
                values, so_far = passing.chunk(2, dim=1)
                with torch.enable_grad():
                    there, here = values.detach().requires_grad_(), target.detach().requires_grad_()
                    messages = layer.message(there[chunk.sources], here[chunk.targets])
                    gradients = torch.autograd.grad(messages, (there, here), gradient[chunk.targets], allow_unused=True)
                if gradients[0] is not None:
                    passing = torch.cat([values, so_far + gradients[0]], dim=1)
                if gradients[1] is not None:
                    of_target += gradients[1]
            passing = _passed(passing, _length(grid, owner - 1), group)
        return None, None, None, passing.chunk(2, dim=1)[1].contiguous(), of_target


def _length(grid: Grid, owner: int) -> int:
    rows = grid.rows[owner % grid.num_chunks]
    return rows.stop - rows.start


def _passed(rows: torch.Tensor, length: int, group: dist.ProcessGroup) -> torch.Tensor:
    """Sends rows to the next rank, and returns those of the one before."""
    num_ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    if num_ranks == 1:
        return rows
    received = rows.new_empty(length, rows.shape[1])
    sent = dist.isend(rows.contiguous(), (rank + 1) % num_ranks, group=group)
    dist.recv(received, (rank - 1) % num_ranks, group=group)
    if sent is not None:
        sent.wait()
    return received
