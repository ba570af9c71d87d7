"""What cannot be captured is refused by the operation, the line of the module, and what to do instead."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from dyorc.errors import ProgramCaptureError
from dyorc.planner.program import REPLICATE, axes_of, capture, sources_of, strategies_of
from dyorc.planner.program.evaluate import evaluate

_Body = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class _Model(nn.Module):
    def __init__(self, body: _Body) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.linear(x), x).sum()


def _branch(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return y if y.sum() > 0 else -y


def _assigns(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    x[0] = 0
    return y * x


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (lambda y, x: y[y > 0], r"nonzero.default has a result whose shape depends on data; use masks"),
        (lambda y, x: y + x.unique().sum(), r"_unique2.default has a result whose shape depends on data"),
        (lambda y, x: y * y.sum().item(), r"_local_scalar_dense.default needs the data of a tensor"),
        (_branch, r"return y if y.sum\(\) > 0 else -y\): .* use torch.where instead of a Python branch"),
        (lambda y, x: torch.from_numpy(y.detach().numpy()) * y, r"numpy needs the data of a tensor"),
        (lambda y, x: y + x.add_(1), r"add_ changes an input of the module in place; work on a copy"),
        (_assigns, r"x\[0\] = 0\): __setitem__ changes an input of the module in place"),
        (lambda y, x: y * x.view(-1)[:1].mul_(2), r"torch cannot train the module: .* modified by an inplace operation"),
        (lambda y, x: torch.fft.fft(y).real, r"fft_fft computes complex numbers, .* hold both parts as real tensors"),
        (lambda y, x: torch.sparse.mm(x.to_sparse(), y.T), r"to_sparse makes a sparse tensor, .* use dense ones"),
    ],
    ids=["mask", "unique", "item", "branch", "numpy", "inplace", "assignment", "view", "complex", "sparse"],
)
def test_the_refusal_names_the_operation_and_the_line(body: _Body, error: str) -> None:
    with pytest.raises(ProgramCaptureError, match=error) as refusal:
        capture(_Model(body), [torch.zeros(2, 4)])
    if "torch cannot train" not in str(refusal.value):
        assert f" at {__file__}:" in str(refusal.value)


def test_a_constant_without_elements_is_refused_with_what_to_do() -> None:
    with torch.device("meta"):
        module = _Model(lambda y, x: y * module.table)
        module.table = torch.ones(4)
    with pytest.raises(ProgramCaptureError, match="lies on meta, without elements: register it as a buffer, or"):
        capture(module, [torch.zeros(2, 4)])


def _tanh_that_changes(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return y.tanh().mul_(2)


def test_a_module_that_torch_itself_cannot_train_is_refused_with_what_torch_says() -> None:
    with pytest.raises(ProgramCaptureError, match=r"torch cannot train the module: .* modified by an inplace operation"):
        capture(_Model(_tanh_that_changes), [torch.zeros(2, 4)])


class _Counting(nn.Module):
    """Changes a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.total = nn.Linear(4, 4), torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.detach().sum(0))
        return (self.layer(x) * self.total).sum()


def test_a_tensor_that_is_changed_and_no_buffer_is_refused_and_stays_as_it_was() -> None:
    module = _Counting()
    with pytest.raises(ProgramCaptureError, match="register it as a buffer"):
        capture(module, [torch.ones(2, 4)])
    assert module.total.tolist() == [0, 0, 0, 0]


def test_running_statistics_are_updates_that_can_be_split() -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), _Square()).double(), torch.randn(5, 4, dtype=torch.float64)
    program = capture(module, [x])
    assert set(program.updates) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    node = program.producers[program.updates["1.running_mean"]]
    assert any(set(s.inputs + s.outputs) != {REPLICATE} for s in strategies_of(program, node, axes_of(program)))
    sources = {name: tensor.detach().clone() for name, tensor in [*module.named_parameters(), *module.named_buffers()]}
    results = evaluate(program, sources | {program.inputs[0]: x})
    loss = module(x)
    loss.backward()
    torch.testing.assert_close(results[program.loss], loss.detach())
    for name, buffer in module.named_buffers():
        torch.testing.assert_close(results[program.updates[name]], buffer)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(results[program.gradients[name]], parameter.grad)


class _Square(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * x * x).sum()


@pytest.mark.parametrize("is_row_by_row", [True, False])
def test_reading_by_strides_is_of_tensors_that_lie_row_by_row(is_row_by_row: bool) -> None:
    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.layer(x).t()
            hidden = hidden.contiguous() if is_row_by_row else hidden
            return hidden.as_strided((3, 4), (2, 1), 1).square().sum()

    module, inputs = Strided(), (torch.randn(4, 8),)
    if not is_row_by_row:
        with pytest.raises(ProgramCaptureError, match="does not lie there row by row"):
            capture(module, inputs)
        return
    program = capture(module, inputs)
    results = evaluate(program, sources_of(program, module, inputs))
    assert float(results[program.loss]) == pytest.approx(module(*inputs).item(), rel=1e-6)


class _Lying(nn.Module):
    """A layer, and tensors that lie in the memory of others."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 6)
        self.kind = kind
        self.register_buffer("rows", torch.zeros(4, 6))
        match kind:
            case "a view of a buffer":
                self.register_buffer("row", self.get_buffer("rows")[1])
            case "a view of a parameter":
                self.register_buffer("row", self.layer.weight.data[0, :6])
            case "a parameter's memory":
                self.other = nn.Linear(8, 6)
                self.other.weight.data = self.layer.weight.data
            case _:
                raise AssertionError(kind)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.get_buffer("rows").add_(1)
        return (self.layer(x) + self.get_buffer("rows")).square().sum() + sum(p.sum() for p in self.parameters())


@pytest.mark.parametrize("kind", ["a view of a buffer", "a view of a parameter", "a parameter's memory"])
def test_tensors_that_lie_in_the_same_memory_are_refused_if_one_changes(kind: str) -> None:
    with pytest.raises(ProgramCaptureError, match="lies in the same memory as"):
        capture(_Lying(kind), (torch.randn(4, 8),))


@pytest.mark.parametrize("hook", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_gradients_are_refused(hook: str) -> None:
    module = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0), _Square())
    getattr(module[0].weight, hook)(lambda gradient: None)
    with pytest.raises(ProgramCaptureError, match=r"0\.weight has a hook on its gradient"):
        capture(module, (torch.randn(3, 4),))


class _Seeded(nn.Module):
    def __init__(self, draw: Callable[[], torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.draw = draw

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layer(x) * self.draw()).square().sum()


def _drawn_by_seed() -> torch.Tensor:
    torch.manual_seed(5)
    return torch.rand(4)


@pytest.mark.parametrize(
    ("draw", "reason"),
    [
        (_drawn_by_seed, "sets torch's seed"),
        (lambda: torch.rand(4, generator=torch.Generator().manual_seed(3)), "draws from a generator of its own"),
    ],
)
def test_seeds_and_generators_of_a_module_are_refused(draw: Callable[[], torch.Tensor], reason: str) -> None:
    with pytest.raises(ProgramCaptureError, match=reason):
        capture(_Seeded(draw), (torch.randn(3, 4),))
