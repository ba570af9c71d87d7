"""Counter-based random numbers: Philox as published, distributed as torch's own, and the same for each piece as for the whole."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from dyorc.errors import ProgramCaptureError
from dyorc.planner.cluster import uneven_cluster
from dyorc.planner.passes.adama import accumulate_microbatches
from dyorc.planner.plan import Apply, Plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram, capture, capture_inference, evaluate, repeat_layers
from dyorc.planner.program.randomness import CounterBased, UncountableError
from dyorc.planner.program.randomness.philox import STEP, draw_of, philox, with_draw
from dyorc.planner.verify import verify
from tests.unit.planner.examples import Example, example, example_of
from tests.unit.planner.planned import assert_equal_to_one_device

_NUM = 8_000
_LEAST_P = 1e-4
"""Of statistical tests: numbers do not change from run to run, so that what passes once passes always."""


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_computes_the_published_answers(counter: str, key: str, words: str) -> None:
    """Source: `kat_vectors` of Random123, the authors' library, philox4x32 with 10 rounds."""
    first, second = (int(word, 16) for word in key.split())
    scalar = torch.tensor
    for step in ((first, second), (scalar(first), scalar(second))):  # as numbers, and as on a GPU
        found = philox([scalar([int(word, 16)]) for word in counter.split()], step)
        assert [f"{int(word):08x}" for word in found] == words.split()


def _uniform(
    shape: Sequence[int],
    start: Sequence[int],
    extents: Sequence[int],
    dtype: torch.dtype = torch.float32,
    draw: int = 3,
    step: int = 7,
) -> torch.Tensor:
    return torch.ops.dyorc.philox_uniform(torch.tensor(step), draw, list(shape), list(start), list(extents), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (1,), (23,), (3, 5), (4, 1, 7), (5, 6, 1, 1), (2, 3, 4, 9), (0, 3)])
def test_each_piece_holds_what_the_whole_holds_there(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    whole = _uniform(shape, [0] * len(shape), shape, dtype)
    assert whole.shape == shape
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        bounds = [sorted(torch.randint(0, extent + 1, (2,), generator=generator).tolist()) for extent in shape]
        piece = _uniform(shape, [low for low, _ in bounds], [high - low for low, high in bounds], dtype)
        assert torch.equal(piece, whole[tuple(slice(low, high) for low, high in bounds)])


def test_float64_numbers_begin_with_the_bits_of_float32_numbers() -> None:
    narrow, wide = (_uniform((5, 70), (0, 0), (5, 70), dtype) for dtype in (torch.float32, torch.float64))
    assert torch.equal(narrow, (torch.floor(wide * 2**24) * 2.0**-24).float())
    assert len(wide.unique()) == wide.numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_are_uniform_and_those_of_other_draws_and_steps_are_independent(dtype: torch.dtype) -> None:
    shape = (200, 200)
    first = _uniform(shape, (0, 0), shape, dtype).double().flatten()
    others = [_uniform(shape, (0, 0), shape, dtype, draw, step) for draw, step in ((4, 7), (3, 8), (3, 7 + (1 << 32)))]
    assert stats.kstest(first.numpy(), "uniform").pvalue > _LEAST_P
    for other in (*(each.double().flatten() for each in others), first.roll(1), first.roll(200)):
        cells = torch.histogramdd(torch.stack([first, other], 1), [8, 8], range=[0.0, 1.0, 0.0, 1.0])[0]
        assert stats.chisquare(cells.flatten().numpy()).pvalue > _LEAST_P


def _empty() -> torch.Tensor:
    return torch.empty(_NUM)


_CONTINUOUS: dict[str, Callable[[], torch.Tensor]] = {
    "rand": lambda: torch.rand(_NUM),
    "rand_like": lambda: torch.rand_like(_empty()),
    "uniform_": lambda: _empty().uniform_(-2, 3),
    "randn": lambda: torch.randn(_NUM, dtype=torch.float64),
    "randn_like": lambda: torch.randn_like(_empty()),
    "normal": lambda: torch.normal(torch.full((_NUM,), 2.0), torch.full((_NUM,), 0.5)),
    "normal_": lambda: _empty().normal_(1, 2),
    "normal of numbers": lambda: torch.normal(1.0, 3.0, (_NUM,)),
    "log_normal_": lambda: _empty().log_normal_(0, 0.5),
    "exponential_": lambda: _empty().exponential_(3.0),
    "cauchy_": lambda: _empty().cauchy_(1, 2),
    "rrelu": lambda: functional.rrelu(-torch.ones(_NUM), training=True),
    "gumbel_softmax": lambda: functional.gumbel_softmax(torch.zeros(_NUM, 3))[:, 0],
}
_WEIGHTS = torch.tensor([0.1, 0.0, 0.6, 0.3]).expand(_NUM, 4)
_DISCRETE: dict[str, Callable[[], torch.Tensor]] = {
    "bernoulli": lambda: torch.bernoulli(torch.full((_NUM,), 0.3)),
    "bernoulli_": lambda: _empty().bernoulli_(0.7),
    "dropout": lambda: functional.dropout(torch.ones(_NUM), 0.4) > 0,
    "feature dropout": lambda: functional.dropout2d(torch.ones(80, 100, 2, 2), 0.4)[..., 0, 0] > 0,
    "alpha dropout": lambda: functional.alpha_dropout(torch.ones(_NUM), 0.4, True) > 0,
    "geometric_": lambda: _empty().geometric_(0.4).clamp(max=8),
    "randint": lambda: torch.randint(3, 9, (_NUM,)),
    "randint_like": lambda: torch.randint_like(_empty(), 5),
    "random_": lambda: _empty().random_(7),
    "multinomial": lambda: torch.multinomial(_WEIGHTS, 1),
    "multinomial of several": lambda: torch.multinomial(_WEIGHTS, 2)[:, 1],
    "multinomial with replacement": lambda: torch.multinomial(_WEIGHTS[0], _NUM, replacement=True),
    "randperm": lambda: torch.stack([torch.randperm(5) for _ in range(200)])[:, 2],
}


@pytest.mark.parametrize("name", _CONTINUOUS)
def test_continuous_numbers_are_distributed_as_those_of_torch(name: str) -> None:
    ours, theirs = _both(_CONTINUOUS[name])
    assert stats.ks_2samp(ours.numpy(), theirs.numpy()).pvalue > _LEAST_P


@pytest.mark.parametrize("name", _DISCRETE)
def test_discrete_numbers_are_distributed_as_those_of_torch(name: str) -> None:
    ours, theirs = (numbers.long().flatten().bincount(minlength=10) for numbers in _both(_DISCRETE[name]))
    table = torch.stack([ours, theirs])[:, (ours + theirs) > 0]
    assert stats.chi2_contingency(table.numpy()).pvalue > _LEAST_P


def _both(draw: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with CounterBased(step=2):
        ours = draw()
    assert torch.equal(torch.get_rng_state(), before)
    theirs = draw()
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    return ours, theirs


def test_a_module_drops_the_same_in_every_type() -> None:
    kept: list[torch.Tensor] = []
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        with CounterBased():
            kept.append(functional.dropout(torch.ones(100, 10, dtype=dtype), 0.3) > 0)
    assert torch.equal(kept[0], kept[1])
    assert torch.equal(kept[0], kept[2])


# -- programs ------------------------------------------------------------------------------------------------------------------


class _Model(nn.Module):
    def __init__(self, body: nn.Module | Callable[[torch.Tensor], torch.Tensor], width: int = 8) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.linear(x)).square().mean()


def _planes() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.Dropout2d(0.3), nn.RReLU(), nn.Conv2d(6, 4, 1), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(72, 3),
    )  # fmt: skip


def _attends(x: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3, is_causal=True)


def _samples(x: torch.Tensor) -> torch.Tensor:
    order, chosen = torch.randperm(x.shape[0]), torch.multinomial(x.flatten(1).softmax(-1), 2)
    noise = torch.empty_like(x).exponential_() + torch.randn_like(x) + torch.rand(x.shape[-1])
    return x[order] * noise + functional.gumbel_softmax(x) + x.flatten(1).gather(1, chosen).sum()


_MODELS: dict[str, Callable[[], nn.Module]] = {
    "encoder": lambda: _Model(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)),
    "planes": lambda: _Model(_planes()),
    "attention": lambda: _Model(_attends),
    "samples": lambda: _Model(_samples),
}


@pytest.mark.parametrize("name", _MODELS)
def test_the_program_computes_what_the_module_computes_in_each_step(name: str) -> None:
    torch.manual_seed(0)
    shape = (4, 2, 5, 8) if name == "planes" else (4, 6, 8)
    found = example_of(_MODELS[name](), (torch.randn(shape, dtype=torch.float64),))
    sources, losses = dict(found.sources), list[float]()
    for step in range(2):
        sources[STEP] = torch.tensor(step)
        results = evaluate(found.program, sources)
        loss, gradients = _step(found.module, found.inputs, step)
        assert float(results[found.program.loss]) == pytest.approx(float(loss), rel=1e-15)
        for parameter, gradient in gradients.items():
            torch.testing.assert_close(results[found.program.gradients[parameter]], gradient, rtol=1e-12, atol=1e-15)
        assert int(results[found.program.updates[STEP]]) == step + 1
        losses.append(float(loss))
    assert losses[0] != losses[1]


def _step(module: nn.Module, inputs: Sequence[torch.Tensor], step: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    module.zero_grad()
    with CounterBased(step):
        loss = module(*inputs)
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def test_each_microbatch_draws_numbers_of_its_own() -> None:
    found = example("dropout")
    program = accumulate_microbatches(found.program, 3)
    sources = {name: tensor for name, tensor in found.sources.items() if name in program.values} | {STEP: torch.tensor(10)}
    results = evaluate(program, sources | dict.fromkeys(program.inputs, found.inputs[0]))
    parts = [_step(found.module, found.inputs, step) for step in (10, 11, 12)]
    assert len({float(loss) for loss, _ in parts}) == 3
    for parameter, gradient in program.gradients.items():
        mean = sum((gradients[parameter] for _, gradients in parts), torch.zeros(())) / 3
        torch.testing.assert_close(results[gradient], mean, rtol=1e-12, atol=1e-14)
    assert int(results[program.updates[STEP]]) == 13


class _Deep(nn.Module):
    """Equal layers between two others, all with dropout."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        each = [nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 8), nn.Tanh()) for _ in range(layers)]
        self.first, self.layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3)), nn.Sequential(*each)
        self.last = nn.Sequential(nn.Linear(8, 3), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(self.first(x))).square().mean()


def test_layers_that_are_repeated_draw_what_a_module_with_so_many_layers_draws() -> None:
    torch.manual_seed(0)
    found = example_of(_Deep(5), (torch.randn(4, 8, dtype=torch.float64),))
    program = repeat_layers(capture(_Deep(2).double(), found.inputs), 5)
    assert _draws(program) == _draws(found.program) == list(range(7))
    assert {node.layer for node in program.nodes if draw_of(node) is not None} == {None, *range(5)}
    results = evaluate(program, {name: found.sources[name] for name in program.sources})
    assert torch.equal(results[program.loss], found.results[found.program.loss])


def _draws(program: TensorProgram) -> list[int]:
    return [draw for node in program.nodes if (draw := draw_of(node)) is not None]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (lambda x: x + torch.poisson(x.abs()), r"aten.poisson.default draws as many random numbers as it needs"),
        (lambda x: x + torch.binomial(torch.ones(8), torch.rand(8)), r"aten.binomial.default draws as many random numbers"),
        (lambda x: x + torch.empty_like(x).random_(), r"aten.random_.default: random integers need bounds"),
        (lambda x: x + torch.rand(8, dtype=torch.complex64).real, r"complex"),
    ],
    ids=["poisson", "binomial", "no bounds", "complex"],
)
def test_what_is_no_function_of_a_counter_is_refused_with_its_line(
    body: Callable[[torch.Tensor], torch.Tensor], error: str
) -> None:
    with pytest.raises(ProgramCaptureError, match=error) as refusal:
        capture(_Model(body), [torch.zeros(2, 8)])
    assert f" at {__file__}:" in str(refusal.value)


@pytest.mark.parametrize("draw", [torch.rand_like, lambda x: x.clone().uniform_(), lambda x: functional.rrelu(x, training=True)])
def test_a_model_that_answers_at_random_is_refused_with_its_line(draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
    body = nn.Sequential()
    body.forward = lambda x: x + draw(x)
    with pytest.raises(ProgramCaptureError, match="draws random numbers, so that the same inputs would not") as refusal:
        capture_inference(body, [torch.zeros(2, 8)])
    assert f" at {__file__}:" in str(refusal.value)


def test_draws_of_the_backward_pass_are_refused_with_the_reason() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        found = checkpoint(functional.dropout, x.sin(), use_reentrant=False)
        assert isinstance(found, torch.Tensor)
        return found.cos()

    model, inputs = _Model(body), [torch.ones(2, 8)]
    program = capture(model, inputs)  # which keeps its activations
    assert _draws(program) == [0]
    with CounterBased(), pytest.raises(UncountableError, match=r"in the backward pass, .* computing them again \(checkpoint\)"):
        model(*inputs).backward()


# -- plans ---------------------------------------------------------------------------------------------------------------------


def _planned(found: Example, planner: str, speeds: Sequence[float], **options: object) -> Plan:
    cluster = uneven_cluster(speeds, flops_per_s=1e9, bytes_per_s=1e9, latency_s=1e-7)
    return PLANNERS[planner](found.program, cluster, **options)


@pytest.mark.parametrize(
    ("planner", "speeds", "options"),
    [
        ("dp_proportional", (3, 1), {}),
        ("megatron", (1, 1, 1, 1), {"dp": 2}),
        ("megatron", (1, 1, 1, 1), {"pp": 2, "microbatches": 2}),
        ("hidup", (3, 1), {"max_states": 4}),
    ],
    ids=["data", "megatron", "microbatches", "hidup"],
)
def test_plans_draw_what_one_device_draws(planner: str, speeds: Sequence[float], options: dict[str, object]) -> None:
    found = example("dropout")
    plan = _planned(found, planner, speeds, **options)
    assert_equal_to_one_device(found, plan)
    pieces = [prod(plan.piece_shape(step.outputs[0], coordinate)) for step, coordinate in _draw_pieces(plan)]
    wholes = [prod(plan.values[plan.tensors[step.outputs[0]].value].shape) for step, _ in _draw_pieces(plan)]
    assert sum(pieces) < 0.75 * sum(wholes)  # ranks draw little that they do not read


def _draw_pieces(plan: Plan) -> list[tuple[Apply, tuple[int, ...]]]:
    steps = [step for step in plan.steps if isinstance(step, Apply) and step.op.startswith("dyorc.")]
    return [(s, plan.meshes[s.mesh].coordinate_of(rank, s.part)) for s in steps for rank in plan.meshes[s.mesh].ranks]


def test_a_plan_that_draws_another_draw_is_not_proved() -> None:
    found = example("dropout")
    node = next(node for node in found.program.nodes if draw_of(node) == 2)
    plan = _planned(found, "dp_even", (1, 1))
    wrong = with_draw(node, 3).arguments
    assert verify(found.program, plan).is_proved
    steps = tuple(
        replace(step, arguments=(*step.arguments[:1], *wrong[1:])) if isinstance(step, Apply) and step.node == node.name else step
        for step in plan.steps
    )
    assert not verify(found.program, replace(plan, steps=steps)).is_proved
