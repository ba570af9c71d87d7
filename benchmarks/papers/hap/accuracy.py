"""Figure 18: the simulator's predictions next to the times of real ranks, on two processes of this machine.

Slow devices do all their work several times, and links let only so many bytes pass in a second, so that both are the same on
every machine. Each cluster is measured before its plans are made, and planners and simulator know only that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import correlation, fmean, median

import torch
from torch import nn

from benchmarks.papers.bands import MODELLED
from benchmarks.papers.hap.figures import FIGURE_18
from benchmarks.papers.rows import number_row, own_row
from benchmarks.papers.study import Progress
from benchmarks.papers.table import Row
from dyorc.planner import models
from dyorc.planner.cluster import Cluster
from dyorc.planner.measure import Effort, measure_cluster
from dyorc.planner.plan import Plan
from dyorc.planner.plan.rewrites import communicate_early
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram, capture
from dyorc.planner.runtime import LinkShape, RankOptions, Ranks
from dyorc.planner.simulate import simulate

_EFFORT = Effort(num_repeats=7, chain=4, messages=(1 << 12, 1 << 16, 1 << 19, 1 << 21))
_STEPS, _WARM_UP_STEPS = 9, 2
_PLANNERS = ("dp_even", "dp_proportional", "zero", "megatron", "hap")
_Model = Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]
_MODELS: Mapping[str, _Model] = {
    "GPT": lambda: models.gpt(layers=2, hidden=128, vocabulary=256, sequence=64, batch=24),
    "ViT": lambda: models.vit(layers=2, hidden=192, batch=48),
    "VGG": lambda: models.vgg19(width=8, inner=512, batch=32, convolutions=(1, 1, 1, 1, 1)),
}


@dataclass(frozen=True)
class _Shape:
    slowness: tuple[float, ...]
    mbytes_per_s: float

    def __str__(self) -> str:
        return f"{':'.join(f'{1 / each:.2g}' for each in self.slowness)} over {self.mbytes_per_s:g} MB/s"

    def options(self) -> RankOptions:
        num, link = len(self.slowness), LinkShape(bytes_per_s=self.mbytes_per_s * 1e6)
        links = {(a, b): link for a in range(num) for b in range(num) if a != b}
        return RankOptions(num_ranks=num, device="cpu", slowness=self.slowness, links=links)


_SHAPES = (_Shape((1.0, 2.0), 50.0), _Shape((1.0, 1.0), 200.0), _Shape((1.0, 4.0), 20.0))


@dataclass(frozen=True)
class _Point:
    what: str
    predicted_s: float
    measured_s: float


def figure_18(progress: Progress) -> Iterator[Row]:
    """Yields how well predictions agree with measurements, and each of them."""
    points = [point for shape in _SHAPES for point in _points(shape, progress)]
    ratios = [point.predicted_s / point.measured_s for point in points]
    measurements = {
        "correlation": correlation([p.measured_s for p in points], [p.predicted_s for p in points]),
        "mean error": fmean(abs(ratio - 1) for ratio in ratios),
        "mean predicted / measured": fmean(ratios),
    }
    note = f"{len(points)} variants of ours on real ranks, beside 12 of theirs on GPUs"
    for what, ours in measurements.items():
        yield number_row("figure 18", f"{what}, predicted and measured", FIGURE_18[what], ours, band=MODELLED, note=note)
    for point, ratio in zip(points, ratios, strict=True):
        ours = f"{point.predicted_s * 1e3:.1f} / {point.measured_s * 1e3:.1f}"
        yield own_row("figure 18", f"{point.what}: ms predicted / ms measured", ours, f"{ratio - 1:+.0%}")


def _points(shape: _Shape, progress: Progress) -> Iterator[_Point]:
    options = shape.options()
    cluster = measure_cluster(
        options, effort=_EFFORT, progress=lambda what, done, of: progress(f"figure 18, {shape}: measuring {what}, {done} of {of}")
    )
    with Ranks(options) as ranks:
        for name, make in _MODELS.items():
            torch.manual_seed(0)
            module, inputs = make()
            program = capture(module, inputs)
            sources = _sources(program, module, inputs)
            for planner in _PLANNERS:
                what = f"{name} by {planner} on {shape}"
                progress(f"figure 18, {what}")
                yield _point(what, ranks, communicate_early(PLANNERS[planner](program, cluster)), (program, sources, cluster))


def _point(what: str, ranks: Ranks, plan: Plan, context: tuple[TensorProgram, Mapping[str, torch.Tensor], Cluster]) -> _Point:
    program, sources, cluster = context
    inputs = {name: sources[name] for name in program.inputs}
    ranks.load(plan, sources, overlap=True)
    seconds: list[float] = []
    for _ in range(_STEPS):
        ranks.begin_step(inputs, answer=())
        seconds.append(max(ranks.end_step().seconds))
    return _Point(what, simulate(plan, program, cluster).total_s, median(seconds[_WARM_UP_STEPS:]))


def _sources(program: TensorProgram, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    held = {name: tensor.detach() for name, tensor in (*module.named_parameters(), *module.named_buffers())}
    return {name: held[name] for name in program.sources if name in held} | dict(zip(program.inputs, inputs, strict=True))
