"""Figures 11, 12 and 14, and table 5: what the planner does, which needs no hardware."""

from collections.abc import Iterator
from itertools import pairwise

from dyorc.offline.cluster import published
from dyorc.offline.planners.hidup.figures import placements_by_bandwidth, planning_seconds, quality_under_wrong_costs
from dyorc.offline.program import Replicate
from dyorc.offline.reproduce.hidup.bars import model, small_bert
from dyorc.offline.reproduce.hidup.published import FIGURE_11, FIGURE_14, TABLE_5
from dyorc.offline.reproduce.measured import program_of
from dyorc.offline.reproduce.study import Progress
from dyorc.offline.reproduce.table import Relation, Row, number_row, ratio_row

_MODEL = "BERT-SGMoE"
_RUST = "theirs in Rust, on the forward graph; ours in Python, on forward and backward, in seconds of the processor"


def figures_11_and_12() -> Iterator[Row]:
    """Yields how parameters and gates lie by bandwidth."""
    program, cluster = model(_MODEL, 8), published("hidup-2x4-10g")
    found = placements_by_bandwidth(program, cluster, [gbits / 10 for gbits in FIGURE_11], max_states=8)
    parts = [each.num_replicated / (each.num_replicated + each.num_sharded) for each in found.values()]
    for (gbits, published_part), part in zip(FIGURE_11.items(), parts, strict=True):
        what = f"part of the parameters that is replicated at {gbits} Gb/s"
        yield number_row("figure 11", what, published_part, part, tolerance=0.15)
    falls = all(one >= other for one, other in pairwise(parts))
    yield Row(
        figure="figure 11",
        what="more bandwidth, more parameters in shards",
        published="yes",
        ours="yes" if falls and parts[-1] < parts[0] else "no",
        relation=Relation.EQUAL if falls and parts[-1] < parts[0] else Relation.DIFFERS,
    )
    slow, fast = found[1.0], placements_by_bandwidth(program, cluster, [10.0], max_states=8)[10.0]
    for gbits, each, wanted in ((100, fast, "experts in shards"), (10, slow, "gates whole on every GPU")):
        experts = [p for name, p in each.parameters.items() if len(program.values[name].shape) == 3]
        is_split = not any(isinstance(placement, Replicate) for placement in experts)
        are_whole = each.num_whole_gates > each.num_split_gates
        is_so = is_split if gbits == 100 else are_whole
        ours = f"experts {'in shards' if is_split else 'whole'}, gates {'whole' if are_whole else 'in parts'}"
        relation = Relation.EQUAL if is_so else Relation.DIFFERS
        yield Row(figure="figure 12", what=f"the plan at {gbits} Gb/s", published=wanted, ours=ours, relation=relation)


def figure_14(progress: Progress, max_layers: int) -> Iterator[Row]:
    """Yields the seconds of the search by layers."""
    cluster = published("hidup-8x8").restricted_to(range(8))
    ours: dict[int, float] = {}
    for layers, published_s in FIGURE_14.items():
        if layers > max_layers:
            continue
        progress(f"figure 14, {layers} layers")
        program = program_of(small_bert, num_devices=8, layers=layers)
        ours |= planning_seconds({layers: lambda program=program: program}, cluster)
        relation = Relation.EQUAL if ours[layers] <= published_s else Relation.DIFFERS
        yield Row(
            figure="figure 14",
            what=f"seconds of planning BERT-SGMoE of {layers} layers",
            published=f"{published_s:.2f}",
            ours=f"{ours[layers]:.2f}",
            relation=relation,
            note=_RUST,
        )
    few, many = min(ours), max(ours)
    theirs = (FIGURE_14[many] / FIGURE_14[few]) / (many / few)
    growth = (ours[many] / ours[few]) / (many / few)
    yield number_row("figure 14", f"growth from {few} to {many} layers, 1 is linear", theirs, growth, tolerance=0.25)


def table_5() -> Iterator[Row]:
    """Yields how good plans are that wrong costs lead to."""
    found = quality_under_wrong_costs(model(_MODEL, 8), published("hidup-2x4-10g"), max_states=8)
    for name, published_ratio in TABLE_5.items():
        yield ratio_row("table 5", f"{name}: time relative to the right costs", published_ratio, found[name])
