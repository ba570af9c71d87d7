"""What is captured computes what the module computes: forms of modules that are easily read wrong."""

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from dyorc.errors import ProgramCaptureError
from dyorc.planner.program import ValueKind, capture, evaluate, sources_of, state_of, with_update
from tests.unit.planner.faithful import check_answers, check_training

_Body = Callable[[torch.Tensor], torch.Tensor]


class _Model(nn.Module):
    """A layer, and what follows it."""

    def __init__(self, body: _Body) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.layer(x)).square().sum()


def _x(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (3, 8), generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _part_from_part(h: torch.Tensor) -> torch.Tensor:
    h = h.clone()
    h[:, 6:8] = h[:, 0:2]
    return h.tanh()


def _scaled_part(h: torch.Tensor) -> torch.Tensor:
    h = h.sin()
    h[:, :4] *= 2
    return h


def _zeroed_part(h: torch.Tensor) -> torch.Tensor:
    h = h.sin()
    h[:, 4:6].zero_()
    return h


def _number_in_part(h: torch.Tensor) -> torch.Tensor:
    h = h.clone()
    h[:, 4:6] = 0.5
    h[0].fill_(2.0)
    return h


def _shifted(h: torch.Tensor) -> torch.Tensor:
    shifted = torch.zeros_like(h)
    shifted[:, :-1] = h[:, 1:]
    shifted[:, -1] = 1
    return shifted * h


def _shifted_labels(h: torch.Tensor) -> torch.Tensor:
    labels = torch.arange(8).repeat(3, 1)
    shifted = labels.new_full(labels.shape, -100)
    shifted[:, :-1] = labels[:, 1:]
    return functional.cross_entropy(h.unsqueeze(1).expand(3, 8, 8), shifted, ignore_index=-100)


def _copied_over(h: torch.Tensor) -> torch.Tensor:
    kept = torch.empty(3, 8, dtype=h.dtype)
    kept.copy_(h[:1])  # a row over all
    return kept * h


def _copied_from_another_type(h: torch.Tensor) -> torch.Tensor:
    kept = torch.zeros(3, 8, dtype=h.dtype)
    kept.copy_((h > 0)[0])
    return kept * h


def _by_select_and_diagonal(h: torch.Tensor) -> torch.Tensor:
    h = h[:, :3].clone()
    h[:, 1] = h[:, 0] * 2
    h.diagonal().mul_(3)
    return h


def _by_index(h: torch.Tensor) -> torch.Tensor:
    h = h.clone()
    h[torch.tensor([0, 2]), torch.tensor([1, 5])] = h[1, :2].clone()
    return h


def _strided(h: torch.Tensor) -> torch.Tensor:
    h = h.clone()
    h[:, ::2] = h[:, 1::2]
    h[1:, 3] += h[:-1, 3].clone()
    return h


def _rounded_and_back(h: torch.Tensor) -> torch.Tensor:
    return h * torch.clone(h.detach().float()).double()


def _filled_like(h: torch.Tensor) -> torch.Tensor:
    return h * torch.full_like(h, 2, dtype=torch.int32) + torch.ones_like(h, dtype=torch.bool)


_IN_PLACE: dict[str, _Body] = {
    "part from part": _part_from_part,
    "scaled part": _scaled_part,
    "zeroed part": _zeroed_part,
    "number in part": _number_in_part,
    "shifted": _shifted,
    "shifted labels": _shifted_labels,
    "copied over": _copied_over,
    "copied from another type": _copied_from_another_type,
    "select and diagonal": _by_select_and_diagonal,
    "index": _by_index,
    "strided": _strided,
    "circular padding": lambda h: functional.pad(h.unsqueeze(1), (3, 2), mode="circular"),
    "reflecting padding": lambda h: functional.pad(h.unsqueeze(1), (3, 2), mode="reflect"),
    "rounded and back": _rounded_and_back,
    "filled like": _filled_like,
    "a number": lambda h: h * torch.tensor(2.0),
    "numbers": lambda h: h * torch.tensor([1.0, -2.0, 3.0, 4.0, 0.0, 1.0, 2.0, 3.0]) + torch.tensor(1.5),
    "a solution": lambda h: torch.linalg.solve(torch.eye(3, dtype=h.dtype) * 3 + h @ h.T, h),
    "an inverse": lambda h: torch.linalg.inv(torch.eye(3, dtype=h.dtype) * 3 + h @ h.T),
}


@pytest.mark.parametrize("body", _IN_PLACE.values(), ids=_IN_PLACE)
def test_what_is_written_in_place_and_what_is_constant(body: _Body) -> None:
    torch.manual_seed(0)
    check_training(_Model(body), [_x()])


class _Buffered(nn.Module):
    """Writes into its buffers, in all ways: as a whole, a part, by another tensor, by a name that two share."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("whole", torch.ones(8))
        self.register_buffer("part", torch.ones(8))
        self.register_buffer("replaced", torch.ones(8))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("shared", torch.ones(8))
        self.register_buffer("shared_too", self.shared)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        self.whole.copy_(h.detach().mean(0))
        self.part[2:4] = h.detach()[0, 2:4]
        self.replaced = 0.9 * self.replaced + 0.1 * h.detach().mean(0)
        self.count += 1
        self.shared.mul_(2)
        return (h * self.whole + self.part + self.replaced + self.count * self.shared_too).square().mean()


def test_buffers_that_are_written() -> None:
    torch.manual_seed(0)
    program = check_training(_Buffered(), [_x()])
    assert set(program.updates) == {"whole", "part", "replaced", "count", "shared"}


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (nn.InstanceNorm1d(8, affine=True, track_running_stats=True), (3, 8, 5)),
        (nn.InstanceNorm2d(8, track_running_stats=True), (3, 8, 4, 4)),
        (nn.BatchNorm2d(8, momentum=0.3), (3, 8, 4, 4)),
        (nn.BatchNorm1d(8, track_running_stats=False), (3, 8)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_running_statistics(norm: nn.Module, shape: tuple[int, ...]) -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.scale = norm, nn.Parameter(torch.tensor(2.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.norm(x * self.scale + 1) * x).tanh().sum()

    check_training(Normed(), [_x(*shape)])


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.block = nn.Linear(8, 8)
        self.again = self.block
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.again(self.block(self.embedding(tokens)).relu())
        return functional.cross_entropy(self.head(h), tokens)


def test_tied_weights_are_one_parameter_and_their_gradients_are_added() -> None:
    torch.manual_seed(0)
    program = check_training(_Tied(), [torch.arange(10)])
    assert set(program.gradients) == {"embedding.weight", "block.weight", "block.bias"}


def test_what_a_step_leaves_is_loaded_into_the_module_by_all_names() -> None:
    torch.manual_seed(0)
    module = _Tied().double()
    program = with_update(capture(module, [torch.arange(10)]), "sgd", lr=1e-3)
    sources = {name: tensor.clone() for name, tensor in sources_of(program, module, [torch.arange(10)]).items()}
    results = evaluate(program, sources)
    state = state_of(module, sources | {name: results[value] for name, value in program.updates.items()})
    other = _Tied().double()
    other.load_state_dict(state)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    module(torch.arange(10)).backward()
    optimizer.step()
    torch.testing.assert_close(dict(other.state_dict()), dict(module.state_dict()))
    assert {"embedding.weight", "head.weight", "again.weight"} <= state.keys()


class _TwoNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))
        self.also = self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.scale + self.also).square().sum()


def test_a_parameter_that_one_module_has_by_two_names() -> None:
    assert set(check_training(_TwoNames(), [_x()]).gradients) == {"scale"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [(nn.LSTM, {"num_layers": 2}), (nn.GRU, {}), (nn.RNN, {})],
    ids=["LSTM", "GRU", "RNN"],
)
def test_recurrent_modules_have_biases_whose_gradients_are_equal(kind: type[nn.Module], options: dict[str, Any]) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = kind(8, 6, **options)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rnn(x)[0].square().sum()

    torch.manual_seed(0)
    check_training(Recurrent(), [_x(2, 2, 8)])


class _Equal(nn.Module):
    """Two parameters that get one gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + (self.one + self.other)).square().sum()


def test_parameters_whose_gradients_are_one_value() -> None:
    program = check_training(_Equal(), [_x()])
    assert set(program.gradients) == {"one", "other"}


class _PartlyTrained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.unused, self.detached, self.fixed = (nn.Linear(8, 8, bias=False) for _ in range(4))
        self.fixed.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.fixed(self.layer(x)) * self.detached(x).detach()).square().sum()


def test_parameters_that_get_no_gradient_are_frozen_and_named() -> None:
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match=r"no gradient reaches unused\.weight, detached\.weight; the plan does not train it"):
        program = check_training(_PartlyTrained(), [_x()])
    assert set(program.gradients) == {"layer.weight"}


def test_a_module_whose_parameters_are_all_frozen_is_refused() -> None:
    with pytest.raises(ProgramCaptureError, match="gradient"):
        capture(_Model(torch.tanh).requires_grad_(False), [torch.zeros(3, 8)])


class _Attributes(nn.Module):
    """Holds tensors that are neither parameters nor buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.table = torch.linspace(-1, 1, 8, dtype=torch.float64)
        self.tables = [torch.eye(8, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64)]
        self.register_buffer("unsaved", torch.full((8,), 0.5), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x) * self.table + self.tables[1] * self.unsaved
        return (h @ self.tables[0]).square().sum()


def test_tensors_that_are_attributes_are_constants() -> None:
    torch.manual_seed(0)
    program = check_training(_Attributes(), [_x()])
    assert {name for name, value in program.values.items() if value.kind is ValueKind.BUFFER} == {"unsaved", *program.constants}
    assert sorted(list(tensor.shape) for tensor in program.constants.values()) == [[8], [8, 8]]
    assert capture(_Attributes().double(), [_x()]).digest == program.digest


def test_a_module_on_meta_may_have_constants_that_its_call_makes() -> None:
    with torch.device("meta"):
        module = _Model(lambda h: h * torch.tensor([1.0, -2.0] * 4) + 2 * torch.tensor(3.0))
    program = capture(module, [torch.zeros(3, 8)])
    (constant,) = program.constants.values()
    assert constant.tolist() == [1.0, -2.0] * 4


@dataclass
class _Output:
    loss: torch.Tensor
    logits: torch.Tensor


class _ByName(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind = nn.Linear(8, 8), kind

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor, extra: dict[str, torch.Tensor]) -> Any:
        logits = self.layer(x) * mask + extra["bias"]
        loss = logits.square().sum()
        match self.kind:
            case "dict":
                return {"logits": logits, "loss": loss}
            case "tuple":
                return loss, logits
            case _:
                return _Output(loss, logits)


def _keywords() -> dict[str, Any]:
    return {"mask": _x() > 0, "extra": {"bias": _x(8)}}


@pytest.mark.parametrize("kind", ["dict", "tuple", "object"])
def test_inputs_by_name_and_a_loss_within_what_is_returned(kind: str) -> None:
    torch.manual_seed(0)
    program = check_training(_ByName("dict"), [_x()], _keywords())
    other = capture(_ByName(kind).double(), [_x()], _keywords())
    assert other.digest == program.digest
    assert len(program.inputs) == 3


class _Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor) -> dict[str, Any]:
        h = self.layer(x)
        return {"hidden": (h, [h * mask]), "last": {"mean": h.mean(-1)}}


def test_answers_in_a_structure() -> None:
    torch.manual_seed(0)
    program = check_answers(_Nested(), [_x()], {"mask": _x() > 0})
    assert len(program.outputs) == 3


@pytest.mark.parametrize("options", [{"scale_grad_by_freq": True}, {"padding_idx": 2}, {"padding_idx": -1}], ids=str)
def test_embeddings_with_options(options: dict[str, Any]) -> None:
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(6, 4, **options)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.embedding(tokens).sin().sum()

    torch.manual_seed(0)
    program = check_training(Embedded(), [torch.tensor([[0, 2, 2], [5, 5, 5]])])
    counted = {node.op for node in program.nodes if node.op == "aten.embedding_dense_backward.default" and node.arguments[4]}
    assert not counted  # its rule splits the batch, and a part of that does not know the counts


def test_compiled_modules_are_taken_as_they_were_before() -> None:
    torch.manual_seed(0)
    whole, part, plain = _Model(torch.tanh), _Model(torch.tanh), _Model(torch.tanh)
    part.layer = torch.compile(part.layer, backend="eager")  # pyright: ignore[reportAttributeAccessIssue]
    digests = {capture(module, [torch.zeros(3, 8)]).digest for module in (torch.compile(whole, backend="eager"), part, plain)}  # pyright: ignore[reportArgumentType]
    assert len(digests) == 1
    assert hasattr(part.layer, "_orig_mod")


class _Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.num_calls, self.kept, self.calls = nn.Linear(8, 8), 0, None, list[int]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.num_calls += 1
        self.calls.append(self.num_calls)
        self.kept = self.layer(x)
        random.random()
        return self.kept.square().sum()


@pytest.mark.parametrize("is_training", [True, False])
def test_a_capture_leaves_the_module_and_random_states_as_they_were(is_training: bool) -> None:
    module = _Stateful().train(is_training)
    state = random.getstate()
    torch_state = torch.get_rng_state()
    before = deepcopy(vars(module))
    capture(module, [torch.zeros(3, 8)])
    assert (module.training, module.num_calls, module.kept, module.calls) == (is_training, 0, None, [])
    assert vars(module).keys() == before.keys()
    assert random.getstate() == state
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_an_empty_tensor_elsewhere_empties_no_convolution() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv1d(3, 4, 3, padding=1, dtype=torch.float64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            cache = torch.tensor([], dtype=torch.float64)
            return torch.cat([cache, self.layer(x).flatten()]).square().sum() + cache.sum()

    check_training(Cached(), (_x(2, 3, 8),))
