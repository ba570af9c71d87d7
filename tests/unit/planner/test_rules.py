"""Single operations: every way to split them computes the pieces of what torch computes, and the verifier knows so."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from dyorc.planner.plan import MeshAxis, PlanBuilder
from dyorc.planner.program import (
    PARTIAL,
    Argument,
    Node,
    Shard,
    Strategy,
    TensorProgram,
    Value,
    ValueKind,
    ValueRef,
    axes_of,
    strategies_of,
)
from dyorc.planner.program.evaluate import compute
from dyorc.planner.program.graph import OutputShape
from dyorc.planner.verify.cases import CasesOf
from dyorc.planner.verify.plan_index import PlanIndex
from dyorc.planner.verify.proof import ProofTier
from tests.unit.planner.pieces import check_pieces

_RATIOS = [(3.0, 1.0), (1.0, 0.0, 2.0)]


def _x(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def _i(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


def _program(op: str, arguments: Sequence[Any], keywords: dict[str, Any]) -> tuple[TensorProgram, dict[str, torch.Tensor]]:
    """A program of one node, and its tensors, computed ones too."""
    tensors: dict[str, torch.Tensor] = {}

    def argument(given: Any) -> Argument:
        if isinstance(given, torch.Tensor):
            tensors[f"x{len(tensors)}"] = given
            return ValueRef(f"x{len(tensors) - 1}")
        return tuple(map(argument, given)) if isinstance(given, list) else given

    positional = tuple(map(argument, arguments))
    named = tuple((key, argument(value)) for key, value in keywords.items())
    inputs = tuple(tensors)
    shape = tuple(arguments[2]) if "upsample" in op and "backward" in op else ()
    results = compute(op, positional, named, tensors, shape)
    outputs = tuple(f"y{index}" for index in range(len(results)))
    tensors |= dict(zip(outputs, results, strict=True))
    values = {
        name: Value(
            name=name,
            shape=tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
            kind=ValueKind.ACTIVATION if name in outputs else ValueKind.INPUT,
        )
        for name, tensor in tensors.items()
    }
    node = Node(name="node", op=op, arguments=positional, keywords=named, outputs=outputs)
    return TensorProgram(name=op, values=values, nodes=(node,), inputs=inputs, loss=outputs[0]), tensors


_CASES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    # the operation, its arguments, and along which dimensions of its first output it can be split
    ("sort.stable", [_x(4, 6)], {"dim": 0, "stable": True}, "1"),
    ("sort.default", [_x(4, 6), 0, True], {}, "1"),
    ("topk.default", [_x(4, 6), 2], {"dim": 0, "largest": False}, "1"),
    ("sum.dim_IntList", [_x(4, 6)], {"dim": [0], "keepdim": True}, "1"),
    ("cumsum.default", [_x(4, 6), -1], {}, "0"),
    ("cumprod.default", [_x(4, 6), 0], {}, "1"),
    ("argmax.default", [_x(4, 6)], {}, ""),
    ("argmax.default", [_x(4, 6)], {"keepdim": True}, ""),
    ("argmin.default", [_x(4, 6)], {"dim": -1}, "0"),
    ("max.dim", [_x(4, 6), -1], {}, "0"),
    ("min.dim", [_x(4, 6)], {"dim": 0, "keepdim": True}, "1"),
    ("max.default", [_x(4, 6)], {}, ""),
    ("max.other", [_x(4, 6), _x(6)], {}, "01"),
    ("any.dim", [_x(4, 6) > 0, 0, True], {}, "1"),
    ("all.dims", [_x(4, 6, 3) > 0], {"dim": [0, -1]}, "0"),
    ("all.default", [_x(4, 6) > 0], {}, ""),
    ("prod.dim_int", [_x(4, 6), 1], {}, "0"),
    ("prod.default", [_x(4, 6)], {"dtype": None}, ""),
    ("amax.default", [_x(4, 6)], {}, ""),
    ("native_layer_norm.default", [_x(4, 6), [6], None, None, 1e-5], {}, "0"),
    ("native_layer_norm.default", [_x(4, 6), [6], None, _x(6), 1e-5], {}, "0"),
    ("max_pool2d_with_indices.default", [_x(3, 8, 6), [2, 2]], {}, "0"),
    ("max_pool2d_with_indices.default", [_x(4, 3, 8, 6), [2, 2]], {}, "01"),
    ("avg_pool2d.default", [_x(3, 8, 6), [2, 2]], {}, "0"),
    ("_adaptive_avg_pool2d.default", [_x(3, 8, 6), [4, 3]], {}, "0"),
    ("_adaptive_avg_pool2d_backward.default", [_x(3, 4, 3), _x(3, 8, 6)], {}, "0"),
    ("adaptive_max_pool2d.default", [_x(4, 3, 8, 6), [4, 3]], {}, "01"),
    ("adaptive_max_pool2d.default", [_x(3, 8, 6), [4, 3]], {}, "0"),
    ("adaptive_max_pool2d_backward.default", [_x(4, 3, 2, 1), _x(4, 3, 4, 2), 3 * _i(2, 4, 3, 2, 1)], {}, "01"),
    ("adaptive_max_pool3d.default", [_x(4, 3, 4, 4, 4), [2, 2, 2]], {}, "01"),
    ("replication_pad1d_backward.default", [_x(4, 3, 8), _x(4, 3, 6), [1, 1]], {}, "01"),
    ("replication_pad2d_backward.default", [_x(3, 8, 8), _x(3, 6, 6), [1, 1, 1, 1]], {}, "0"),
    ("avg_pool3d.default", [_x(4, 3, 4, 4, 4), [2, 2, 2]], {}, "01"),
    ("avg_pool3d.default", [_x(3, 4, 4, 4), [2, 2, 2]], {}, "0"),
    ("upsample_bilinear2d.default", [_x(4, 3, 4, 4), [6, 6], False], {}, "01"),
    ("convolution.default", [_x(4, 3, 8), _x(6, 3, 3), _x(6), [1], [0], [1], False, [0], 1], {}, "01"),
    ("scatter.value", [_x(4, 6), -1, _i(6, 4, 2), 3.0], {}, "0"),
    ("scatter.src", [_x(4, 6), 0, _i(4, 2, 6), _x(3, 6)], {}, "1"),
    ("scatter.src", [_x(4, 6), 1, _i(6, 2, 3), _x(4, 5)], {}, ""),
    ("scatter.reduce", [_x(4, 6), 0, _i(4, 3, 6), _x(3, 6)], {"reduce": "multiply"}, "1"),
    ("scatter_add.default", [_x(4, 6), -2, _i(4, 3, 6), _x(3, 6)], {}, "1"),
    ("scatter_add.default", [_x(), 0, torch.tensor(0), _x()], {}, ""),
    ("scatter_reduce.two", [_x(4, 6), 0, _i(4, 3, 6), _x(3, 6), "amax"], {"include_self": False}, "1"),
    ("gather.default", [_x(4, 6), 1, _i(6, 2, 3)], {}, ""),
    ("gather.default", [_x(4, 6), -1, _i(6, 4, 3)], {}, "0"),
    ("index_select.default", [_x(4, 6), -1, _i(6, 3)], {}, "0"),
    ("index.Tensor", [_x(4, 6, 3), [None, _i(6, 5)]], {}, "012"),
    ("index.Tensor", [_x(4, 6, 3), [_i(4, 5, 1), _i(6, 2)]], {}, "012"),
    ("index.Tensor", [_x(4, 6, 3), [_i(4, 5), None, _i(3, 5)]], {}, "01"),
    ("index_put.default", [_x(4, 6, 3), [_i(4, 2)], _x(2, 6, 3)], {"accumulate": True}, "12"),
    ("index_put.default", [_x(4, 6, 3), [None, torch.tensor([1, 4])], _x(2, 1)], {}, "02"),
    ("slice_scatter.default", [_x(4, 6), _x(4, 2), 1, 2, 4], {}, "0"),
    ("slice_scatter.default", [_x(4, 6), _x(2, 6)], {"start": 1, "end": -1}, "1"),
    ("select_scatter.default", [_x(4, 6), _x(6), -2, 1], {}, "1"),
    ("unfold.default", [_x(4, 6), -1, 3, 2], {}, "0"),
    ("copy.default", [_x(4, 6), _x(6)], {}, "01"),
    ("masked_fill.Scalar", [_x(4, 6), _x(6) > 0, 2.0], {}, "01"),
    ("clamp.Tensor", [_x(4, 6)], {"max": _x(6)}, "01"),
    ("hardswish.default", [_x(4, 6)], {}, "01"),
    ("embedding_dense_backward.default", [_x(4, 6), _i(5, 4), 5, -1, True], {}, "1"),
    ("rsub.Scalar", [_x(4, 6), 1, 2], {}, "01"),
]


@pytest.mark.parametrize(("op", "arguments", "keywords", "dims"), _CASES, ids=[case[0] for case in _CASES])
def test_each_way_to_split_an_operation_is_right(op: str, arguments: list[Any], keywords: dict[str, Any], dims: str) -> None:
    program, whole = _program(f"aten.{op}", arguments, keywords)
    node, axes, tier = program.nodes[0], axes_of(program), ProofTier()
    strategies = strategies_of(program, node, axes)
    assert {str(p.dim) for s in strategies if isinstance(p := s.outputs[0], Shard)} == set(dims)
    for strategy in strategies:
        for ratios in _RATIOS:
            check_pieces(program, program.nodes[0], strategy, ratios, whole)
        assert not _findings(program, strategy, tier), strategy
        if strategy.axis is not None and isinstance(strategy.outputs[0], Shard):
            wrong = replace(strategy, outputs=tuple(PARTIAL for _ in strategy.outputs))
            assert whole["y0"].dtype is torch.bool or _findings(program, wrong, tier), wrong


def test_the_gradient_of_an_upsampling_is_split_by_samples() -> None:
    program, whole = _program("aten.upsample_nearest2d_backward.default", [_x(4, 3, 8, 8), [8, 8], [4, 3, 4, 4]], {})
    node = replace(program.nodes[0], arguments=(*program.nodes[0].arguments[:2], OutputShape()))
    program = replace(program, nodes=(node,))
    for strategy in strategies_of(program, node, axes_of(program)):
        check_pieces(program, program.nodes[0], strategy, _RATIOS[1], whole)


def _findings(program: TensorProgram, strategy: Strategy, tier: ProofTier) -> list[object]:
    builder, node = PlanBuilder(program), program.nodes[0]
    builder.mesh("ranks", [MeshAxis(name="rank", size=2)], range(2), {"rank": (3, 1)})
    for name, placement in zip(node.inputs, strategy.inputs, strict=True):
        builder.source(name, "ranks", [placement])
    builder.apply(node, "ranks", [strategy])
    plan = builder.draft()
    return list(tier.check_steps(CasesOf(PlanIndex(program, plan)), plan))
