"""A captured program is held against its module, and ranks' results against PyTorch's: what is wrong is found, and named."""

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from dyorc.errors import ProgramCaptureError
from dyorc.planner.plan import ModuleCheck
from dyorc.planner.program import Example, TensorProgram, ValueKind, capture, capture_inference, evaluate, sources_of, with_update
from dyorc.planner.reference import compare_update, compare_with_module, first_wrong_step, judge, judge_run, losses_of


class _Classifier(nn.Module):
    """A module with an embedding, normalizations with buffers, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.head(self.norm(self.embedding(tokens).sum(1))), labels)


def _classifier() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return _Classifier(), (torch.randint(0, 12, (6, 5)), torch.randint(0, 4, (6,)))


def _check(program: TensorProgram, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> ModuleCheck:
    return compare_with_module(program, module, Example.of(inputs))


def test_a_right_program_is_compared_in_float64_and_the_module_stays_as_it_was() -> None:
    module, inputs = _classifier()
    before = deepcopy(module.state_dict())
    state = torch.get_rng_state()
    check = _check(capture(module, inputs), module, inputs)
    assert (check.dtype, check.num_seeds) == ("float64", 3)
    assert check.num_results == 1 + 5 + 3  # the loss, five gradients, three buffers
    assert check.largest_difference < 1e-10
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert torch.equal(state, torch.get_rng_state())


_CHANGES: dict[str, Callable[[TensorProgram], TensorProgram]] = {
    "gradients of each other": lambda program: replace(
        program, gradients=program.gradients | {"norm.weight": program.gradients["norm.bias"]}
    ),
    "a buffer that stays": lambda program: replace(
        program, updates={name: value for name, value in program.updates.items() if name != "norm.running_var"}
    ),
    "a gradient that is missing": lambda program: replace(
        program, gradients={name: value for name, value in program.gradients.items() if name != "head.bias"}
    ),
}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("gradients of each other", "the gradient of norm.weight"),
        ("a buffer that stays", "the buffer norm.running_var is missing"),
        ("a gradient that is missing", "the gradient of head.bias is missing"),
    ],
)
def test_a_wrong_program_is_refused_by_the_name_of_what_differs(change: str, named: str) -> None:
    module, inputs = _classifier()
    with pytest.raises(ProgramCaptureError, match=named):
        _check(_CHANGES[change](capture(module, inputs)), module, inputs)


class _Negated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        hidden = torch.tanh(hidden)  # the line that is to be named
        return hidden.square().sum()


def test_the_first_operation_that_differs_is_named_with_its_line() -> None:
    module, inputs = _Negated(), (torch.randn(3, 4),)
    program = capture(module, inputs)
    nodes = tuple(replace(node, op="aten.sigmoid.default") if node.op == "aten.tanh.default" else node for node in program.nodes)
    with pytest.raises(
        ProgramCaptureError, match=r"aten\.tanh\.default at .*test_reference\.py:\d+ .*the line that is to be named"
    ):
        _check(replace(program, nodes=nodes), module, inputs)


class _Doubling(nn.Module):
    """Adds what it has added so far: zeros on the example."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(4))
        self.head = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.head(x) + x * self.scale).square().sum()


def test_what_zeros_hide_on_the_example_is_found_on_other_weights_and_inputs() -> None:
    module, inputs = _Doubling(), (torch.zeros(3, 4),)
    program = capture(module, inputs)
    products = [node.name for node in program.nodes if node.op == "aten.mul.Tensor" and "scale" in node.inputs]
    assert len(products) == 1
    nodes = tuple(replace(node, op="aten.add.Tensor") if node.name in products else node for node in program.nodes)
    with pytest.raises(ProgramCaptureError, match="the loss"):
        _check(replace(program, nodes=nodes), module, inputs)


class _ByType(nn.Module):
    """Divides by a number that depends on the type."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        return (hidden / (1 + torch.finfo(hidden.dtype).eps * 1e5)).square().mean()


def test_what_depends_on_the_type_is_compared_in_the_modules_own() -> None:
    module, inputs = _ByType(), (torch.randn(3, 4),)
    assert _check(capture(module, inputs), module, inputs).dtype == "own"


def test_a_module_in_bfloat16_that_normalizes_in_float32_is_compared_in_float64() -> None:
    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.softmax(self.layer(x).float(), -1).to(x.dtype).square().sum()

    module, inputs = Normalized().bfloat16(), (torch.randn(3, 8).bfloat16(),)
    check = _check(capture(module, inputs), module, inputs)
    assert check.dtype == "float64"
    assert check.largest_difference < 1e-10


def test_a_model_that_answers_from_meta_is_compared_too() -> None:
    with torch.device("meta"):
        module, inputs = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()), (torch.zeros(3, 4),)
    example = (torch.zeros(3, 4),)
    assert _check(capture_inference(module, inputs), module, example).num_results == 1


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_the_step_of_an_optimizer_is_held_against_torch(optimizer: str) -> None:
    module, inputs = _classifier()
    program = with_update(capture(module, inputs), optimizer)  # pyright: ignore[reportArgumentType]
    compare_update(program, module, Example.of(inputs), (optimizer, 1))  # pyright: ignore[reportArgumentType]
    wrong = with_update(capture(module, inputs), optimizer, lr=2e-3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ProgramCaptureError, match="after the step"):
        compare_update(wrong, module, Example.of(inputs), (optimizer, 1))  # pyright: ignore[reportArgumentType]


def test_a_run_is_judged_by_gradients_and_buffers_and_not_only_by_its_loss() -> None:
    module, inputs = _classifier()
    program = capture(module, inputs)
    sources = sources_of(program, module, inputs)
    results = evaluate(program, {name: tensor.clone() for name, tensor in sources.items()})
    assert judge_run(program, results, module, Example.of(inputs), sources).is_equal
    for name in (program.gradients["head.weight"], program.updates["norm.running_mean"]):
        wrong = results | {name: results[name] * 1.01}
        assert len(judge_run(program, wrong, module, Example.of(inputs), sources).differences) == 1
    buffer = next(name for name, value in program.values.items() if value.kind is ValueKind.BUFFER and value.dtype == "int64")
    wrong = results | {program.updates[buffer]: results[program.updates[buffer]] + 1}
    assert list(judge_run(program, wrong, module, Example.of(inputs), sources).differences) == [f"the buffer {buffer}"]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (torch.tensor([1.0, float("nan")]), "element [1] is nan; expected 2"),
        (torch.tensor([1.0, 2.1]), "element [1] is 2.0"),
        (torch.tensor([1.0]), "has the shape [1]; expected [2]"),
        (torch.tensor([1, 2]), "is of type torch.int64; expected torch.float32"),
    ],
)
def test_a_difference_says_where_and_what_was_expected(result: torch.Tensor, text: str) -> None:
    expected = torch.tensor([1.0, 2.0])
    assert text in judge({"x": expected}, {"x": result}).differences["x"]
    assert judge({"x": expected}, {"x": expected + 1e-6}).is_equal
    nothing = torch.tensor([float("nan"), float("inf")])
    assert judge({"x": nothing}, {"x": nothing.clone()}).largest == 0


def test_losses_of_a_plain_loop_find_the_first_wrong_step() -> None:
    module, inputs = _classifier()
    losses = losses_of(module, Example.of(inputs), 3, ("adam", 2), 0.1)
    assert first_wrong_step(losses, losses) is None
    assert first_wrong_step([losses[0], losses[1] * 1.01, losses[2]], losses) == 1
    assert first_wrong_step([float("nan")], losses[:1]) == 0


class _Answering(nn.Module):
    def __init__(self, body: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.layer(x))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda h: h.softmax(0), "depends on the other samples"),
        (lambda h: h.flip(0), "depends on the other samples"),
        (lambda h: h.cumsum(0), "depends on the other samples"),
        (lambda h: h + h[:1], "depends on the other samples"),
        (lambda h: h if len(h) > 1 else h * 2, "another program for batches of 1 samples"),
        (lambda h: h * 2 if len(h) == 3 else h, "another program for batches of 3 samples"),
    ],
)
def test_answers_that_depend_on_the_batch_are_refused(body: Callable[[torch.Tensor], torch.Tensor], reason: str) -> None:
    module, inputs = _Answering(body), (torch.randn(5, 4),)
    with pytest.raises(ProgramCaptureError, match=reason):
        _check(capture_inference(module, inputs), module, inputs)


def test_buffers_that_take_each_others_place_are_updates() -> None:
    class Swapping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("one", torch.ones(4))
            self.register_buffer("other", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.one, self.other = self.other, self.one
            return (self.layer(x) * self.one + self.other).square().sum()

    module, inputs = Swapping(), (torch.randn(3, 4),)
    assert _check(capture(module, inputs), module, inputs).num_results == 5


def test_results_of_a_coarser_type_are_judged_by_it() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.layer(x).bfloat16() * 1.5).float().square().mean()

    module, example = Mixed(), Example.of((torch.randn(4, 8),))
    program = capture(module, example.tensors)
    sources = sources_of(program, module, example.tensors)
    results = evaluate(program, sources)
    near = {name: tensor * 1.01 for name, tensor in results.items()}
    assert judge_run(program, near, module, example, sources).is_equal
    assert not judge_run(program, {name: t * 1.2 for name, t in results.items()}, module, example, sources).is_equal


class _Counting(nn.Module):
    """Multiplies by what Python draws or counts."""

    def __init__(self, draw: Callable[["_Counting"], float]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.draw = draw
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return (self.layer(x) * self.draw(self)).square().sum()


@pytest.mark.parametrize(
    "draw",
    [lambda _: random.random() + 0.5, lambda _: float(np.random.rand()) + 0.5, lambda module: float(module.count)],
    ids=["random", "numpy", "a counter"],
)
def test_what_python_draws_or_counts_is_named_as_the_reason(draw: Callable[[_Counting], float]) -> None:
    module, inputs = _Counting(draw), (torch.randn(3, 4),)
    with pytest.raises(ProgramCaptureError, match=r"captured as another program after it has run once: aten\.mul"):
        _check(capture(module, inputs), module, inputs)
