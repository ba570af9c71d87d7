"""Searches everything: the optimum on programs of about ten nodes, with which tests compare other planners.

It tries every strategy of every node, every placement of every source and, if asked, every order of the nodes, with the
simulator.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import MeshAxis, Plan, PlanBuilder, Provenance
from dyorc.planner.program import (
    REPLICATE,
    Node,
    Placement,
    Shard,
    Strategy,
    TensorProgram,
    axes_of,
    strategies_of,
)
from dyorc.planner.simulate import simulate


def exhaustive(
    program: TensorProgram,
    cluster: Cluster,
    *,
    ratios: Sequence[float] | None = None,
    orders: bool = False,
    max_plans: int = 200_000,
) -> Plan:
    """Returns the quickest of all plans with one axis of ranks and one microbatch.

    Args:
        program: Of few nodes.
        cluster: Where it runs.
        ratios: The share of each rank; even if None.
        orders: Whether to try every order of the nodes, too.
        max_plans: More are refused before the search begins.

    Raises:
        PlanError: There are too many plans.
    """
    ratios = tuple(ratios or (1.0,) * len(cluster.devices))
    axes = axes_of(program)
    strategies = [strategies_of(program, node, axes) for node in program.nodes]
    sequences = list(_orders(program)) if orders else [program.nodes]
    sources = {name: _source_placements(program, name) for name in program.sources}
    num_plans = len(sequences)
    for options in (*strategies, *sources.values()):
        num_plans *= len(options)
    if num_plans > max_plans:
        raise PlanError(f"{program.name} has {num_plans} plans, and at most {max_plans} are tried")
    best: Plan | None = None
    for sequence, held, chosen in product(sequences, product(*sources.values()), product(*strategies)):
        by_node = dict(zip((node.name for node in program.nodes), chosen, strict=True))
        plan = _plan(program, ratios, sequence, dict(zip(sources, held, strict=True)), by_node)
        if plan is not None:
            total_s = simulate(plan, program, cluster).total_s
            if best is None or total_s < (best.provenance.cost_s or 0.0):
                best = replace(plan, cluster=cluster.digest, provenance=replace(plan.provenance, cost_s=total_s))
    assert best, "everything replicated is always a plan"
    return best


def _source_placements(program: TensorProgram, name: str) -> list[Placement]:
    axes, shape = axes_of(program), program.values[name].shape
    return [REPLICATE, *(Shard(dim) for dim in range(len(shape)) if axes.extent_of(name, dim) > 1)]


def _orders(program: TensorProgram) -> Iterator[tuple[Node, ...]]:
    def extend(done: tuple[Node, ...], made: frozenset[str]) -> Iterator[tuple[Node, ...]]:
        if len(done) == len(program.nodes):
            yield done
        for node in program.nodes:
            if node not in done and made.issuperset(node.inputs):
                yield from extend((*done, node), made | {output for output in node.outputs if output})

    return extend((), frozenset(program.sources))


def _plan(
    program: TensorProgram,
    ratios: Sequence[float],
    sequence: Sequence[Node],
    held: Mapping[str, Placement],
    chosen: Mapping[str, Strategy],
) -> Plan | None:
    """Builds one plan; None if the strategies do not fit together."""
    builder = PlanBuilder(program)
    builder.mesh("ranks", [MeshAxis(name="rank", size=len(ratios))], range(len(ratios)), {"rank": ratios})
    owner_of = {result: owner for owner, result in [*program.gradients.items(), *program.updates.items()]}
    made = dict(held)
    try:
        for name, placement in held.items():
            builder.source(name, "ranks", [placement])
        for node in sequence:
            builder.apply(node, "ranks", [chosen[node.name]])
            made |= {name: p for name, p in zip(node.outputs, chosen[node.name].outputs, strict=True) if name}
        for name in program.results:
            builder.result(name, "ranks", [held[owner_of[name]] if name in owner_of else made[name]])
    except PlanError:
        return None
    return builder.build(Provenance(planner="exhaustive"))
