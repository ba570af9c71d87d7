"""Runs one operation on pieces, and compares what they make with the whole: for tests of rules."""

from collections.abc import Mapping, Sequence

import torch

from dyorc.planner.plan import MeshAxis, PlanBuilder
from dyorc.planner.plan.interpret import Piece, pieces_of, run_step, whole_of
from dyorc.planner.plan.on_torch import TorchAlgebra
from dyorc.planner.program import PARTIAL, Axes, Node, Strategy, TensorProgram


def check_pieces(
    program: TensorProgram,
    node: Node,
    strategy: Strategy,
    ratios: Sequence[float],
    whole: Mapping[str, torch.Tensor],
    axes: Axes | None = None,
) -> None:
    """Runs a node by a strategy.

    Args:
        program: Has the node.
        node: What is run.
        strategy: How it is split.
        ratios: The shares of the ranks.
        whole: What the node reads, and what torch makes of it.
        axes: Of the program, if they are known.

    Raises:
        AssertionError: The pieces have other shapes than their layouts say, or do not make the whole.
    """
    algebra = TorchAlgebra()
    builder = PlanBuilder(program, axes)
    builder.mesh("ranks", [MeshAxis(name="rank", size=len(ratios))], range(len(ratios)), {"rank": ratios})
    sources = {name: builder.source(name, "ranks", [p]) for name, p in zip(node.inputs, strategy.inputs, strict=True)}
    builder.apply(node, "ranks", [strategy])
    plan = builder.draft()
    pieces: dict[Piece, torch.Tensor] = {}
    for name, tensor in sources.items():
        pieces |= pieces_of(plan, tensor, whole[name], algebra)
        if plan.tensors[tensor].layout[0] == PARTIAL:
            pieces |= _terms(tensor, whole[name], len(ratios))
    made = run_step(plan, plan.steps[-1], pieces, algebra)
    for name, tensor in zip(node.outputs, plan.steps[-1].outputs, strict=True):
        if name:
            for piece, array in made.items():
                if piece.tensor == tensor:
                    assert tuple(array.shape) == plan.piece_shape(tensor, (piece.rank,)), (node, strategy)
            joined = whole_of(plan, tensor, made, algebra)
            torch.testing.assert_close(joined, whole[name], rtol=0, atol=1e-9, equal_nan=True, msg=f"{node} {strategy}")


def _terms(tensor: str, whole: torch.Tensor, num_terms: int) -> dict[Piece, torch.Tensor]:
    """Splits a tensor into random terms of a sum."""
    draw = torch.randn_like if whole.is_floating_point() else lambda like: torch.randint_like(like, 9)
    terms = [draw(whole) for _ in range(num_terms - 1)]
    terms.append(whole - sum(terms))
    return {Piece(tensor, rank, 0): term for rank, term in enumerate(terms)}
