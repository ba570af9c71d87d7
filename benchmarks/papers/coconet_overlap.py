"""CoCoNeT's product that is computed while its sum goes round the ring, compared with one after the other."""

from collections.abc import Iterator, Mapping
from statistics import median

import torch
from torch import nn

from benchmarks.papers.bands import EXACT, MODELLED, SIMULATED, SUMMED_32
from benchmarks.papers.rows import fact_row, points_of, ratio_row, sign_row
from benchmarks.papers.schedule_figures import figures_of
from benchmarks.papers.study import Progress
from benchmarks.papers.table import Kind, Row
from dyorc.planner.cluster import even_cluster
from dyorc.planner.passes.coconet import candidates_of, overlap_products, use_rings
from dyorc.planner.plan import Apply, Plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram, capture_inference
from dyorc.planner.runtime import LinkShape, RankOptions, Ranks
from dyorc.planner.simulate import simulate

_CHUNKS, _REAL_CHUNKS = 16, 4
_RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Of an all-reduce's time to its product's."""
_NARROW = 8
"""Columns of the first product, which only spreads the second over ranks and must cost nothing."""
_V100_FLOPS_PER_S, _NVLINK_BYTES_PER_S = 0.8 * 125e12, 120e9
"""What a product in half precision reaches of the data sheet's peak, and a ring over the links of a DGX-2."""


class _Block(nn.Module):
    """The second product of a layer, its bias, and the residual."""

    def __init__(self, inner: int, hidden: int, device: str) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(_NARROW, inner, device=device))
        self.down = nn.Parameter(torch.empty(inner, hidden, device=device))
        self.bias = nn.Parameter(torch.empty(hidden, device=device))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return (x @ self.up) @ self.down + self.bias + residual


def _program(rows: int, inner: int, hidden: int) -> TensorProgram:
    inputs = (torch.empty(rows, _NARROW, device="meta"), torch.empty(rows, hidden, device="meta"))
    return capture_inference(_Block(inner, hidden, "meta"), inputs)


def _plan(program: TensorProgram, num_ranks: int) -> Plan:
    return use_rings(PLANNERS["megatron"](program, even_cluster(num_ranks)))


def counts(num_ranks: int = 4) -> Iterator[Row]:
    """Counts the bytes on the wire, which stay the same."""
    program = _program(64, 128, 32)
    plan = _plan(program, num_ranks)
    sent = [figures_of(each, program).wire_bytes for each in (plan, overlap_products(plan, program, _CHUNKS))]
    expected = 2 * (num_ranks - 1) * 64 * 32 * 4
    yield fact_row(
        "section 3",
        f"product and all-reduce, overlapped; {64 * 32 * 4:,} bytes on {num_ranks} ranks: bytes that all send",
        f"{expected:,} each",
        ", ".join(f"{number:,}" for number in sent),
        is_so=sent == [expected] * 2,
        band=EXACT,
        kind=Kind.OWN,
        note="2 (n - 1) N",
    )


def simulated(quick: bool) -> Iterator[Row]:
    """Yields the ratios of the two schedules, for products that take longer and shorter than the ring."""
    num, rows, inner, hidden = 4, 2048, 4096, 1024
    program = _program(rows, inner, hidden)
    plan = _plan(program, num)
    both = plan, overlap_products(plan, program, _CHUNKS)
    product_s = 2 * rows * inner * hidden / num / 1e12
    points = points_of("speed-up by overlap, by the all-reduce's time", _RATIOS)
    for ratio in _RATIOS[1:3] if quick else _RATIOS:
        moved = 2 * (num - 1) / num * rows * hidden * 4
        cluster = even_cluster(num, bytes_per_s=moved / (ratio * product_s), latency_s=0.0)
        whole_s, kernel_s = (simulate(each, program, cluster).total_s for each in both)
        yield ratio_row(
            "overlap",
            f"product and all-reduce that takes {ratio:g} times as long: one after the other / overlapped",
            (1 + ratio) / max(1.0, ratio),
            whole_s / kernel_s,
            band=MODELLED,
            kind=Kind.OWN,
            point=points[ratio],
            note=f"simulated, {num} ranks, {_CHUNKS} chunks; beside it (T_mm + T_AR) / max(T_mm, T_AR), full overlap",
        )


def as_published() -> Iterator[Row]:
    """Yields the ratios for the sizes of the paper's layer, on ranks as its devices' data sheets have them."""
    num, sequence, hidden = 16, 1024, 3072
    # Our tensors are in single precision, theirs in half: links that are twice as fast take as long.
    cluster = even_cluster(num, flops_per_s=_V100_FLOPS_PER_S, bytes_per_s=2 * _NVLINK_BYTES_PER_S, latency_s=2e-6)
    for batch in (8, 16):
        program = _program(batch * sequence, 4 * hidden, hidden)
        plan = _plan(program, num)
        tuned = candidates_of(plan, program, cluster)
        whole_s = next(each.simulated_s for each in tuned if each.plan is plan)
        yield ratio_row(
            "model parallel",
            f"product, all-reduce, bias and residual; batch {batch}, sequence {sequence}, hidden {hidden}, {num} ranks",
            1.51,
            whole_s / tuned[0].simulated_s,
            band=SIMULATED,
            note=f"simulated, 80 % of a V100's peak and rings of 120 GB/s assumed; no dropout; {tuned[0].name}; published: up to",
        )


def on_real_ranks(quick: bool, progress: Progress) -> Iterator[Row]:
    """Yields whether results are equal, and times over links so slow that the ring takes as long as the product."""
    num, sizes = 2, (512, 512, 256) if quick else (2048, 8192, 1024)
    program = _program(*sizes)
    plan, sources = _plan(program, num), _sources(program)
    kernels = {chunks: overlap_products(plan, program, chunks) for chunks in (1, _REAL_CHUNKS)}
    progress("real ranks: a product while its sum goes round")
    with Ranks(RankOptions(num_ranks=num, device="cpu")) as ranks:
        whole = ranks.run(plan, sources)
        results = [ranks.run(each, sources) for each in kernels.values()]
        product_s = min(_product_s(ranks, plan, sources) for _ in range(5))
    errors = [max(float((ran.results[name] - tensor).abs().max()) for name, tensor in whole.results.items()) for ran in results]
    bytes_sent = {sum(ran.sent_bytes) for ran in (whole, *results)}
    yield fact_row(
        "section 3",
        f"{sizes[0]} x {sizes[1] // num} x {sizes[2]} on {num} gloo ranks, overlapped: largest difference, bytes sent",
        "0; the same",
        f"{max(errors):.1g}; {'the same' if len(bytes_sent) == 1 else bytes_sent}",
        is_so=max(errors) < 1e-4 and len(bytes_sent) == 1,
        band=SUMMED_32,
        kind=Kind.OWN,
        note="sums in the same order; torch may add up a narrower product in another (whole numbers: no difference at all)",
    )
    progress("real ranks: times of a product and its ring")
    shape = LinkShape(bytes_per_s=2 * (num - 1) / num * sizes[0] * sizes[2] * 4 / product_s)
    times: list[list[float]] = [[], []]
    with Ranks(RankOptions(num_ranks=num, device="cpu", links={(0, 1): shape, (1, 0): shape})) as ranks:
        for _ in range(5 if quick else 11):
            for each, seconds in zip((plan, kernels[_REAL_CHUNKS]), times, strict=True):
                seconds.append(max(_run(ranks, each, sources)))
    whole_s, kernel_s = map(median, times)
    yield sign_row(
        "model parallel",
        f"{sizes[0]} x {sizes[1] // num} x {sizes[2]} on {num} gloo ranks: one after the other / overlapped",
        "1.51",
        f"{whole_s / kernel_s:.3g}",
        is_so=whole_s > kernel_s,
        note=f"by shaped links the ring takes as long as the product, {product_s * 1e3:.0f} ms; {_REAL_CHUNKS} chunks; "
        "2 would be full overlap; published: up to, on V100s",
    )


def _run(ranks: Ranks, plan: Plan, sources: Mapping[str, torch.Tensor]) -> tuple[float, ...]:
    ranks.load(plan, sources)
    ranks.begin_step({name: sources[name] for name in ("input_0", "input_1")}, [])
    return ranks.end_step().seconds


def _product_s(ranks: Ranks, plan: Plan, sources: Mapping[str, torch.Tensor]) -> float:
    """What the slowest rank needs for what it computes, which is the product but for little."""
    ranks.load(plan, sources)
    ranks.begin_step({name: sources[name] for name in ("input_0", "input_1")}, [], is_timed=True)
    computing = {number for number, step in enumerate(plan.steps) if isinstance(step, Apply)}
    return max(sum(seconds for step, seconds in timings if step in computing) for timings in ranks.end_step().timings)


def _sources(program: TensorProgram) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {name: torch.randn(program.values[name].shape, generator=draw) for name in program.sources}
