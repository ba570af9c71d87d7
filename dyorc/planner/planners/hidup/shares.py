"""The best shares of the ranks for a duplex program: HAP's linear program (EuroSys'24, section 5.1) with HiDup's overlap.

With B_j the share of rank j, M the largest, and p_i one microbatch's computation of stage i:

    min   sum_i (first_i + second_i) + p_last + last reductions
    s.t.  p_i >= whole_ij + split_ij * B_j              for each rank: what it computes whole, and what is divided
          first_i >= p_{i-1},  first_i >= fixed_i + driven_i * M       communication for microbatch 1
          second_i >= p_i,     second_i >= fixed_i' + driven_i' * M    for microbatch 2, and reductions that stage i - 1 left
          M >= B_j,  sum_j B_j = 1,  B >= 0
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dyorc.planner.plan.build import kind_between
from dyorc.planner.planners.collective_costs import line_of_largest_share
from dyorc.planner.planners.hidup.interleaved_plan import stages_of
from dyorc.planner.planners.hidup.items import NodeItem, ReductionItem
from dyorc.planner.planners.hidup.microbatch_costs import Conversion, MicrobatchCosts
from dyorc.planner.planners.hidup.pareto_search import DuplexProgram, ItemRecord
from dyorc.planner.planners.linear_shares import LinearShares
from dyorc.planner.program import Shard
from dyorc.planner.program.costs import costs_of


@dataclass
class _Stage:
    """Seconds of a stage; communication as what is fixed and what a whole share would take."""

    whole: list[float]
    split: list[float]
    first: tuple[float, float] = (0.0, 0.0)
    second: tuple[float, float] = (0.0, 0.0)
    leaves: tuple[float, float] = (0.0, 0.0)


def best_shares(program: DuplexProgram, costs: MicrobatchCosts) -> tuple[float, ...]:
    """Returns the shares that make a program quickest, with its strategies and stages as they are."""
    stages = _stages(program, costs)
    scale = 1.0 / max(program.cost_s, 1e-12)  # the solver's tolerances are absolute
    of_ranks = list(zip(*(zip(stage.whole, stage.split, strict=True) for stage in stages), strict=True))
    linear = LinearShares(of_ranks, stages[-1].leaves[1] * scale)
    before: int | None = None
    for number, stage in enumerate(stages):
        comp = linear.variable(1.0 if number == len(stages) - 1 else 0.0)
        first, second = linear.variable(), linear.variable()
        for kind, rank in enumerate(linear.first):
            linear.at_most(-stage.whole[rank] * scale, (kind, stage.split[rank] * scale), (comp, -1.0))
        for slot, (fixed_s, driven_s) in ((first, stage.first), (second, stage.second)):
            linear.at_most(-fixed_s * scale, (linear.largest, driven_s * scale), (slot, -1.0))
        linear.at_most(0.0, (comp, 1.0), (second, -1.0))
        if before is not None:
            linear.at_most(0.0, (before, 1.0), (first, -1.0))
        before = comp
    solved = linear.solve()
    return solved[0] if solved else tuple(costs.ratios)


def _stages(program: DuplexProgram, costs: MicrobatchCosts) -> list[_Stage]:
    nodes, first_alike = costs_of(costs.program), costs.cluster.first_alike
    stages: list[_Stage] = []
    for records in stages_of(program):
        whole, split = dict.fromkeys(first_alike, 0.0), dict.fromkeys(first_alike, 0.0)
        stage = _Stage([], [])
        for record in records:
            if isinstance(record.item, NodeItem) and record.strategy:
                seconds = whole if record.strategy.axis is None else split
                for rank in seconds:
                    seconds[rank] += costs.cluster.compute_s(nodes[record.item.node.name], rank, 0.5)
            _communicate(stage, record, costs)
        stage.whole, stage.split = ([seconds[first] for first in first_alike] for seconds in (whole, split))
        stages.append(stage)
    for before, after in pairwise(stages):
        after.second = _plus(after.second, before.leaves)
    return stages


def _communicate(stage: _Stage, record: ItemRecord, costs: MicrobatchCosts) -> None:
    for conversion in record.conversions:
        line, tensor = _line(conversion, costs), conversion.tensor
        if isinstance(record.item, ReductionItem):
            stage.leaves = _plus(stage.leaves, line)
            continue
        is_late = tensor.is_once and costs.halves.placed[tensor.value] != tensor.along_time
        if not is_late:
            stage.first = _plus(stage.first, line)
        if is_late or not tensor.is_once:
            stage.second = _plus(stage.second, line)


def _line(conversion: Conversion, costs: MicrobatchCosts) -> tuple[float, float]:
    """A constant number of seconds, and seconds for each whole of the largest share."""
    kind = kind_between(conversion.before, conversion.after)
    num_bytes = costs.program.values[conversion.tensor.value].num_bytes
    num_bytes = num_bytes // 2 if isinstance(conversion.tensor.along_time, Shard) else num_bytes
    return line_of_largest_share(costs.cluster, kind, conversion.algorithm, num_bytes) or (conversion.cost_s, 0.0)


def _plus(terms: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    return terms[0] + other[0], terms[1] + other[1]
