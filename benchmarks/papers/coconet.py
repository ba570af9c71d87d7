"""CoCoNeT (ASPLOS'22): the optimizer inside the ring of an all-reduce.

The published repository has times of 128 GPUs for each size. Read as one model, the fused kernel takes as long as the all-reduce
alone: the speed-up is (T_AR + T_opt) / T_AR. Here each size's T_opt / T_AR is taken from those times, the plan is simulated with
links of that speed, and the ratio of the schedules is what comes out: the rows are fitted, one number for each. Bytes,
temporaries and states are counted, and real ranks compare results to the bit and times over shaped links.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

import torch
from torch import nn

from benchmarks.papers import coconet_overlap as product
from benchmarks.papers.bands import EXACT, MODELLED, SIMULATED
from benchmarks.papers.rows import fact_row, not_here_row, points_of, ratio_row
from benchmarks.papers.schedule_figures import figures_of
from benchmarks.papers.study import Progress, Study, unjudged
from benchmarks.papers.table import Kind, Line, Row
from dyorc.planner.cluster import Cluster, even_cluster
from dyorc.planner.passes.coconet import fuse_updates, slice_updates, use_rings
from dyorc.planner.plan import Collective, Plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram, ValueKind, capture
from dyorc.planner.program.update import with_update
from dyorc.planner.runtime import LinkShape, RankOptions, Ranks
from dyorc.planner.simulate import simulate

_ABOUT = """Each size's ratio of the optimizer's time to the all-reduce's is taken from the published times of 128 GPUs; the
schedules of one matrix with Adam are then simulated on four ranks whose links have that speed. Counts are exact. Real ranks run
over shaped links, on two shared cores: their times say no more than the sign."""
_RANKS, _CHUNKS, _COLUMNS = 4, 16, 64
_SHARE = 0.36
_REAL_CHUNKS = 4
"""Fewer than in simulation: each message costs a turn of a core that others use, too."""
_SLOWNESS = 4.0
"""How often real ranks do their work: so that links are slow beside what this machine itself needs for a message."""


@dataclass(frozen=True, slots=True)
class _Times:
    """Milliseconds of 1,000 iterations on 128 GPUs, in single precision."""

    fused: float
    all_reduce_adam: float
    adam: float  # of the time before
    plain: float


_TIMES: Mapping[int, _Times] = {
    18: _Times(261, 373, 65, 484),
    20: _Times(480, 744, 82, 820),
    22: _Times(892, 1580, 165, 1864),
    24: _Times(2435, 3765, 641, 4754),
    26: _Times(7272, 9874, 2392, 13876),
    28: _Times(26398, 35950, 9509, 51691),
    30: _Times(104678, 143692, 40587, 204504),
}
"""By the power of two of the number of elements."""


def reproduce(*, quick: bool = False, progress: Progress = lambda text: None) -> Study:
    """Returns the table, to be computed.

    Args:
        quick: Fewer sizes, and real ranks on small ones only.
        progress: Called with the name of each step.
    """
    parts: dict[str, Iterable[Row | Line]] = {
        "counts": chain(counts(_RANKS), product.counts()),
        "times of each size": _ratios(quick, progress),
        "a product and its ring": product.simulated(quick),
        "a layer's sizes": product.as_published(),
        "real ranks": _on_real_ranks(quick, progress),
        "a product on real ranks": product.on_real_ranks(quick, progress),
        "not here": _not_here(),
    }
    if quick:
        parts |= {name: unjudged(parts[name], size) for name, size in _FULL_SIZES.items()}
    left_out = _SHORTENED if quick else ()
    title = "CoCoNeT (ASPLOS'22, arXiv 2105.05720)"
    return Study(name="coconet", title=title, about=_ABOUT, parts=parts, is_quick=quick, left_out=left_out)


_FULL_SIZES = {"real ranks": "2^21 elements", "a product on real ranks": "2048 x 8192 x 1024"}
"""Of the parts that a quick run computes at another size."""
_SHORTENED = ("five of seven sizes, and their trend", "a product and its ring for three of five ratios, and their trend")


class _Weights(nn.Module):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(rows, _COLUMNS, device="meta"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.w).sum()


def _program(power: int) -> TensorProgram:
    rows = 2**power // _COLUMNS
    return with_update(capture(_Weights(rows), (torch.empty(_RANKS, rows, device="meta"),)), "adam")


def counts(num_ranks: int) -> Iterator[Row]:
    """Yields the rows of what can be counted, for the schedules AR-C, RS-C-AG and fused."""
    program = _program(12)
    plan = PLANNERS["dp_even"](program, even_cluster(num_ranks))
    schedules = (plan, slice_updates(plan, program), fuse_updates(plan, program, _CHUNKS))
    _, slices, chunks = schedule_figures = [figures_of(each, program) for each in schedules]
    num_bytes = program.values["w"].num_bytes
    loss = 2 * (num_ranks - 1) * program.values[program.loss].num_bytes
    sent, expected = [figures.wire_bytes - loss for figures in schedule_figures], 2 * (num_ranks - 1) * num_bytes
    yield _fact(
        f"AR-C, RS-C-AG, fused; {num_bytes:,} bytes on {num_ranks} ranks: bytes that all send",
        f"{expected:,} each",
        _listed(sent),
        is_so=sent == [expected] * 3,
        note="2 (n - 1) N",
    )
    states, slice_bytes = [figures.state_bytes for figures in schedule_figures], 2 * num_bytes // num_ranks
    yield _fact(
        "the same: bytes of Adam's states on each rank",
        _listed([2 * num_bytes, slice_bytes, slice_bytes]),
        _listed(states),
        is_so=states == [2 * num_bytes, slice_bytes, slice_bytes],
        note="as_slice of mean and square: 1 / n",
    )
    yield _fact(
        "the same: temporaries of the optimizer on each rank",
        "whole, 1 / n, none but of a chunk",
        "; ".join(f"{figures.num_temporaries} tensors, {figures.temporary_bytes:,} bytes" for figures in schedule_figures),
        is_so=not chunks.num_temporaries and slices.temporary_bytes * num_ranks == slices.num_temporaries * num_bytes,
        note=f"{_CHUNKS} chunks; one more in slices: the new parameter, until it is gathered",
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(f"{number:,}" for number in numbers)


def _ratios(quick: bool, progress: Progress) -> Iterator[Row]:
    points = points_of("AR + Adam / fused by power of two", list(_TIMES))
    for power, times in _TIMES.items():
        if quick and power not in (18, 24):
            continue
        progress(f"2^{power} elements")
        reduce_ms = times.all_reduce_adam - times.adam
        program = _program(power)
        plan = PLANNERS["dp_even"](program, even_cluster(_RANKS))
        cluster = _cluster(program, plan, reduce_ms / times.adam)
        whole_s, kernel_s = (_update_s(p, program, cluster) for p in (plan, fuse_updates(plan, program, _CHUNKS)))
        yield ratio_row(
            "examples",
            f"2^{power} elements: AR + Adam / fused",
            times.all_reduce_adam / times.fused,
            whole_s / kernel_s,
            band=MODELLED,
            kind=Kind.FITTED,
            point=points[power],
            note=f"(T_AR + T_opt) / T_AR is {times.all_reduce_adam / reduce_ms:.3f}",
        )


def _cluster(program: TensorProgram, plan: Plan, ratio: float) -> Cluster:
    """Ranks whose links are so fast that the all-reduce takes `ratio` times as long as the optimizer."""
    free = even_cluster(_RANKS, bytes_per_s=1e30, latency_s=0.0)
    optimizer_s = _update_s(plan, program, free)
    moved = 2 * (_RANKS - 1) / _RANKS * program.values["w"].num_bytes
    return even_cluster(_RANKS, bytes_per_s=moved / (ratio * optimizer_s), latency_s=0.0)


def _update_s(plan: Plan, program: TensorProgram, cluster: Cluster) -> float:
    """Seconds from when the gradient begins to be reduced until all is updated."""
    simulation, first = simulate(plan, program, cluster), _first_of(plan, program)
    return simulation.total_s - min(event.start_s for event in simulation.events if event.step >= first)


def _first_of(plan: Plan, program: TensorProgram) -> int:
    """The step that reduces the gradient."""
    gradient = program.gradients["w"]
    return next(
        index
        for index, step in enumerate(plan.steps)
        if isinstance(step, Collective) and plan.tensors[step.source].value == gradient
    )


def _on_real_ranks(quick: bool, progress: Progress) -> Iterator[Row]:
    powers, num = ((10, 14) if quick else (10, 12, 14, 16, 18, 20)), 2
    progress("real ranks: results to the bit")
    num_equal = 0
    with Ranks(RankOptions(num_ranks=num, device="cpu")) as ranks:
        for power in powers:
            program, sources = _program(power), _sources(power)
            plan = use_rings(PLANNERS["dp_even"](program, even_cluster(num)))
            steps, kernel = (
                ranks.run(p, sources).results for p in (slice_updates(plan, program), fuse_updates(plan, program, _CHUNKS))
            )
            num_equal += all(torch.equal(kernel[name], steps[name]) for name in steps)
    yield _fact(
        f"fused beside its steps on {num} gloo ranks, {len(powers)} sizes up to 2^{powers[-1]}: results equal to the bit",
        "all",
        f"{num_equal} of {len(powers)}",
        is_so=num_equal == len(powers),
        note="both in our own rings: one order of additions",
    )
    power = 20 if quick else 21
    progress("real ranks: times over shaped links")
    whole_s, slices_s, kernel_s = _measured(power, num, 5 if quick else 11)
    yield ratio_row(
        "examples",
        f"2^{power} elements on {num} gloo ranks: AR + Adam / fused",
        1 + _SHARE,
        whole_s / kernel_s,
        band=SIMULATED,
        kind=Kind.OWN,
        note=f"beside 1 + T_opt / T_AR, which shaped links make {_SHARE}; work done {_SLOWNESS:g} times; "
        f"RS-C-AG: {whole_s / slices_s:.2f}",
    )


def _sources(power: int) -> dict[str, torch.Tensor]:
    program, draw = _program(power), torch.Generator().manual_seed(0)
    return {name: torch.rand(program.values[name].shape, generator=draw, dtype=_type(program, name)) for name in program.sources}


def _type(program: TensorProgram, name: str) -> torch.dtype:
    return getattr(torch, program.values[name].dtype)


def _measured(power: int, num: int, times: int) -> tuple[float, float, float]:
    """Medians over shaped links of AR-C, RS-C-AG and the fused kernel, in turns."""
    program, sources = _program(power), _sources(power)
    plan = use_rings(PLANNERS["dp_even"](program, even_cluster(num)))
    others = [name for name in plan.sources if program.values[name].kind is ValueKind.INPUT]
    slowness = (_SLOWNESS,) * num
    with Ranks(RankOptions(num_ranks=num, device="cpu", slowness=slowness)) as ranks:
        ranks.load(plan, sources)
        first = _first_of(plan, program)
        spent: list[float] = []
        for _ in range(times):
            ranks.begin_step({name: sources[name] for name in others}, [], is_timed=True)
            spent.append(sum(seconds for step, seconds in ranks.end_step().timings[0] if step > first))
    optimizer_s, moved = median(spent), 2 * (num - 1) / num * program.values["w"].num_bytes
    shape = LinkShape(bytes_per_s=moved / (optimizer_s / _SHARE))
    plans, measured_s = (
        (plan, slice_updates(plan, program), fuse_updates(plan, program, _REAL_CHUNKS)),
        list[list[float]]([[], [], []]),
    )
    links = {(0, 1): shape, (1, 0): shape}
    with Ranks(RankOptions(num_ranks=num, device="cpu", links=links, slowness=slowness)) as ranks:
        for _ in range(times):
            for each, seconds in zip(plans, measured_s, strict=True):
                seconds.append(max(_seconds(ranks, each, sources, others)))
    whole_s, slices_s, kernel_s = map(median, measured_s)
    return whole_s, slices_s, kernel_s


def _seconds(ranks: Ranks, plan: Plan, sources: Mapping[str, torch.Tensor], inputs: list[str]) -> tuple[float, ...]:
    ranks.load(plan, sources)
    ranks.begin_step({name: sources[name] for name in inputs}, [])
    return ranks.end_step().seconds


def _not_here() -> Iterator[Row]:
    for what, published in (
        ("2^17 elements: AR + Adam / fused", "0.94"),
        ("training of BERT, data parallel", "up to 1.68"),
        ("send of slices between stages, pipelines", "1.77"),
    ):
        yield not_here_row("evaluation", what, published, "128 or 256 V100s")


def _fact(what: str, published: str, ours: str, *, is_so: bool, note: str) -> Row:
    """What follows from our own count of the paper's schedules."""
    return fact_row("section 3", what, published, ours, is_so=is_so, band=EXACT, kind=Kind.OWN, note=note)
