"""Modules of all forms are served by plan: as a replica checks, loads and calls them, with ranks' work done in this process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from dyorc.errors import PlanError, ProgramCaptureError
from dyorc.planner.cluster import even_cluster
from dyorc.planner.plan import Plan, for_samples
from dyorc.planner.plan.interpret import interpret
from dyorc.planner.plan.on_torch import TorchAlgebra
from dyorc.planner.plan.plan_file import plan_from_json, plan_to_json
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import capture_inference
from dyorc.planner.runtime.rank_weights import read_whole
from dyorc.planner.serving import PlannedModule, check_module, computed_weights, inference_of
from dyorc.planner.verify import mark_proved

NUM_SAMPLES = 4


class Model(nn.Module):
    """Tied weights, a constant of the call, tensors as attributes, a buffer that files lack; called by name, answers by name."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.block = nn.Linear(8, 8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("shift", torch.ones(8))
        self.register_buffer("shift_too", self.shift)
        self.table = torch.linspace(-1, 1, 8)
        self.factor = torch.tensor(3.0)
        self.register_buffer("unsaved", torch.full((8,), 0.5), persistent=False)

    def forward(self, tokens: torch.Tensor, *, mask: torch.Tensor) -> dict[str, Any]:
        h = (self.block(self.embedding(tokens)) + self.shift_too) * self.table + self.unsaved * self.factor
        h = h * torch.tensor([1.0, -2.0] * 4)
        h[:, 4:6] = 0
        return {"logits": self.head(h), "hidden": (h * mask,)}


def _make() -> nn.Module:
    torch.manual_seed(1)  # other weights than those in the file
    return Model().eval()


def _call(num_samples: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(num_samples)
    tokens = torch.randint(0, 12, (num_samples,), generator=generator)
    return {"tokens": tokens, "mask": torch.rand(num_samples, 1, generator=generator)}


def _plan(name: str) -> Plan:
    program = capture_inference(_make(), (), _call(NUM_SAMPLES))
    return plan_from_json(plan_to_json(mark_proved(program, PLANNERS[name](program, even_cluster(2)))))


def _served(plan: Plan, path: Path) -> PlannedModule:
    """What a replica makes of a plan and a file, with what its ranks read and compute."""
    weights = {**read_whole(path, {name: name for name in plan.sources}), **computed_weights(plan, _make, path)}
    inference = inference_of(plan)

    def run(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        sources = weights | dict(zip(inference.inputs, inputs, strict=True))
        results = interpret(for_samples(plan, len(inputs[0])), sources, TorchAlgebra())
        return tuple(results[name] for name in inference.outputs)

    return PlannedModule(inference, run)


_FILES: dict[str, Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]] = {
    "both names": lambda state: state,
    "the first name": lambda state: {name: tensor for name, tensor in state.items() if name not in ("head.weight", "shift_too")},
    "the other name": lambda state: {name: tensor for name, tensor in state.items() if name not in ("embedding.weight", "shift")},
}


@pytest.mark.parametrize("file", _FILES)
@pytest.mark.parametrize("planner", ["pipeline", "megatron"])
def test_a_module_is_served_with_either_name_of_tied_weights(tmp_path: Path, file: str, planner: str) -> None:
    torch.manual_seed(0)
    trained, path = Model().eval(), tmp_path / "model.safetensors"
    trained.shift.fill_(0.25)
    state = {name: tensor.clone() for name, tensor in trained.state_dict().items()}
    save_file(_FILES[file](state), path)
    plan = _plan(planner)
    check_module(plan, _make)
    served = _served(plan, path)
    for num_samples in (1, NUM_SAMPLES):
        call = _call(num_samples)
        with torch.no_grad():
            expected = trained(**call)
        torch.testing.assert_close(served(**dict(reversed(call.items()))), expected)
    with pytest.raises(PlanError, match="the module was planned for calls like"):
        served(call["tokens"], mask=call["mask"])


def test_a_file_without_either_name_is_refused(tmp_path: Path) -> None:
    save_file({"block.weight": torch.zeros(8, 8), "block.bias": torch.zeros(8)}, tmp_path / "model.safetensors")
    with pytest.raises(PlanError, match=r"the plan needs the parameter embedding\.weight, which .* does not hold"):
        computed_weights(_plan("pipeline"), _make, tmp_path / "model.safetensors")


@dataclass
class Answer:
    """As libraries of models return it."""

    logits: torch.Tensor
    hidden: torch.Tensor


torch.export.register_dataclass(Answer, serialized_type_name="tests.Answer")


@dataclass
class Unregistered(Answer):
    """One that torch does not know."""


class Answering(nn.Module):
    """Returns a data class."""

    def __init__(self, answer: type[Answer]) -> None:
        super().__init__()
        self.layer, self.answer = nn.Linear(8, 8), answer

    def forward(self, x: torch.Tensor) -> Answer:
        h = self.layer(x)
        return self.answer(h.tanh(), h)


def test_a_data_class_that_torch_does_not_know_is_refused_with_what_to_do() -> None:
    with pytest.raises(ProgramCaptureError, match=r"returned Unregistered; torch\.export\.register_dataclass\(Unregistered"):
        capture_inference(Answering(Unregistered), (torch.zeros(NUM_SAMPLES, 8),))


def test_a_data_class_is_returned_as_the_module_returns_it(tmp_path: Path) -> None:
    module, path = Answering(Answer).eval(), tmp_path / "model.safetensors"
    save_file(module.state_dict(), path)
    program = capture_inference(module, (torch.zeros(NUM_SAMPLES, 8),))
    served = _served(plan_from_json(plan_to_json(mark_proved(program, PLANNERS["megatron"](program, even_cluster(2))))), path)
    x = torch.randn(3, 8)
    answer, expected = served(x), module(x)
    assert type(answer) is Answer
    torch.testing.assert_close((answer.logits, answer.hidden), (expected.logits.detach(), expected.hidden.detach()))
