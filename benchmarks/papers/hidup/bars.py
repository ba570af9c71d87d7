"""Figures 6, 7 and 8, and table 4: steps on HiDup's clusters, in simulation with the authors' calibration.

Layers repeat, so a quarter of each model is simulated, two layers of eight with a quarter of the vocabulary, and counted four
times. DeepSpeed and FastMoE do not overlap (table 4), so that they are parallel experts without overlap; Horovod is data parallel
with it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from benchmarks.papers.bands import SIMULATED
from benchmarks.papers.hidup.published import (
    FIGURE_6,
    FIGURE_6_GPUS,
    FIGURE_7,
    FIGURE_7_GPUS,
    FIGURE_8,
    FIGURE_8_GBITS,
    TABLE_4,
    Bars,
)
from benchmarks.papers.hidup.search_figures import best_plan, faster
from benchmarks.papers.measured import program_of
from benchmarks.papers.models.published import Model, hidup_vit
from benchmarks.papers.rows import number_row, points_of, ratio_row
from benchmarks.papers.table import Point, Row
from dyorc.planner.cluster import Cluster, published
from dyorc.planner.models import bert_moe
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram
from dyorc.planner.simulate import simulate

PART = 4
"""How much larger the papers' models are than the simulated ones."""
_WORDS = 33_280 // PART


def small_bert(*, num_devices: int, is_switch: int = 0, layers: int = 2) -> Model:
    """A quarter of HiDup's BERT: two layers of eight and a quarter of the words, so that all parts keep their proportions."""
    with torch.device("meta"):
        return bert_moe(
            layers=layers,
            hidden=768,
            heads=12,
            vocabulary=_WORDS,
            sequence=128,
            batch=32 * num_devices,
            experts=num_devices,
            gate="switch" if is_switch else "top2",
        )


def small_vit(*, num_devices: int, is_switch: int = 0) -> Model:
    """A quarter of HiDup's ViT: two layers of eight."""
    return hidup_vit(num_devices, gate="switch" if is_switch else "top2", layers=2)


def model(name: str, num_devices: int) -> TensorProgram:
    """Captures a quarter of one of the paper's models."""
    build = small_bert if name.startswith("BERT") else small_vit
    return program_of(build, num_devices=num_devices, is_switch=int(name.endswith("Switch")))


def figure_6(name: str, num_gpus: int) -> Iterator[Row]:
    """Yields a model's bars on so many GPUs of eight machines."""
    index = FIGURE_6_GPUS.index(num_gpus)
    bar = _Bar(figure="figure 6", model=name, unit="GPUs", x=num_gpus, xs=FIGURE_6_GPUS, index=index)
    yield from _compared(bar, FIGURE_6[name], model(name, num_gpus), cloud(num_gpus))


def figure_7(name: str, num_gpus: int) -> Iterator[Row]:
    """Yields those on so many GPUs of one machine with NVLink."""
    index, cluster = FIGURE_7_GPUS.index(num_gpus), published(f"hidup-nvlink-{num_gpus}")
    bar = _Bar(figure="figure 7", model=name, unit="GPUs", x=num_gpus, xs=FIGURE_7_GPUS, index=index)
    yield from _compared(bar, FIGURE_7[name], model(name, num_gpus), cluster)


def figure_8(name: str, gbits: int) -> Iterator[Row]:
    """Yields those by bandwidth between two machines with four GPUs."""
    index, cluster = FIGURE_8_GBITS.index(gbits), faster(published("hidup-2x4-20g"), gbits / 20)
    bar = _Bar(figure="figure 8", model=name, unit="Gb/s", x=gbits, xs=figure_8_gbits(name), index=index)
    yield from _compared(bar, FIGURE_8[name], model(name, 8), cluster)


def figure_8_gbits(name: str) -> Sequence[int]:
    """Returns the bandwidths at which another system is published next to HiDup."""
    others = FIGURE_8[name].others.values()
    return [gbits for index, gbits in enumerate(FIGURE_8_GBITS) if any(each[index] is not None for each in others)]


def cloud(num_gpus: int) -> Cluster:
    """As many GPUs of the eight machines as in the paper: some of each machine, since that is what its calibration is of."""
    cluster = published("hidup-8x8")
    each = num_gpus // 8
    return cluster.restricted_to([8 * machine + gpu for machine in range(8) for gpu in range(each)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """Which bar of a figure: at `x` of `xs`, the one with this index among the published ones."""

    figure: str
    model: str
    unit: str
    x: int
    xs: Sequence[int]
    index: int

    def point(self, series: str) -> Point:
        return points_of(f"{self.model}: {series} by {self.unit}", self.xs)[self.x]


def _compared(bar: _Bar, bars: Bars, program: TensorProgram, cluster: Cluster) -> Iterator[Row]:
    figure, index, what = bar.figure, bar.index, f"{bar.model}, {bar.x} {bar.unit}"
    ours = PART * best_plan(program, cluster).simulation.total_s
    if "Horovod" in bars.others:
        other = PART * simulate(PLANNERS["dp_even"](program, cluster), program, cluster).total_s
    else:
        other = PART * simulate(PLANNERS["expert_parallel"](program, cluster), program, cluster, overlap=False).total_s
    point = bar.point("seconds of HiDup")
    yield number_row(figure, f"{what}: seconds of HiDup", bars.hidup[index], ours, band=SIMULATED, note="predicted", point=point)
    best = bars.best(index)
    note, what = f"theirs {best:.3g} s, ours {other:.3g} s", f"{what}: best other / HiDup"
    point = bar.point("best other / HiDup")
    yield ratio_row(figure, what, best / bars.hidup[index], other / ours, band=SIMULATED, note=note, point=point)


def table_4(name: str) -> Iterator[Row]:
    """Yields how much of the communication overlaps computation on one of the table's clusters."""
    (hidup_s, other_s, overlapped), cluster = TABLE_4[name], published(name)
    program = model("BERT-SGMoE", cluster.num_ranks)
    simulation = best_plan(program, cluster).simulation
    other = simulate(PLANNERS["expert_parallel"](program, cluster), program, cluster, overlap=False).total_s
    yield ratio_row("table 4", f"{name}: best other / HiDup", other_s / hidup_s, other / simulation.total_s, band=SIMULATED)
    communication_s = simulation.communication_s[0]
    part = simulation.overlap_s[0] / communication_s if communication_s else 1.0
    what = f"{name}: part of the communication that overlaps computation"
    point = points_of("part that overlaps, clusters in the order of the table", range(len(TABLE_4)))[list(TABLE_4).index(name)]
    yield number_row("table 4", what, overlapped, part, band=SIMULATED, point=point)
