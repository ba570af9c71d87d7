"""Models that answer: captured, planned, proved, and run for any number of samples."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from dyorc.errors import PlanError, ProgramCaptureError
from dyorc.planner.cluster import even_cluster
from dyorc.planner.plan import Collective, Plan, for_samples
from dyorc.planner.plan.interpret import interpret
from dyorc.planner.plan.on_torch import TorchAlgebra
from dyorc.planner.plan.plan_file import digest_of, plan_from_json, plan_to_json
from dyorc.planner.planners import PLANNERS
from dyorc.planner.planners.auto import plan
from dyorc.planner.program import TensorProgram, capture_inference, evaluate
from dyorc.planner.runtime.rank_schedule import Compute, divide_schedule, schedule_of
from dyorc.planner.runtime.region_moves import pieces_at
from dyorc.planner.verify import mark_proved

NUM_SAMPLES = 4


class Encoder(nn.Module):
    """Two layers of attention over tokens, of which zeros are padding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        is_text = tokens != 0
        hidden = self.encoder(self.words(tokens), src_key_padding_mask=~is_text)
        weights = is_text[..., None].double()
        return (hidden * weights).sum(1) / weights.sum(1), hidden[:, 0]


@cache
def captured() -> tuple[TensorProgram, Encoder, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    module = Encoder().double().eval()
    tokens = torch.randint(1, 50, (NUM_SAMPLES, 6))
    tokens[1, 4:] = 0
    program = capture_inference(module, (tokens,))
    return program, module, {**{name: t.detach() for name, t in module.named_parameters()}, program.inputs[0]: tokens}


def test_a_module_that_answers_is_captured_without_loss_and_gradients() -> None:
    program, module, sources = captured()
    found = evaluate(program, sources)
    with torch.no_grad():
        expected = module(sources["input_0"])
    assert not program.loss
    assert program.results == program.outputs
    for name, answer in zip(program.outputs, expected, strict=True):
        torch.testing.assert_close(found[name], answer)


@pytest.mark.parametrize("name", ["megatron", "pipeline"])
def test_a_plan_answers_any_number_of_samples_as_the_module_does(name: str) -> None:
    program, module, sources = captured()
    plan_of_model = mark_proved(program, PLANNERS[name](program, even_cluster(2)))
    for num_samples in range(1, NUM_SAMPLES + 1):
        tokens = sources["input_0"][:num_samples]
        results = interpret(for_samples(plan_of_model, num_samples), {**sources, "input_0": tokens}, TorchAlgebra())
        with torch.no_grad():
            expected = module(tokens)
        for output, answer in zip(program.outputs, expected, strict=True):
            torch.testing.assert_close(results[output], answer)


def test_tensor_parallel_holds_half_of_each_layer() -> None:
    program, *_ = captured()
    found = PLANNERS["megatron"](program, even_cluster(2))
    cut = {value for value, tensors in found.sources.items() if any("S" in tensor.rpartition(":")[2] for tensor in tensors)}
    assert {name for name in program.parameters if "linear1.weight" in name or "linear2.weight" in name} <= cut


def test_what_is_taken_and_returned_stays_with_the_plans_file() -> None:
    program, *_ = captured()
    made = mark_proved(program, PLANNERS["megatron"](program, even_cluster(2)))
    again = plan_from_json(plan_to_json(made))
    assert again == made
    assert again.inference is not None
    assert again.inference.is_proved
    assert digest_of(again) != digest_of(replace(made, inference=replace(again.inference, is_proved=False)))


def test_the_best_plan_of_a_model_that_answers() -> None:
    program, *_ = captured()
    assert plan(program, even_cluster(2)).provenance.planner == "pipeline"
    with pytest.raises(PlanError, match="hap plans training; models that answer are planned by megatron, pipeline"):
        plan(program, even_cluster(2), "hap")


def test_a_plan_that_divides_the_batch_is_refused() -> None:
    program, *_ = captured()
    with pytest.raises(PlanError, match="between its samples, so it is for exactly 4 of them"):
        mark_proved(program, PLANNERS["megatron"](program, even_cluster(2), dp=2))


def test_a_wrong_plan_is_not_marked_as_proved() -> None:
    program, *_ = captured()
    with pytest.raises(PlanError, match="does not compute what Encoder computes"):
        mark_proved(program, _without_a_sum(PLANNERS["megatron"](program, even_cluster(2))))


def _without_a_sum(plan: Plan) -> Plan:
    at = next(number for number, step in enumerate(plan.steps) if "all_reduce" in str(step))
    return replace(plan, steps=plan.steps[:at] + plan.steps[at + 1 :])


class Mean(nn.Module):
    """Answers depend on what else is in the batch."""

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return samples - samples.mean(0)


class Flat(nn.Module):
    """Samples are not along the first dimension."""

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return samples.t() * 2


@pytest.mark.parametrize(
    ("module", "shape", "text"),
    [
        (Mean(), (4, 3), "depends on the number of samples"),
        (Flat(), (4, 3), "has them along \\[1\\]"),
        (Flat(), (), "every example input must have the samples along its first dimension"),
    ],
)
def test_a_module_that_cannot_be_batched_is_refused(module: nn.Module, shape: tuple[int, ...], text: str) -> None:
    with pytest.raises(ProgramCaptureError, match=text):
        capture_inference(module, (torch.ones(shape),))


class _Layer(nn.Module):
    """As a layer of BERT, with its heads first."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(16, 16), nn.Linear(16, 64), nn.Linear(64, 16)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))

    def forward(self, hidden: torch.Tensor, is_text: torch.Tensor) -> torch.Tensor:
        query, key, value = (linear(hidden).unflatten(-1, (4, -1)).permute(2, 0, 1, 3) for linear in self.read)
        scores = (query @ key.transpose(-1, -2)).masked_fill(~is_text[:, None], -1e9)
        found = (scores.softmax(-1) @ value).permute(1, 2, 0, 3).flatten(-2)
        hidden = self.norms[0](hidden + self.out(found))
        return self.norms[1](hidden + self.down(nn.functional.gelu(self.up(hidden))))


class _Heads(nn.Module):
    """Two layers of attention, after an embedding that is wider than one rank holds."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Parameter(torch.randn(6, 16))
        self.norm = nn.LayerNorm(16)
        self.layers = nn.ModuleList(_Layer() for _ in range(2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.words(tokens) + self.places)
        for layer in self.layers:
            hidden = layer(hidden, tokens != 0)
        return hidden[:, 0]


def test_tensor_parallel_talks_twice_for_each_layer_and_once_for_the_embedding() -> None:
    torch.manual_seed(0)
    module, tokens = _Heads().double().eval(), torch.randint(0, 50, (NUM_SAMPLES, 6))
    program = capture_inference(module, (tokens,))
    plan_of_model = mark_proved(program, PLANNERS["megatron"](program, even_cluster(2, bytes_per_s=1e10, latency_s=1e-4)))
    moved = Counter(
        step.kind for step in plan_of_model.steps if isinstance(step, Collective) and step.kind not in ("slice", "mask")
    )
    assert moved == {"all_reduce": 4, "all_gather": 1}
    sources = {**{name: t.detach() for name, t in module.named_parameters()}, program.inputs[0]: tokens}
    (result,) = interpret(plan_of_model, sources, TorchAlgebra()).values()
    with torch.no_grad():
        torch.testing.assert_close(result, module(tokens))


def test_views_of_weights_are_made_once_for_all_batches() -> None:
    program, *_ = captured()
    schedule = schedule_of(PLANNERS["megatron"](program, even_cluster(2)), 0)
    lasting = {
        piece.key
        for name in program.parameters
        for tensor in schedule.plan.sources[name]
        for piece in pieces_at(schedule.plan, tensor)
        if piece.rank == 0
    }
    once, often = divide_schedule(schedule, lasting)
    assert len(once.instructions) + len(often.instructions) == len(schedule.instructions)
    assert any(isinstance(each, Compute) and each.op == "aten.permute.default" for each in once.instructions)
    known = lasting | {key for each in once.instructions for key in each.makes}
    assert not [each for each in often.instructions if isinstance(each, Compute) and each.op in _VIEWS and known >= {*each.reads}]
    assert known.isdisjoint(key for released in often.releases for key in released)


_VIEWS = ("aten.permute.default", "aten.view.default", "aten.select.int", "aten.slice.Tensor")
