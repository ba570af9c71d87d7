"""What HiDup's paper (SoCC'22) shows of its planner alone, which needs no hardware: figures 11, 12 and 14, and table 5.

Each function returns the numbers for a program and cluster; which of them the paper used is up to the caller.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import process_time

from dyorc.planner.cluster import Cluster, Link
from dyorc.planner.cluster.collectives import CostLine
from dyorc.planner.planners.hidup.items import NodeItem
from dyorc.planner.planners.hidup.microbatch_costs import Wrong
from dyorc.planner.planners.hidup.pareto_search import DuplexProgram
from dyorc.planner.planners.hidup.plan import Duplex
from dyorc.planner.planners.pricing import PricedPlan, by_hand, price_plan
from dyorc.planner.program import REPLICATE, Placement, TensorProgram

_GATE_OPS = ("topk", "argmax", "cumsum", "max")


def planning_seconds(
    programs: Mapping[int, Callable[[], TensorProgram]], cluster: Cluster, *, max_states: int = 4
) -> dict[int, float]:
    """Figure 14: the processor's seconds of the search by number of layers, without capturing the program."""
    seconds: dict[int, float] = {}
    for layers, program in programs.items():
        captured = program()
        begun_s = process_time()
        _best(Duplex(captured, cluster, {}), max_states)
        seconds[layers] = process_time() - begun_s
    return seconds


def wrong_costs(seed: int = 0) -> dict[str, Wrong]:
    """The wrong costs of table 5, by their names there."""

    def random(most: float) -> Wrong:
        draws = Random(seed)
        factors: dict[tuple[str, float], float] = {}
        return lambda kind, cost_s: cost_s * factors.setdefault((kind, cost_s), 1.0 + (most if draws.random() < 0.5 else -most))

    def communication(factor: float) -> Wrong:
        return lambda kind, cost_s: cost_s * factor if kind == "communicate" else cost_s

    return {
        "20 % random": random(0.2),
        "50 % random": random(0.5),
        "+20 % communication": communication(1.2),
        "+50 % communication": communication(1.5),
        "-20 % communication": communication(0.8),
        "-50 % communication": communication(0.5),
    }


def quality_under_wrong_costs(
    program: TensorProgram, cluster: Cluster, *, max_states: int = 16, seed: int = 0
) -> dict[str, float]:
    """Table 5: the time of the plan that wrong costs lead to, relative to the plan that right costs lead to.

    Both by the right costs, in the simulator.
    """
    right_s = _simulated_s(program, cluster, None, max_states)
    costs = wrong_costs(seed).items()
    return {name: _simulated_s(program, cluster, wrong, max_states) / right_s for name, wrong in costs}


@dataclass(frozen=True, kw_only=True)
class Placements:
    """What figures 11 and 12 show of a plan.

    Attributes:
        num_replicated: Parameters that each rank holds whole.
        num_sharded: Parameters that the ranks share out.
        parameters: How each parameter lies.
        num_whole_gates: Operations of gates that every rank computes whole.
        num_split_gates: Operations of gates that are divided.
    """

    num_replicated: int
    num_sharded: int
    parameters: Mapping[str, Placement]
    num_whole_gates: int
    num_split_gates: int


def placements_by_bandwidth(
    program: TensorProgram, cluster: Cluster, factors: Sequence[float], *, max_states: int = 16
) -> dict[float, Placements]:
    """Figures 11 and 12: how parameters and gates are placed when all communication is faster or slower by a factor."""
    return {factor: _placements(Duplex(program, faster(cluster, factor), {}), max_states) for factor in factors}


def faster(cluster: Cluster, factor: float) -> Cluster:
    """A cluster that communicates faster by a factor."""
    measured = tuple(
        replace(cost, lines=tuple(CostLine(line.latency_s, line.s_per_byte / factor) for line in cost.lines))
        for cost in cluster.collectives
    )
    links = tuple(_faster_link(link, factor) for link in cluster.links)
    between_all = _faster_link(cluster.between_all, factor) if cluster.between_all else None
    costs = tuple(replace(cost, at_bytes_per_s=cost.at_bytes_per_s * factor) for cost in measured)
    return replace(cluster, name=f"{cluster.name}-x{factor:g}", collectives=costs, links=links, between_all=between_all)


def _faster_link(link: Link, factor: float) -> Link:
    return replace(link, bytes_per_s=link.bytes_per_s * factor)


def _placements(duplex: Duplex, max_states: int) -> Placements:
    program = _best(duplex, max_states)
    lies = {tensor.value: p for record in program.records for tensor, p in record.begins if tensor in duplex.items.owners}
    gates = [
        record.strategy
        for record in program.records
        if isinstance(record.item, NodeItem) and record.strategy and record.item.node.op.split(".")[1] in _GATE_OPS
    ]
    num_whole = sum(strategy.axis is None for strategy in gates)
    num_replicated = sum(placement == REPLICATE for placement in lies.values())
    return Placements(
        num_replicated=num_replicated,
        num_sharded=len(lies) - num_replicated,
        parameters=lies,
        num_whole_gates=num_whole,
        num_split_gates=len(gates) - num_whole,
    )


def _simulated_s(program: TensorProgram, cluster: Cluster, wrong: Wrong | None, max_states: int) -> float:
    return best_plan(program, cluster, wrong, max_states=max_states).simulation.total_s


def best_plan(program: TensorProgram, cluster: Cluster, wrong: Wrong | None = None, *, max_states: int = 4) -> PricedPlan:
    """What the search finds under some costs, and what it takes under the right ones."""
    duplex = Duplex(program, cluster, {}, wrong)
    return price_plan(duplex.plan(_best(duplex, max_states), _even(duplex)), program, cluster)


def _best(duplex: Duplex, max_states: int) -> DuplexProgram:
    duplex.begin_with(by_hand(duplex.program, duplex.cluster))
    return [*duplex.searches(_even(duplex), max_states)][-1]


def _even(duplex: Duplex) -> tuple[float, ...]:
    return (1.0,) * len(duplex.cluster.devices)
