"""EvoMoE: gates, experts that come of one, and tokens picked by index."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.papers import evomoe
from benchmarks.papers.models.evomoe import (
    DenseToSparseGate,
    Diversity,
    EveryGate,
    EvolvingExperts,
    HashGate,
    LocalExperts,
    MixtureLayer,
    Schedule,
    SwitchGate,
)
from dyorc.planner.models.blocks import FeedForward

_HIDDEN, _EXPERTS = 8, 4


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def experts(num: int = _EXPERTS) -> LocalExperts:
    return LocalExperts(FeedForward(_HIDDEN, 16) for _ in range(num)).double()


def dense_to_sparse(**schedule: float) -> DenseToSparseGate:
    return DenseToSparseGate(_HIDDEN, _EXPERTS, Schedule(decay_steps=100, **schedule), hard_after_steps=1000).double()


@pytest.mark.parametrize("gate", [EveryGate(_HIDDEN, _EXPERTS), SwitchGate(_HIDDEN, _EXPERTS), dense_to_sparse()])
def test_picking_tokens_computes_what_the_weighted_sum_of_all_experts_is(gate: nn.Module) -> None:
    gate, parts, x = gate.double(), experts(), torch.randn(32, _HIDDEN, dtype=torch.float64)
    weights = gate(x).weights.detach().requires_grad_()
    x.requires_grad_()
    found = parts(x, weights)
    expected = torch.einsum("te,etd->td", weights, torch.stack([part(x) for part in parts]))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(y.square().sum(), (x, *parts.parameters())) for y in (found, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_it_sends_to_all_while_hot_and_to_one_when_cold() -> None:
    x = torch.randn(256, _HIDDEN, dtype=torch.float64)
    hot, cold = dense_to_sparse(start=50.0, end=50.0)(x), dense_to_sparse(start=1e-4, end=1e-4)(x)
    assert hot.num_active == _EXPERTS
    assert cold.num_active == pytest.approx(1.0, abs=0.02)
    gate = dense_to_sparse()
    gate.step = 1000
    hard, best = gate(x).weights, gate.logits(x).softmax(-1)
    assert torch.equal((hard != 0).sum(1), torch.ones(256, dtype=torch.int64))
    torch.testing.assert_close(hard.max(1).values, best.max(1).values)
    gate.step = 0
    assert torch.equal(gate.eval()(x).weights, hard), "in evaluation, too"


def test_the_temperature_falls_on_a_line_or_by_a_factor() -> None:
    line, factor = Schedule(decay_steps=100), Schedule(decay_steps=100, kind="exponential")
    assert [line.at(step) for step in (0, 50, 100, 200)] == [2.0, 1.25, 0.5, 0.5]
    assert [factor.at(step) for step in (0, 50, 100, 200)] == pytest.approx([2.0, 1.0, 0.5, 0.5])


def test_switch_leaves_out_what_is_above_its_capacity_and_says_how_even_loads_are() -> None:
    gate = SwitchGate(_HIDDEN, _EXPERTS, capacity_factor=1.0)
    routing = gate(torch.randn(64, _HIDDEN))
    assert int((routing.weights != 0).sum(0).max()) <= 16
    one = SwitchGate(_HIDDEN, _EXPERTS, capacity_factor=None)
    assert float(one(torch.ones(64, _HIDDEN)).balance.detach()) > 1.0
    assert one(torch.ones(64, _HIDDEN)).load_entropy == 0.0
    assert HashGate(64, _EXPERTS)(torch.zeros(64, 1), torch.arange(64)).load_entropy == pytest.approx(1.0)


def test_a_gate_that_needs_tokens_says_so() -> None:
    layer = MixtureLayer(HashGate(64, _EXPERTS), experts())
    with pytest.raises(ValueError, match=r"layer\(x, tokens\)"):
        layer(torch.zeros(2, 3, _HIDDEN))


def test_experts_begin_as_one_and_differ_by_what_is_masked() -> None:
    shared = FeedForward(_HIDDEN, 16)
    layer, x = EvolvingExperts(shared), torch.randn(2, 5, _HIDDEN)
    torch.testing.assert_close(layer(x), shared(x))
    layer.spawn(_EXPERTS, lambda: EveryGate(_HIDDEN, _EXPERTS), Diversity(masked_ratio=0.0))
    torch.testing.assert_close(layer(x), shared(x))  # equal copies, and weights that sum to 1
    with pytest.raises(RuntimeError, match="spawned already"):
        layer.spawn(_EXPERTS, lambda: EveryGate(_HIDDEN, _EXPERTS), Diversity())
    masked = EvolvingExperts(shared)
    masked.spawn(_EXPERTS, lambda: EveryGate(_HIDDEN, _EXPERTS), Diversity(masked_ratio=0.3))
    assert masked.mixture is not None
    ups = [part.get_parameter("up.weight") for part in masked.mixture.experts.children()]
    assert not torch.equal(ups[0], ups[1])
    assert float((torch.stack(ups) == 0).float().mean()) == pytest.approx(0.3, abs=0.1)


def test_a_recipe_learns_and_its_gate_ends_with_one_expert() -> None:
    curve = evomoe.train(evomoe.recipes(40)["EvoMoE"], seed=0, num_steps=40)
    assert curve.losses[-1] < curve.losses[0] < 5.0
    assert max(curve.active) > 3.0
    assert curve.active[-1] == 1.0
    with_lines = {"EvoMoE": [curve, replace(curve, losses=[loss + 1 for loss in curve.losses])]}
    over_steps, over_flops = evomoe.curves(with_lines, num_steps=40)
    assert over_steps.xs == (20.0, 40.0)
    assert over_flops.xs == pytest.approx(curve.flops, rel=1e-4)
    for line in (over_steps, over_flops):
        assert line.lows == pytest.approx(curve.losses, rel=1e-4)
        assert [round(high - low, 3) for low, high in zip(line.lows, line.highs, strict=True)] == [1.0, 1.0]
        assert [round(mean - low, 3) for low, mean in zip(line.lows, line.means, strict=True)] == [0.5, 0.5]
