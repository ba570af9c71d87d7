"""What every rank computes whole, although there are several: which steps, their share of the work, and how long they take."""

import pytest

from dyorc.planner.cluster.small import uneven_cluster
from dyorc.planner.plan import MeshAxis, Plan, PlanBuilder
from dyorc.planner.program import REPLICATE, Node, TensorProgram, Value, ValueKind, ValueRef, axes_of, strategies_of
from dyorc.planner.simulate.repeated import fold_operations, repeated_operations

_SHAPES = {"x": (8, 4), "w": (4, 6), "h": (8, 6), "y": (8, 6)}
_MM = Node(name="mm", op="aten.mm.default", arguments=(ValueRef("x"), ValueRef("w")), outputs=("h",))
_RELU = Node(name="relu", op="aten.relu.default", arguments=(ValueRef("h"),), outputs=("y",))


def _program() -> TensorProgram:
    values = {
        name: Value(name=name, shape=shape, dtype="float32", kind=ValueKind.INPUT if name in "xw" else ValueKind.ACTIVATION)
        for name, shape in _SHAPES.items()
    }
    return TensorProgram(name="two", values=values, nodes=(_MM, _RELU), inputs=("x", "w"), outputs=("y",))


def _plan(*, num_ranks: int = 2, num_parts: int = 1, is_split: bool = False) -> Plan:
    """Rows of a product and their ReLU, in parts along time; ranks split the ReLU, and the product if asked to."""
    program = _program()
    axes = axes_of(program)
    rows = axes.outermost["x"][0]
    builder = PlanBuilder(program, axes)
    mesh_axes = [MeshAxis(name="part", size=num_parts, is_time=True), MeshAxis(name="rank", size=num_ranks)]
    builder.mesh("ranks", mesh_axes, range(num_ranks), {})
    for name in ("x", "w"):
        builder.source(name, "ranks", [REPLICATE, REPLICATE])
    for node in program.nodes:
        whole, *others = strategies_of(program, node, axes)
        by_rows = next(strategy for strategy in others if strategy.axis == rows)
        for part in range(num_parts):
            builder.apply(node, "ranks", [by_rows, by_rows if is_split or node is _RELU else whole], part)
    return builder.draft()


@pytest.mark.parametrize("num_parts", [1, 2, 4])
def test_what_stays_whole_has_its_share_of_the_work_however_many_parts_it_is_done_in(num_parts: int) -> None:
    (product,) = repeated_operations(_plan(num_parts=num_parts), uneven_cluster([2, 1], flops_per_s=96))
    assert (product.op, product.num_steps) == ("aten.mm.default", num_parts)
    product_flops, relu_flops = 2 * 8 * 4 * 6, 8 * 6
    assert product.flops_share == pytest.approx(product_flops / (product_flops + relu_flops))
    product_bytes, relu_bytes = 4 * (8 * 4 + num_parts * 4 * 6 + 8 * 6), 4 * 2 * 8 * 6  # each part reads all weights
    assert product.bytes_share == pytest.approx(product_bytes / (product_bytes + relu_bytes))
    assert product.seconds == pytest.approx(product_flops / 96)  # of the slower rank


def test_nothing_is_repeated_where_all_is_split_or_one_rank_is_alone() -> None:
    assert repeated_operations(_plan(is_split=True)) == ()
    assert repeated_operations(_plan(num_ranks=1)) == ()


def test_without_a_cluster_there_are_no_seconds() -> None:
    (product,) = repeated_operations(_plan())
    assert product.seconds is None


def test_operations_that_are_left_are_added_up() -> None:
    operations = repeated_operations(_plan(), uneven_cluster([1, 1], flops_per_s=96)) * 3
    first, others = fold_operations(operations, 1)
    assert first == operations[0]
    assert (others.op, others.num_steps, others.seconds) == ("2 other operations", 2, pytest.approx(8.0))
    assert fold_operations(operations, 3) == operations
