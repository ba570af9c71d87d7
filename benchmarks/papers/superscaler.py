"""SuperScaler (arXiv 2301.08984) and nnScaler (OSDI'24): conversions between layouts, and the three new plans.

Conversions are counted exactly. The plans are simulated, on models with the proportions that each plan is made for; what
was measured on V100s is compared by sign only.
"""

import time
from collections.abc import Iterable, Iterator, Sequence

import torch

from benchmarks.papers.bands import EXACT
from benchmarks.papers.exhaustive_duplex import exhaustive_duplex_s
from benchmarks.papers.layout_pairs import mesh_of, pairs, plan_of, tally
from benchmarks.papers.models import recycled, swin
from benchmarks.papers.rows import fact_row, not_here_row, own_row, ratio_row, sign_row
from benchmarks.papers.study import Progress, Study, unjudged
from benchmarks.papers.table import Kind, Line, Row
from dyorc.planner.cluster import Cluster, even_cluster
from dyorc.planner.models import gpt
from dyorc.planner.plan import CollectiveKind, Plan
from dyorc.planner.plan.adapters import Adapters, Spot, Tensor, bytes_moved
from dyorc.planner.plan.rewrites import communicate_early
from dyorc.planner.plan.show import summary_of
from dyorc.planner.planners import PLANNERS
from dyorc.planner.planners.hidup.pareto_search import ParetoSearch
from dyorc.planner.planners.hidup.plan import Duplex
from dyorc.planner.program import PARTIAL, REPLICATE, TensorProgram, capture
from dyorc.planner.runtime import RankOptions, Ranks
from dyorc.planner.simulate import Simulation, simulate

_ABOUT = """Conversions between layouts are counted exactly. The new plans are written as constraints and simulated on four
equal devices, with small models of the proportions that each plan is made for. The published speed-ups were measured on
V100s, and those of single models are known from notes of third parties only, so they are compared by sign."""
_RANKS = 4


def reproduce(*, quick: bool = False, progress: Progress = lambda text: None) -> Study:
    """Returns the table of SuperScaler's claims, to be computed.

    Args:
        quick: Only layouts on 2 and 4 devices, none of them on real ranks, and smaller models.
        progress: Called with the name of each step.
    """
    parts: dict[str, Iterable[Row | Line]] = {
        "conversions between layouts": conversions((2, 4) if quick else (2, 4, 8), on_ranks=not quick, progress=progress),
        "bytes of collectives": _bytes(),
        "coshard": _coshard(quick),
        "interlaced pipeline": _interlaced(quick),
        "3F1B": _three_passes(),
        "searches": _searches(),
        "not here": _not_here(),
    }
    if quick:
        parts |= {name: unjudged(parts[name], size) for name, size in _FULL_SIZES.items()}
    left_out = ("conversions on 8 devices, and on real ranks",) if quick else ()
    title = "SuperScaler (arXiv 2301.08984), nnScaler (OSDI'24)"
    return Study(name="superscaler", title=title, about=_ABOUT, parts=parts, is_quick=quick, left_out=left_out)


_FULL_SIZES = {
    "conversions between layouts": "meshes of 8 devices, too",
    "coshard": "a larger Swin",
    "interlaced pipeline": "a vocabulary of 8,192",
}
"""Of the parts that a quick run computes at another size."""


# -- conversions ---------------------------------------------------------------------------------------------------------------


def conversions(devices: Sequence[int], *, on_ranks: bool = False, progress: Progress = lambda text: None) -> Iterator[Row]:
    """Yields the rows on conversions between layouts.

    Args:
        devices: How many there are in meshes.
        on_ranks: Whether those on 2 and 4 devices run on real ranks, too.
        progress: Called with the name of each step.
    """
    num_pairs = sum(1 for _ in pairs(devices))
    counts = tally(num_devices=devices, progress=lambda number: progress(f"conversion {number:,} of {num_pairs:,}"))
    on = f"all pairs of layouts of tensors of 1 to 3 dimensions on {', '.join(map(str, devices))} devices"
    num_exact = counts.num_pairs - len(counts.wrong)
    yield _fact("section 4", f"{on}: exact", "all", f"{num_exact:,} of {counts.num_pairs:,}", is_so=not counts.wrong)
    yield _fact(
        "section 4",
        f"{on}: dearer than a path written by hand",
        "none",
        f"{len(counts.dearer)} dearer, {counts.num_cheaper:,} cheaper",
        is_so=not counts.dearer,
        note="by hand: through copies everywhere, or straight along each axis; cost is bytes received",
    )
    if on_ranks:
        num_pairs, num_equal = _on_real_ranks(progress)
        what = "all pairs on 2 and 4 devices, run by gloo ranks: exact"
        yield _fact("section 4", what, "all", f"{num_equal:,} of {num_pairs:,}", is_so=num_equal == num_pairs)
    for size in devices:
        kinds, moved = _sum_to_parts(size)
        expected, num_bytes = 64 * (size - 1), 64 * size
        yield _fact(
            "section 4",
            f"from a partial sum of {num_bytes} bytes to parts of it on {size} devices: bytes that each receives",
            f"{expected} by reduce-scatter, {2 * expected} by all-reduce",
            f"{moved} by {kinds}",
            is_so=(kinds, moved) == ("reduce_scatter", expected),
            note="N (n - 1) / n",
        )


def _sum_to_parts(size: int) -> tuple[str, int]:
    adapters, mesh, tensor = Adapters(bytes_moved), mesh_of((size,)), Tensor((8 * size,), (1,), 8)
    parts = adapters.shard(tensor, mesh, (), 0)
    assert parts
    path = adapters.path(tensor, Spot(mesh, (PARTIAL,)), Spot(mesh, (parts,)))
    return " and ".join(str(hop.kind) for hop in path.hops), round(path.cost - len(path.hops))


def _bytes() -> Iterator[Row]:
    """What each device receives in one collective of the whole bytes N on n devices."""
    size, num_bytes = 4, 4 * 4 * 8
    adapters, mesh, tensor = Adapters(bytes_moved), mesh_of((size,)), Tensor((size, size), (1, 1), 8)
    rows, columns = (adapters.shard(tensor, mesh, (), dim) for dim in (0, 1))
    assert rows
    assert columns
    for name, before, after, formula, expected in (
        ("all-reduce", PARTIAL, REPLICATE, "2 N (n - 1) / n", 2 * num_bytes * (size - 1) // size),
        ("reduce-scatter", PARTIAL, rows, "N (n - 1) / n", num_bytes * (size - 1) // size),
        ("all-gather", rows, REPLICATE, "N (n - 1) / n", num_bytes * (size - 1) // size),
        ("all-to-all", rows, columns, "N / n (n - 1) / n", num_bytes // size * (size - 1) // size),
        ("slice", REPLICATE, rows, "0", 0),
    ):
        path = adapters.path(tensor, Spot(mesh, (before,)), Spot(mesh, (after,)))
        moved = round(path.cost - len(path.hops))
        what = f"{name} of {num_bytes} bytes on {size} devices: bytes that each receives"
        yield _fact("section 4", what, str(expected), str(moved), is_so=moved == expected, note=formula)


def _on_real_ranks(progress: Progress) -> tuple[int, int]:
    """Runs every path on ranks with one process each; a partial sum begins as the first rank's term."""
    num_pairs = num_equal = 0
    num_all = sum(1 for _ in pairs((2, _RANKS)))
    with Ranks(RankOptions(num_ranks=_RANKS, device="cpu")) as ranks:
        for tensor, adapters, before, after in pairs((2, _RANKS)):
            whole = torch.arange(1, 1 + torch.Size(tensor.shape).numel()).reshape(tensor.shape)
            plan = plan_of(tensor, before, adapters.path(tensor, before, after).hops)
            num_pairs += 1
            progress(f"conversion {num_pairs:,} of {num_all:,} on real ranks")
            num_equal += torch.equal(ranks.run(plan, {"value": whole}).results["value"], whole)
    return num_pairs, num_equal


# -- plans ---------------------------------------------------------------------------------------------------------------------


def _coshard(quick: bool) -> Iterator[Row]:
    model = swin(depths=(2,), hidden=32, heads=4, batch=16) if quick else swin(depths=(6,), hidden=64, heads=4, batch=32)
    program, cluster = capture(*model), even_cluster(_RANKS, flops_per_s=1e10, bytes_per_s=1e9)
    plain, split = (_simulated(program, cluster, name) for name in ("dp_even", "megatron"))
    again, cosharded = (_as_ordered(PLANNERS["coshard"](program, cluster, parts=parts), program, cluster) for parts in (1, 4))
    peaks = [max(simulation.peak_bytes) for simulation in (plain, again, cosharded, split)]
    yield sign_row(
        "section 3",
        "coshard of Swin: peak memory beside data parallel",
        "lower",
        f"{peaks[2] / peaks[0]:.2f} of it",
        is_so=peaks[2] < peaks[0],
        note=f"{peaks[1] / peaks[0]:.2f} by recomputing alone; tensor parallel: {peaks[3] / peaks[0]:.2f}",
    )
    sent = [_sent(simulation.plan) for simulation in (plain, cosharded)]
    what, ours = "coshard: bytes communicated beside data parallel", f"{sent[1] / sent[0]:.2f} of them"
    yield fact_row("section 3", what, "as many", ours, is_so=sent[0] == sent[1], band=EXACT)
    yield ratio_row(
        "evaluation",
        "Swin, where data parallel does not fit: seconds of tensor parallel / of coshard",
        3.5,
        split.total_s / cosharded.total_s,
        note="published of large Swins on V100s, by notes of third parties",
    )


def _interlaced(quick: bool) -> Iterator[Row]:
    vocabulary = 2048 if quick else 8192
    program = capture(*gpt(layers=4, hidden=64, vocabulary=vocabulary, sequence=16, batch=16))
    cluster = even_cluster(_RANKS, flops_per_s=1e10, bytes_per_s=1e10)
    shared = _simulated(program, cluster, "interlaced", microbatches=4)
    staged = _simulated(program, cluster, "megatron", tp=1, pp=4, microbatches=4)
    yield ratio_row(
        "evaluation",
        "a vocabulary that is most of the model: seconds of stages that hold it / of the interlaced pipeline",
        2.2,
        staged.total_s / shared.total_s,
        note=f"T5 with 1M tokens on V100s, by notes of third parties; here {vocabulary:,} tokens, 4 microbatches",
    )
    peak_ratio = max(shared.peak_bytes) / max(staged.peak_bytes)
    what = "interlaced: peak memory beside stages that hold the vocabulary"
    yield sign_row("section 3", what, "lower", f"{peak_ratio:.2f} of it", is_so=peak_ratio < 1)


def _three_passes() -> Iterator[Row]:
    program, cluster = capture(*recycled(hidden=64, batch=512)), even_cluster(_RANKS, flops_per_s=1e9, bytes_per_s=2e7)
    passed = _simulated(program, cluster, "3f1b", microbatches=16)
    split = _simulated(program, cluster, "megatron")
    yield ratio_row(
        "evaluation",
        "three passes through the layers: seconds of layers split over all ranks / of 3F1B",
        1.8,
        split.total_s / passed.total_s,
        note="AlphaFold2 beside DeepSpeed on V100s, by notes of third parties; here 16 microbatches, 0.02 bytes of link per flop",
    )
    bubbles = 1 - sum(passed.busy_s) / (_RANKS * passed.total_s)
    note = "16 microbatches through 12 stages on 4 ranks; no figure is published"
    yield own_row("section 3", "3F1B: part of the time in which ranks do not compute", f"{bubbles:.0%}", note)


def _simulated(program: TensorProgram, cluster: Cluster, planner: str, **options: int) -> Simulation:
    return simulate(communicate_early(PLANNERS[planner](program, cluster, **options)), program, cluster)


def _as_ordered(plan: Plan, program: TensorProgram, cluster: Cluster) -> Simulation:
    """Without communication moved: the order says when memory is free."""
    return simulate(plan, program, cluster)


def _sent(plan: Plan) -> int:
    free = (CollectiveKind.SLICE, CollectiveKind.MASK)
    return sum(each.num_bytes for each in summary_of(plan).communications if each.kind not in free and "time" not in each.kind)


# -- searches ------------------------------------------------------------------------------------------------------------------


def _searches() -> Iterator[Row]:
    program, cluster = (
        capture(torch.nn.Sequential(torch.nn.Linear(8, 4, bias=False), _Sum()), [torch.zeros(8, 8)]),
        even_cluster(2),
    )
    duplex = Duplex(program, cluster, {})
    costs = duplex.costs((1.0, 1.0))
    found_s, best_s = ParetoSearch(duplex.items, costs).run().cost_s, exhaustive_duplex_s(duplex.items, costs)
    what = f"cost by the dynamic program / by exhaustive search, {len(program.nodes)} nodes"
    yield _fact("section 5", what, "1", f"{found_s / best_s:.6f}", is_so=abs(found_s / best_s - 1) < 1e-9)
    program, cluster = capture(*gpt(layers=2)), even_cluster(2, flops_per_s=1e9)
    times: list[float] = []
    for hints in ({}, dict.fromkeys(program.parameters, REPLICATE)):
        began_s = time.perf_counter()
        PLANNERS["hidup"](program, cluster, hints=hints, max_states=8)
        times.append(time.perf_counter() - began_s)
    yield ratio_row(
        "section 5",
        "seconds of a search without constraints / with them",
        11.7,
        times[0] / times[1],
        note=f"HiDup's search, which drops what is dominated; constraint: whole parameters; {times[0]:.1f}, {times[1]:.1f} s",
    )


class _Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu().sum()


def _not_here() -> Iterator[Row]:
    note = "32 V100s; each plan's effect is in the rows above"
    yield not_here_row("abstract", "speed-up over the best of DeepSpeed, Megatron and Alpa", "up to 3.5", note)


def _fact(figure: str, what: str, published: str, ours: str, *, is_so: bool, note: str = "") -> Row:
    """What follows from our own formulas, paths written by hand, and searches."""
    return fact_row(figure, what, published, ours, is_so=is_so, band=EXACT, kind=Kind.OWN, note=note)
