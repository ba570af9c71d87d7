"""Figures 11, 12 and 14, and table 5: what the planner does, which needs no hardware."""

from collections.abc import Iterator
from itertools import pairwise

from benchmarks.papers.bands import EXACT, SIMULATED
from benchmarks.papers.hidup.bars import model, small_bert
from benchmarks.papers.hidup.published import FIGURE_11, FIGURE_14, TABLE_5
from benchmarks.papers.hidup.search_figures import placements_by_bandwidth, planning_seconds, quality_under_wrong_costs
from benchmarks.papers.measured import program_of
from benchmarks.papers.rows import fact_row, number_row, points_of, ratio_row, sign_row
from benchmarks.papers.study import Progress
from benchmarks.papers.table import Row
from dyorc.planner.cluster import published
from dyorc.planner.program import Replicate

_MODEL = "BERT-SGMoE"
FIGURE_14_LAYERS = (2, 4, 8)
"""Of the published ones; more take minutes."""
_RUST = "theirs in Rust, on the forward graph; ours in Python, on forward and backward, in seconds of the processor"


def figures_11_and_12() -> Iterator[Row]:
    """Yields how parameters and gates lie by bandwidth."""
    program, cluster = model(_MODEL, 8), published("hidup-2x4-10g")
    placements = placements_by_bandwidth(program, cluster, [gbits / 10 for gbits in FIGURE_11], max_states=8)
    parts = [each.num_replicated / (each.num_replicated + each.num_sharded) for each in placements.values()]
    points = points_of("part that is replicated by Gb/s", list(FIGURE_11))
    for (gbits, published_part), part in zip(FIGURE_11.items(), parts, strict=True):
        what = f"part of the parameters that is replicated at {gbits} Gb/s"
        yield number_row("figure 11", what, published_part, part, band=SIMULATED, point=points[gbits])
    falls = all(before >= other for before, other in pairwise(parts))
    is_so = falls and parts[-1] < parts[0]
    yield fact_row(
        "figure 11", "more bandwidth, more parameters in shards", "yes", "yes" if is_so else "no", is_so=is_so, band=EXACT
    )
    slow, fast = placements[1.0], placements_by_bandwidth(program, cluster, [10.0], max_states=8)[10.0]
    for gbits, each, wanted in ((100, fast, "experts in shards"), (10, slow, "gates whole on every GPU")):
        experts = [p for name, p in each.parameters.items() if len(program.values[name].shape) == 3]
        is_split = not any(isinstance(placement, Replicate) for placement in experts)
        are_whole = each.num_whole_gates > each.num_split_gates
        is_so = is_split if gbits == 100 else are_whole
        ours = f"experts {'in shards' if is_split else 'whole'}, gates {'whole' if are_whole else 'in parts'}"
        yield fact_row("figure 12", f"the plan at {gbits} Gb/s", wanted, ours, is_so=is_so, band=EXACT)


def figure_14(progress: Progress, max_layers: int) -> Iterator[Row]:
    """Yields the seconds of the search by layers."""
    cluster = published("hidup-8x8").restricted_to(range(8))
    ours: dict[int, float] = {}
    for layers in FIGURE_14_LAYERS:
        if layers > max_layers:
            continue
        published_s = FIGURE_14[layers]
        progress(f"figure 14, {layers} layers")
        program = program_of(small_bert, num_devices=8, layers=layers)
        ours |= planning_seconds({layers: lambda program=program: program}, cluster)
        yield sign_row(
            "figure 14",
            f"seconds of planning BERT-SGMoE of {layers} layers",
            f"{published_s:.2f}",
            f"{ours[layers]:.2f}",
            is_so=ours[layers] <= published_s,
            note=_RUST,
            point=points_of("seconds of planning by layers", FIGURE_14_LAYERS)[layers],
        )


def table_5() -> Iterator[Row]:
    """Yields how good plans are that wrong costs lead to."""
    quality = quality_under_wrong_costs(model(_MODEL, 8), published("hidup-2x4-10g"), max_states=8)
    for name, published_ratio in TABLE_5.items():
        yield ratio_row("table 5", f"{name}: time relative to the right costs", published_ratio, quality[name])
