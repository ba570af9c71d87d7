"""A captured program computes what the module computes, and every strategy of every operation is right."""

import gc
import weakref
from itertools import product

import pytest
import torch
from torch import nn

from dyorc.errors import ProgramCaptureError
from dyorc.planner.plan.interpret import interpret
from dyorc.planner.plan.on_torch import TorchAlgebra
from dyorc.planner.program import Node, ValueRef, axes_of, capture, strategies_of
from dyorc.planner.program.evaluate import compute, compute_node
from dyorc.planner.program.graph import rename_values
from dyorc.planner.program.randomness import CounterBased
from tests.unit.planner.examples import EXAMPLES, Example, example
from tests.unit.planner.pieces import check_pieces
from tests.unit.planner.plans import greedy
from tests.unit.planner.tiny import Tiny

_RATIOS = [(1.0, 1.0), (3.0, 1.0), (1.0, 0.0, 2.0)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_program_computes_the_loss_and_gradients_of_the_module(name: str) -> None:
    found = example(name)
    found.module.zero_grad()
    with CounterBased():
        loss = found.module(*found.inputs)
        loss.backward()
    torch.testing.assert_close(found.results[found.program.loss], loss.detach())
    for parameter, tensor in found.module.named_parameters():
        torch.testing.assert_close(found.results[found.program.gradients[parameter]], tensor.grad)


@pytest.mark.parametrize(
    ("name", "ratios"),
    [*product(["gpt", "net"], _RATIOS), *((name, _RATIOS[-1]) for name in EXAMPLES if name not in ("gpt", "net"))],
    ids=str,
)
def test_each_strategy_of_each_operation_computes_the_pieces_of_the_whole(name: str, ratios: tuple[float, ...]) -> None:
    found = example(name)
    program, axes = found.program, axes_of(found.program)
    whole = dict(found.sources)
    for node in program.nodes:
        whole |= compute_node(node, whole, program.values[next(output for output in node.outputs if output)].shape)
    num_checked = 0
    seen: set[object] = set()
    for node in program.nodes:
        strategies = strategies_of(program, node, axes)
        alike = _without_names(node, found), strategies
        for strategy in () if alike in seen else strategies:
            check_pieces(program, node, strategy, ratios, whole, axes)
        seen.add(alike)
        num_checked += len(strategies)
    assert num_checked > 2 * len(program.nodes)


def _without_names(node: Node, found: Example) -> object:
    """What two nodes have in common that differ only in where their tensors come from."""
    names = {name: f"{found.program.values[name].shape} {node.inputs.index(name)}" for name in node.inputs}
    arguments = tuple(rename_values(argument, names) for argument in node.arguments)
    return node.op, repr(arguments), node.keywords, tuple(found.program.values[o].shape if o else None for o in node.outputs)


def test_what_is_stacked_can_be_split_along_every_dimension_but_the_new_one() -> None:
    """The gradient of `unbind` joins along the batch, and a view takes the number of tensors out of it again."""
    program = example("gpt").program
    axes = axes_of(program)
    batch = axes.outermost[program.inputs[0]][0]
    joined = [node for node in program.nodes if node.op == "aten.cat.default"]
    assert joined
    for node in joined:
        assert batch in {strategy.axis for strategy in strategies_of(program, node, axes)}


def test_the_same_module_has_the_same_digest_and_another_has_another() -> None:
    one, other = (capture(nn.Sequential(nn.Linear(4, size), _Sum()), [torch.zeros(2, 4)]) for size in (3, 5))
    again = capture(nn.Sequential(nn.Linear(4, 3), _Sum()), [torch.zeros(2, 4)])
    assert one.digest == again.digest != other.digest


def test_digests_are_those_of_the_plans_that_people_have() -> None:
    """Plans of version 2 name their program by its digest, so a renamed class of ours must not change it."""
    program = capture(Tiny(4), [torch.zeros(8, 8)])
    assert program.digest == "cf97310d26d4a56661d574b86eb554d03318e1a9d582a4072ec17b71f18c7dfe"


class _Sum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


@pytest.mark.parametrize(
    ("module", "error"),
    [
        (nn.Linear(4, 3), r"must return its loss, a scalar tensor, .* it returned a tensor of shape \[2, 3\]"),
        (nn.Sequential(nn.Linear(4, 3), nn.Fold(2, 2), _Sum()), "cannot be captured as one graph"),
    ],
    ids=["not a loss", "wrong shapes"],
)
def test_a_module_that_cannot_be_planned_is_refused_with_the_reason(module: nn.Module, error: str) -> None:
    with pytest.raises(ProgramCaptureError, match=error):
        capture(module, [torch.zeros(2, 4)])


@pytest.mark.parametrize(("ratios", "num_parts"), [((1, 1), 1), ((3, 1), 1), ((1, 0, 2), 1), ((1, 1), 2), ((1, 1, 1, 1), 2)])
@pytest.mark.parametrize("name", ["gpt", "net", "bert_moe"])
def test_a_plan_in_space_and_time_computes_what_the_program_computes(
    name: str, ratios: tuple[float, ...], num_parts: int
) -> None:
    found = example(name)
    results = interpret(greedy(found, ratios, num_parts), found.sources, TorchAlgebra())
    assert results.keys() == found.results.keys()
    for value, tensor in found.results.items():
        torch.testing.assert_close(results[value], tensor, rtol=0, atol=1e-9)


def test_an_operation_holds_nothing_of_what_it_read() -> None:
    """What lies in memory that others are to fill must be gone when nobody needs it, not when garbage is collected."""
    tensor = torch.ones(2)
    gone = weakref.ref(tensor)
    gc.disable()
    try:
        compute("aten.cat.default", ((ValueRef("x"), ValueRef("x")),), (), {"x": tensor}, (4,))
        del tensor
        assert gone() is None
    finally:
        gc.enable()
