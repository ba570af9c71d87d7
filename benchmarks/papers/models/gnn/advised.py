"""Runs a layer as its profile advises: whole or in chunks, in which order, by a sparse product or not. All compute the same."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch

from benchmarks.papers.models.gnn.graph import Graph, Grid
from benchmarks.papers.models.gnn.layers import SagaLayer
from benchmarks.papers.models.gnn.profile import Advice, Order, Profile, profile
from benchmarks.papers.models.gnn.streaming import Streaming, streamed
from benchmarks.papers.models.gnn.whole import fused, sums_first, unhoisted, whole
from dyorc.planner.memory import TensorCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """A layer that is ready to run on a graph.

    Attributes:
        profile: What was measured, and advised.
        run: Computes the layer of `[vertices, features]`; its gradients, too.
    """

    profile: Profile
    run: Callable[[torch.Tensor], torch.Tensor]


def tuned(
    layer: SagaLayer,
    graph: Graph,
    x: torch.Tensor,
    *,
    limit_bytes: int,
    counter: TensorCounter | None = None,
    num_runs: int = 3,
) -> Tuned:
    """Profiles a layer on a graph, and takes the way of running it that follows.

    A profile reckons with a tensor for all edges. Where that does not fit, a linear layer may still do without it: what a step
    needs is counted then, and chunks are what is left if it is too much.

    Args:
        layer: The layer.
        graph: The graph.
        x: `[vertices, features]`, to profile with.
        limit_bytes: The device's memory.
        counter: Counts the device's bytes if the graph goes there in chunks.
        num_runs: How often each stage is timed.

    Raises:
        ValueError: Not even single vertices fit.
    """
    profiled = profile(layer, graph, x, limit_bytes=limit_bytes, num_runs=num_runs)
    if profiled.advice.num_chunks > 1:
        profiled = replace(profiled, advice=_whole_if_it_fits(layer, graph, x, profiled.advice, limit_bytes))
    return Tuned(profile=profiled, run=advised(layer, graph, profiled.advice, counter))


def _whole_if_it_fits(layer: SagaLayer, graph: Graph, x: torch.Tensor, advice: Advice, limit_bytes: int) -> Advice:
    order = Order.VERTICES if advice.order is Order.EDGES else advice.order
    for fuse in (advice.fuse, not advice.fuse) if layer.is_linear else ():
        reasons = (f"{advice.reasons[0]} by the formula, but not in this way, as counted", *advice.reasons[1:])
        whole_graph = Advice(num_chunks=1, order=order, fuse=fuse, reasons=reasons)
        if fits(layer, graph, x, whole_graph, limit_bytes):
            return whole_graph
    return advice


def fits(layer: SagaLayer, graph: Graph, x: torch.Tensor, advice: Advice, limit_bytes: int) -> bool:
    """Runs a step of training as advised, and returns whether its tensors take no more than the device's memory.

    Args:
        layer: The layer.
        graph: The graph.
        x: `[vertices, features]`.
        advice: The way.
        limit_bytes: The device's memory.
    """
    counter = TensorCounter(limit_bytes)
    in_chunks = advice.num_chunks > 1  # then all else is in the host's memory
    run = advised(layer, graph, advice, counter if in_chunks else None)
    try:
        with nullcontext() if in_chunks else counter:
            torch.autograd.grad(run(x).sum(), tuple(layer.parameters()))
    except MemoryError:
        return False
    return True


def advised(
    layer: SagaLayer, graph: Graph, advice: Advice, counter: TensorCounter | None = None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns what computes a layer on a graph in the advised way; see `tuned`.

    Raises:
        ValueError: The advice is for linear layers, and this is none. Raised when it is called.
    """
    if advice.num_chunks > 1:
        streaming = Streaming(Grid(graph, advice.num_chunks), counter)
        return lambda x: streamed(layer, x, streaming)
    match advice.order:
        case Order.SUMS:
            return lambda x: sums_first(layer, graph, x, is_fused=advice.fuse)
        case Order.EDGES:
            return lambda x: unhoisted(layer, graph, x)
        case Order.VERTICES:
            return lambda x: (fused if advice.fuse else whole)(layer, graph, x)
