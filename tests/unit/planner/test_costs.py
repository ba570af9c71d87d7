"""What operations cost, counted by hand and by torch."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dyorc.planner.program import Node, Value, ValueKind, ValueRef
from dyorc.planner.program.costs import FREE, cost_of, costs_of
from tests.unit.planner.examples import example, example_of


def _values(**shapes: tuple[int, ...]) -> dict[str, Value]:
    return {name: Value(name=name, shape=shape, dtype="float32", kind=ValueKind.ACTIVATION) for name, shape in shapes.items()}


def _node(op: str, *inputs: str) -> Node:
    return Node(name="node", op=f"aten.{op}.default", arguments=tuple(ValueRef(name) for name in inputs), outputs=("out",))


def test_a_product_costs_two_flops_for_each_multiply_add() -> None:
    cost = cost_of(_node("mm", "a", "b"), _values(a=(3, 5), b=(5, 7), out=(3, 7)))
    assert (cost.flops, cost.read_bytes, cost.written_bytes) == (2 * 3 * 5 * 7, 4 * (15 + 35), 4 * 21)


def test_what_only_changes_the_look_of_a_tensor_is_free() -> None:
    for op in ("view", "permute", "expand", "full"):
        assert cost_of(_node(op, *(("a",) if op != "full" else ())), _values(a=(3, 5), out=(5, 3))) == FREE


def test_an_embedding_reads_the_rows_it_looks_up_and_not_the_whole_table() -> None:
    cost = cost_of(_node("embedding", "table", "indices"), _values(table=(1000, 4), indices=(6,), out=(6, 4)))
    assert (cost.flops, cost.read_bytes, cost.written_bytes) == (0, 4 * (24 + 6), 4 * 24)


class _Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(4, 6, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.up(x * x) ** 2).sum()


@pytest.mark.parametrize("name", ["gpt", "net", "transposed"])
def test_products_and_convolutions_cost_what_torch_counts(name: str) -> None:
    if name == "transposed":
        x = torch.randn(2, 4, 5, 5, dtype=torch.float64)
        found = example_of(_Transposed(), (x,))
    else:
        found = example(name)
    costs = costs_of(found.program)
    counted = ("aten.mm", "aten.bmm", "aten.convolution")
    ours = sum(costs[node.name].flops for node in found.program.nodes if node.op.startswith(counted))
    # torch counts no bias's gradient
    bias = sum(
        found.program.values[node.inputs[0]].num_bytes // 8
        for node in found.program.nodes
        if node.op == "aten.convolution_backward.default" and node.outputs[2]
    )
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        found.module(*found.inputs).backward()
    assert ours - bias == counter.get_total_flops() > 0
