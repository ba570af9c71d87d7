"""Where a layer's time goes, stage by stage, and what follows from it (arXiv 2009.00804); `advised.py` does what follows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from statistics import median

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.papers.models.gnn.graph import Graph, Grid
from benchmarks.papers.models.gnn.layers import SagaLayer
from benchmarks.papers.models.gnn.streaming import num_chunks_for, working_set_bytes
from benchmarks.papers.models.gnn.whole import fused, sums_first, unhoisted, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a layer.

    Attributes:
        name: `vertices`, `scatter`, `edges` or `gather`.
        time_s: How long it took, the median.
        flops: Of products of matrices, and one for each number that is made otherwise; 0 where numbers only move.
        moved_bytes: Of all that it reads and writes, each once.
    """

    name: str
    time_s: float
    flops: float
    moved_bytes: float

    @property
    def intensity(self) -> float:
        """Flops for each byte that moves."""
        return self.flops / self.moved_bytes if self.moved_bytes else 0.0


class Order(StrEnum):
    """Where products of matrices are computed."""

    VERTICES = "vertices"  # once for each vertex, before the scatter
    EDGES = "edges"  # for each edge, after the scatter
    SUMS = "sums"  # once for each vertex, after the gather; only linear layers can


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do with a layer on a graph.

    Attributes:
        num_chunks: Into how many chunks of vertices the graph must go to fit; if it is more than one, the rest does not matter.
        order: Where to compute products of matrices.
        fuse: Compute scatter and gather as one sparse product.
        reasons: Why, for people: one for each of the three.
    """

    num_chunks: int
    order: Order = Order.VERTICES
    fuse: bool = False
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A layer on a graph; on its largest chunk, if not all of it fits.

    Attributes:
        stages: In the order in which they run.
        fused_ratio: How many times faster the sparse product is than the stages one by one; None if it has none.
        hoisted_ratio: How many times faster it is to compute at vertices what can be.
        advice: What follows.
    """

    stages: tuple[Stage, ...]
    fused_ratio: float | None
    hoisted_ratio: float
    advice: Advice

    @property
    def dominant(self) -> str:
        """The stage that takes longest."""
        return max(self.stages, key=lambda stage: stage.time_s).name


def profile(layer: SagaLayer, graph: Graph, x: torch.Tensor, *, limit_bytes: int = 2**30, num_runs: int = 3) -> Profile:
    """Runs a layer stage by stage: on the whole graph if it can be trained in the device's memory, or else on the largest chunk.

    Args:
        layer: The layer.
        graph: The graph.
        x: `[vertices, features]`.
        limit_bytes: The device's memory.
        num_runs: How often each stage runs.

    Raises:
        ValueError: Not even single vertices fit.
    """
    widths = _widths(layer, x)
    needed_bytes = whole_bytes(layer, graph, x)
    num_chunks = num_chunks_for(graph, widths, limit_bytes, x.element_size())
    if num_chunks > 1:
        graph, x = Grid(graph, num_chunks).largest(x)
    with torch.no_grad():
        scale = graph.scales.to(x.dtype)
        source, target = layer.project(x, scale)
        there, here = source[graph.sources], target[graph.targets]
        messages = layer.message(there, here)
        gathered = messages.new_zeros(graph.num_vertices, messages.shape[1]).index_add(0, graph.targets, messages)
        narrow = gathered[:, :-1] if layer.gather == "softmax" else gathered
        size, made = x.element_size(), messages.numel()
        is_copy = layer.is_linear
        stages = (
            _stage("vertices", lambda: (layer.project(x, scale), layer.update(x, scale, narrow)), num_runs)(
                (2 * x.numel() + source.numel() + target.numel() + 2 * gathered.numel()) * size, 0.0
            ),
            _stage("scatter", lambda: (source[graph.sources], target[graph.targets]), num_runs)(
                2 * (there.numel() + here.numel()) * size + 16 * graph.num_edges, 0.0
            ),
            _stage("edges", lambda: layer.message(there, here), num_runs)(
                0.0 if is_copy else (there.numel() + here.numel() + made) * size, 0.0 if is_copy else 3.0 * made
            ),
            _stage(
                "gather",
                lambda: messages.new_zeros(graph.num_vertices, messages.shape[1]).index_add(0, graph.targets, messages),
                num_runs,
            )((made + 2 * gathered.numel()) * size + 8 * graph.num_edges, float(made)),
        )
        sums_are_narrower = layer.is_linear and x.shape[1] < source.shape[1]
        staged, sparse = (sums_first, partial(sums_first, is_fused=True)) if sums_are_narrower else (whole, fused)
        runs = [staged, sparse] if layer.is_linear else []
        times_s = _in_turns([partial(run, layer, graph, x) for run in (whole, unhoisted, *runs)], num_runs)
    hoisted, ratio = times_s[1] / times_s[0], times_s[2] / times_s[3] if layer.is_linear else None
    is_faster_fused = ratio is not None and ratio > 1.0
    if sums_are_narrower:
        order = Order.SUMS
    else:
        order = Order.VERTICES if hoisted > 1.0 or is_faster_fused else Order.EDGES
    reasons = (
        f"the whole graph needs {needed_bytes:,} of {limit_bytes:,} bytes",
        f"each edge moves {x.shape[1]} features before products, {source.shape[1]} numbers after; at vertices, products take "
        f"{hoisted:.2f} times less than at edges",
        "messages are computed at edges" if ratio is None else f"a sparse product is {ratio:.2f} times as fast",
    )
    advice = Advice(num_chunks=num_chunks, order=order, fuse=is_faster_fused, reasons=reasons)
    return Profile(stages=stages, fused_ratio=ratio, hoisted_ratio=hoisted, advice=advice)


def whole_bytes(layer: SagaLayer, graph: Graph, x: torch.Tensor) -> int:
    """Returns what training a layer on a whole graph needs at most, stage by stage.

    Args:
        layer: The layer.
        graph: The graph.
        x: `[vertices, features]`.
    """
    return working_set_bytes(graph, 1, _widths(layer, x), x.element_size())


def _widths(layer: SagaLayer, x: torch.Tensor) -> tuple[int, int, int]:
    """Returns how many numbers are projected for the ends of an edge, how many are gathered, and how many features there are."""
    with torch.no_grad():
        source, target = layer.project(x[:1], x.new_ones(1, 1))
        return source.shape[1] + target.shape[1], layer.message(source, target).shape[1], x.shape[1]


def roofline(num_runs: int = 3) -> tuple[float, float]:
    """Measures this machine: flops per second of a product of matrices, and bytes per second of a copy."""
    a, b = torch.randn(512, 512), torch.randn(16_000_000)
    return 2 * 512.0**3 / _time_s(lambda: a @ a, num_runs), 8.0 * len(b) / _time_s(b.clone, num_runs)


def _stage(name: str, run: Callable[[], object], num_runs: int) -> Callable[[float, float], Stage]:
    time_s = _time_s(run, num_runs)
    with FlopCounterMode(display=False) as counter:
        run()
    products = float(counter.get_total_flops())
    return lambda moved_bytes, others: Stage(name=name, time_s=time_s, flops=products + others, moved_bytes=moved_bytes)


def _time_s(run: Callable[[], object], num_runs: int) -> float:
    return _in_turns([run], num_runs)[0]


def _in_turns(runs: Sequence[Callable[[], object]], num_runs: int) -> list[float]:
    """Returns the median seconds of each, after one that does not count. What disturbs one disturbs all."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(num_runs + 1):
        for run, seconds in zip(runs, times, strict=True):
            begun_s = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - begun_s)
    return [median(seconds[1:]) for seconds in times]
