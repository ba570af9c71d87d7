"""Small plans for tests."""

from dyorc.planner.plan import MeshAxis, Plan, PlanBuilder, Provenance
from dyorc.planner.program import REPLICATE, axes_of, strategies_of
from tests.unit.planner.examples import Example


def greedy(found: Example, ratios: tuple[float, ...], num_parts: int) -> Plan:
    """Splits each node along the batch where that needs nothing else to be moved."""
    program, axes = found.program, axes_of(found.program)
    builder = PlanBuilder(program, axes)
    mesh_axes = [MeshAxis(name="part", size=num_parts, is_time=True), MeshAxis(name="rank", size=len(ratios))]
    builder.mesh("ranks", mesh_axes, range(len(ratios)), {"rank": ratios})
    batch = axes.outermost[program.inputs[0]][0]
    for name in program.sources:
        builder.source(name, "ranks", [REPLICATE, REPLICATE])
    for node in program.nodes:
        strategies = strategies_of(program, node, axes)
        split = next((strategy for strategy in strategies if strategy.axis == batch), strategies[0])
        for part in range(num_parts):
            builder.apply(node, "ranks", [split, split], part)
    for name in program.results:
        builder.result(name, "ranks", [REPLICATE, REPLICATE])
    return builder.build(Provenance(planner="greedy"))
