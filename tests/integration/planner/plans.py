"""Plans for the tests of real ranks, and what one device computes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import nn

from dyorc.planner.plan import Algorithm, Layout, MeshAxis, Plan, PlanBuilder, Provenance
from dyorc.planner.program import REPLICATE, Placement, Shard, axes_of, strategies_of
from tests.unit.planner.examples import Example, example_of


@dataclass(frozen=True)
class Place:
    """A mesh with two axes at most, and the layout of the product on it."""

    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    ratios: tuple[tuple[float, ...], ...]
    layout: Layout


class _Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(9, 7, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).sum()


@cache
def product() -> Example:
    """Returns the sum of a matrix product: the product, `[8, 7]`, can be cut along either dimension, or be a partial sum."""
    torch.manual_seed(1)
    return example_of(_Product(), (torch.randn(8, 9, dtype=torch.float64),))


def product_value() -> torch.Tensor:
    """Returns the product itself, on one device."""
    found = product()
    return found.module.linear(found.inputs[0]).detach()  # type: ignore[union-attr, operator]


def changed(ratios: Sequence[float], before: Placement, after: Placement, algorithm: Algorithm) -> Plan:
    """Plans to compute the product in one placement, and to bring it into another by one collective.

    The ranks are not in the order of their numbers: the last comes first.
    """
    builder = _builder()
    ranks = [len(ratios) - 1, *range(len(ratios) - 1)]
    builder.mesh("line", [MeshAxis(name="rank", size=len(ratios))], ranks, {"rank": ratios})
    source = _computed(builder, "line", [before])
    return _ending_in(builder, builder.collective(source, "rank", after, None, algorithm))


def moved(before: Place, after: Place) -> Plan:
    """Plans to compute the product on one mesh, and to transfer it to another."""
    builder = _builder()
    for name, place in (("one", before), ("two", after)):
        axes = [MeshAxis(name=f"axis_{i}", size=size) for i, size in enumerate(place.sizes)]
        builder.mesh(name, axes, place.ranks, {axis.name: ratios for axis, ratios in zip(axes, place.ratios, strict=True)})
    _computed(builder, "one", before.layout)
    return _ending_in(builder, builder.want(_value(builder), "two", after.layout))


def _builder() -> PlanBuilder:
    program = product().program
    return PlanBuilder(program, axes_of(program))


def _value(builder: PlanBuilder) -> str:
    return next(node for node in builder.program.nodes if node.op == "aten.mm.default").outputs[0]


def _computed(builder: PlanBuilder, mesh: str, placements: Sequence[Placement]) -> str:
    """Computes the product from sources that all ranks hold whole, and returns its id."""
    program = builder.program
    for name in program.sources:
        builder.source(name, mesh, [REPLICATE] * len(placements))
    for node in program.nodes:
        strategies = strategies_of(program, node, builder.axes)
        if _value(builder) not in node.outputs:
            builder.apply(node, mesh, [strategies[0]] * len(placements))
            continue
        builder.apply(node, mesh, [next(s for s in strategies if _same(s.outputs[0], p)) for p in placements])
        return builder.want(node.outputs[0], mesh, placements)
    raise AssertionError("there is no product")


def _same(one: Placement, other: Placement) -> bool:
    return type(one) is type(other) and getattr(one, "dim", None) == getattr(other, "dim", None)


def _ending_in(builder: PlanBuilder, tensor: str) -> Plan:
    return replace(builder.draft(Provenance(planner="test")), results={_value(builder): tensor})


def data_parallel(found: Example, ratios: Sequence[float], *, is_sharded: bool = False, num_parts: int = 1) -> Plan:
    """Splits each node along the batch where it can be; parameters are replicated, or sharded where a dimension allows it."""
    program, axes = found.program, axes_of(found.program)
    builder = PlanBuilder(program, axes)
    mesh_axes = [MeshAxis(name="part", size=num_parts, is_time=True), MeshAxis(name="rank", size=len(ratios))]
    builder.mesh("ranks", mesh_axes, range(len(ratios)), {"rank": ratios})
    batch = axes.outermost[program.inputs[0]][0]
    for name in program.sources:
        is_cut = is_sharded and name in program.parameters and axes.outermost[name][0] is not None
        builder.source(name, "ranks", [REPLICATE, Shard(0) if is_cut else REPLICATE])
    for node in program.nodes:
        strategies = strategies_of(program, node, axes)
        split = next((strategy for strategy in strategies if strategy.axis == batch), strategies[0])
        for part in range(num_parts):
            builder.apply(node, "ranks", [split, split], part)
    for name in program.results:
        parameter = next((p for p, gradient in program.gradients.items() if gradient == name), None)
        is_cut = is_sharded and parameter is not None and axes.outermost[parameter][0] is not None
        can_cut = is_cut and axes.outermost[name][0] is not None
        builder.result(name, "ranks", [REPLICATE, Shard(0) if can_cut else REPLICATE])
    return builder.build(Provenance(planner="data parallel"))
