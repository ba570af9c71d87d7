"""Where a layer's time goes, stage by stage, and what follows from it (arXiv 2009.00804)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch.utils.flop_counter import FlopCounterMode

from dyorc.offline.models.gnn.graph import Graph
from dyorc.offline.models.gnn.layers import SagaLayer
from dyorc.offline.models.gnn.streaming import num_chunks_for
from dyorc.offline.models.gnn.whole import fused, unhoisted, whole


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do with a layer on a graph.

    Attributes:
        fuse: Compute scatter and gather as one sparse product.
        project_first: Compute at vertices before the scatter, not at edges after it.
        num_chunks: Into how many chunks of vertices the graph must go to fit.
    """

    fuse: bool
    project_first: bool
    num_chunks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A layer on a graph.

    Attributes:
        stages: In the order in which they run.
        fused_ratio: How many times faster the sparse product is than the stages one by one; None if there is none.
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
    """Runs a layer stage by stage.

    Args:
        layer: The layer.
        graph: The graph.
        x: `[vertices, features]`.
        limit_bytes: The device's memory, for the advice.
        num_runs: How often each stage runs.
    """
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
        by_stages = _time_s(lambda: whole(layer, graph, x), num_runs)
        ratio = by_stages / _time_s(lambda: fused(layer, graph, x), num_runs) if is_copy else None
        hoisted = _time_s(lambda: unhoisted(layer, graph, x), num_runs) / by_stages
    widths = (source.shape[1] + target.shape[1], messages.shape[1], x.shape[1])
    advice = Advice(
        fuse=ratio is not None and ratio > 1.0,
        project_first=hoisted > 1.0,
        num_chunks=num_chunks_for(graph, widths, limit_bytes, size),
    )
    return Profile(stages=stages, fused_ratio=ratio, hoisted_ratio=hoisted, advice=advice)


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
    times: list[float] = []
    for _ in range(num_runs + 1):
        begun_s = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun_s)
    return median(times[1:])
