"""Figures 13 to 16: steps on HAP's clusters, in simulation with the authors' calibration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import log
from statistics import fmean

from benchmarks.papers.bands import AT_LEAST, SIMULATED
from benchmarks.papers.hap.figures import (
    FIGURE_13,
    FIGURE_13_GPUS,
    FIGURE_14,
    FIGURE_14_GPUS,
    FIGURE_15,
    FIGURE_16,
    Bars,
)
from benchmarks.papers.measured import program_of
from benchmarks.papers.rows import fact_row, number_row, points_of, ratio_row
from benchmarks.papers.table import Kind, Row
from dyorc.planner.cluster import Cluster, CostLine, published
from dyorc.planner.plan import Algorithm, Plan
from dyorc.planner.plan.rewrites import communicate_early
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram
from dyorc.planner.simulate import simulate

_V100, _P100 = (0, 1), (2, 3, 4, 5, 6, 7)
"""The ranks of HAP's eight machines."""
_NEAR_1 = 0.01
"""How much a slowness away from 1 counts against the errors of the bars: only as much as decides where these say nothing."""


def figure_13(name: str, num_gpus: int) -> Iterator[Row]:
    """Yields a model's bars on so many GPUs of the heterogeneous cluster."""
    index = FIGURE_13_GPUS.index(num_gpus)
    yield from _compared("figure 13", name, FIGURE_13[name], FIGURE_13_GPUS, index, machines(name, num_gpus))
    if name == "BERT-MoE":
        yield _memory(name, num_gpus)


def figure_14(name: str, num_gpus: int) -> Iterator[Row]:
    """Yields those on the homogeneous cluster: four machines with P100, at the speeds that figure 13 has been fitted to."""
    cluster = machines(name, 8 * num_gpus // 4).restricted_to(_P100[:4])
    yield from _compared("figure 14", name, FIGURE_14[name], FIGURE_14_GPUS, FIGURE_14_GPUS.index(num_gpus), cluster)


def _compared(figure: str, name: str, bars: Bars, all_gpus: Sequence[int], index: int, cluster: Cluster) -> Iterator[Row]:
    num_gpus = all_gpus[index]
    program = program_of(bars.model, num_devices=num_gpus)
    baselines_s = {planner: _baseline_s(program, cluster, planner) for planner in bars.baselines}
    for planner, seconds in baselines_s.items():
        kind = Kind.FITTED if figure == "figure 13" and index == 0 else Kind.PUBLISHED
        what, series = f"{name}, {num_gpus} GPUs: seconds of {planner}", f"{name}: seconds of {planner} by GPUs"
        note, point = "fitted" if kind is Kind.FITTED else "predicted", points_of(series, all_gpus)[num_gpus]
        theirs_s = bars.baselines[planner][index]
        yield number_row(figure, what, theirs_s, seconds, band=SIMULATED, kind=kind, note=note, point=point)
    best = min(each[index] for each in bars.baselines.values()) / bars.hap[index]
    ours = min(baselines_s.values()) / _hap_s(program, cluster)
    point = points_of(f"{name}: best baseline / HAP by GPUs", all_gpus)[num_gpus]
    yield ratio_row(figure, f"{name}, {num_gpus} GPUs: best baseline / HAP", best, ours, band=SIMULATED, point=point)


def _baseline_s(program: TensorProgram, cluster: Cluster, planner: str) -> float:
    return _beside(PLANNERS[planner](program, cluster), program, cluster)


def _beside(plan: Plan, program: TensorProgram, cluster: Cluster) -> float:
    """Seconds of a plan whose gradients are reduced as soon as they are there, during computation."""
    return simulate(communicate_early(plan), program, cluster).total_s


def _hap_s(program: TensorProgram, cluster: Cluster, planned_for: Cluster | None = None) -> float:
    plan = PLANNERS["hap"](program, planned_for or cluster)
    return min(simulate(plan, program, cluster).total_s, _beside(plan, program, cluster))


def _memory(name: str, num_gpus: int) -> Row:
    """What even data parallelism needs on each GPU. The paper says that it runs out of memory."""
    cluster, each = machines(name, num_gpus), num_gpus // 8
    program = program_of(FIGURE_13[name].model, num_devices=num_gpus)
    parameters = sum(program.values[parameter].num_bytes for parameter in program.parameters)
    peak = max(simulate(PLANNERS["dp_even"](program, cluster), program, cluster).peak_bytes)
    needed = 4 * parameters + max(peak - 2 * parameters, 0) / each  # parameters, gradients and two states of Adam on each GPU
    return fact_row(
        "figure 13",
        f"{name}, {num_gpus} GPUs: GB that dp_even needs on each GPU",
        "more than 16",
        f"{needed / 1e9:.3g}",
        is_so=needed > 16e9,
        band=AT_LEAST,
        note="with Adam's states; without what PyTorch and its allocator take besides",
    )


def figure_15(name: str) -> Iterator[Row]:
    """Yields what each part of HAP adds to a model on 64 GPUs."""
    program, cluster = program_of(FIGURE_13[name].model, num_devices=64), machines(name, 64)
    full_s = _hap_s(program, cluster)
    padded, parts = _without_grouped(cluster), FIGURE_15[name]
    steps = {
        "even data parallelism": None if parts[0] is None else _baseline_s(program, cluster, "dp_even"),
        "HAP's program, even shares": _hap_s(program, padded, _alike(padded)),
        "... balanced shares": _hap_s(program, padded),
    }
    for (what, seconds), part in zip(steps.items(), parts, strict=True):
        if seconds is not None and part is not None:
            what = f"{name}, 64 GPUs: part of the full throughput by {what}"
            yield ratio_row("figure 15", what, part, full_s / seconds, band=SIMULATED)


def _alike(cluster: Cluster) -> Cluster:
    """The cluster as if its devices did not differ."""
    speed = fmean(device.flops_per_s for device in cluster.devices)
    return replace(cluster, devices=tuple(replace(device, flops_per_s=speed) for device in cluster.devices))


def _without_grouped(cluster: Cluster) -> Cluster:
    """The cluster, with grouped collectives that are too slow to be chosen."""
    never = (CostLine(1e3, 1.0),)
    costs = tuple(replace(c, lines=never) if c.algorithm is Algorithm.GROUPED else c for c in cluster.collectives)
    return replace(cluster, collectives=costs)


def figure_16(name: str) -> Iterator[Row]:
    """Yields the throughput on all devices relative to that of two trainings side by side on devices that are alike."""
    published_ratio, published_part = FIGURE_16[name]
    model, cluster = FIGURE_13[name].model, machines(name, 64)
    rates = {
        ranks: 8 * len(ranks) / _hap_s(program_of(model, num_devices=8 * len(ranks)), cluster.restricted_to(ranks))
        for ranks in (_V100, _P100, (*_V100, *_P100))
    }
    apart = rates[_V100] + rates[_P100]
    what, note = f"{name}: throughput relative to two trainings side by side", "64 GPUs, which the paper does not say"
    together = rates[*_V100, *_P100] / apart
    yield ratio_row("figure 16", what, published_ratio, together, band=SIMULATED, note=note)
    what = f"{name}: the V100s' part of those two trainings' throughput"
    yield number_row("figure 16", what, published_part, rates[_V100] / apart, band=SIMULATED, note=note)


# -- the clusters at the speed at which a model computes -----------------------------------------------------------------------


def machines(name: str, num_gpus: int) -> Cluster:
    """The heterogeneous cluster at the speed at which one of figure 13's models computes."""
    return slowed(published("hap-8-machines", gpus_per_machine=num_gpus // 8), _slowness(name))


@cache
def _slowness(name: str) -> float:
    """How much longer a model's computing takes than calibrated: what fits the bars of its baselines on 8 GPUs best."""
    bars, cluster = FIGURE_13[name], published("hap-8-machines")
    program = program_of(bars.model, num_devices=8)
    plans = {planner: communicate_early(PLANNERS[planner](program, cluster)) for planner in bars.baselines}
    return min((1.1**power for power in range(-32, 17)), key=lambda slowness: _misfit(slowness, bars, plans, program))


def _misfit(slowness: float, bars: Bars, plans: Mapping[str, Plan], program: TensorProgram) -> float:
    cluster = slowed(published("hap-8-machines"), slowness)
    errors = [log(simulate(plan, program, cluster).total_s / bars.baselines[planner][0]) for planner, plan in plans.items()]
    return sum(error**2 for error in errors) + _NEAR_1 * log(slowness) ** 2


def slowed(cluster: Cluster, slowness: float) -> Cluster:
    """The cluster with devices that are so much slower."""
    devices = tuple(
        replace(d, flops_per_s=d.flops_per_s / slowness, memory_bytes_per_s=d.memory_bytes_per_s / slowness)
        for d in cluster.devices
    )
    return replace(cluster, devices=devices)
