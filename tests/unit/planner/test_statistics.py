# pyright: reportUnknownLambdaType=false
# Torch's statistics have overloads without types.
"""Statistics and norms that come apart into sums: what torch computes, and split along samples."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dyorc.planner.program import axes_of, strategies_of
from tests.unit.planner.examples import example_of

_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "var": lambda x: x.var(0),
    "var without correction": lambda x: x.var(dim=(0, 1), correction=0, keepdim=True),
    "std": lambda x: x.std(-1),
    "var_mean": lambda x: torch.cat(torch.var_mean(x, 1)),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=0),
    "norm of 1": lambda x: torch.linalg.vector_norm(x, 1),
    "norm of 3": lambda x: torch.linalg.vector_norm(x, 3, dim=1, keepdim=True),
    "largest": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=0),
    "logsumexp": lambda x: x.logsumexp(0),
    "repeat": lambda x: x.repeat(2, 3) * torch.arange(12),
    "repeat along new dimensions": lambda x: x.repeat(3, 1, 2) * torch.arange(8),
    "repeat a scalar": lambda x: x.sum().repeat(3, 2),
    "repeat not at all": lambda x: x.repeat(0, 1).sum() + x,
}
_NORMS: dict[str, Callable[[], nn.Module]] = {
    "instance": lambda: nn.InstanceNorm1d(4),
    "instance with weights": lambda: nn.InstanceNorm1d(4, affine=True),
    "instance with statistics": lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
    "group": lambda: nn.GroupNorm(2, 4),
    "batch of rows": lambda: nn.BatchNorm1d(4),
}


class _Loss(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.layer(x)).square().sum()


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_a_statistic_and_its_gradient_are_those_of_torch(name: str) -> None:
    torch.manual_seed(0)
    found = example_of(_Loss(_FUNCTIONS[name]), (torch.randn(6, 3, dtype=torch.float64),))
    loss = found.module(*found.inputs)
    loss.backward()
    torch.testing.assert_close(found.results[found.program.loss], loss.detach())
    for parameter, tensor in found.module.named_parameters():
        torch.testing.assert_close(found.results[found.program.gradients[parameter]], tensor.grad)


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"track_running_stats": False}, {"momentum": 0.3}], ids=str)
def test_batch_normalization_is_split_along_samples_and_updates_its_statistics(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    found = example_of(_Loss(nn.BatchNorm1d(4, **options)), (torch.randn(6, 3, dtype=torch.float64),))
    found.module(*found.inputs)
    buffers = dict(found.module.named_buffers())
    assert found.program.updates.keys() == buffers.keys()
    for name, value in found.program.updates.items():
        torch.testing.assert_close(found.results[value], buffers[name])
    axes = axes_of(found.program)
    samples = axes.outermost[found.program.inputs[0]][0]
    for node in found.program.nodes:
        tensors = (*node.inputs, *node.outputs)
        if any(samples in axes.outermost[name] for name in tensors if name):
            assert samples in {strategy.axis for strategy in strategies_of(found.program, node, axes)}, node


class _OfRows(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(3, 4, 1)
        self.norm = norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.norm(self.convolution(x)) * torch.arange(1.0, 6.0)).pow(3).mean()


@pytest.mark.parametrize("name", _NORMS)
def test_a_norm_of_planes_is_that_of_torch_and_each_operation_can_be_split(name: str) -> None:
    torch.manual_seed(0)
    found = example_of(_OfRows(_NORMS[name]()), (torch.randn(6, 3, 5, dtype=torch.float64),))
    loss = found.module(*found.inputs)
    loss.backward()
    torch.testing.assert_close(found.results[found.program.loss], loss.detach())
    for parameter, tensor in found.module.named_parameters():
        torch.testing.assert_close(found.results[found.program.gradients[parameter]], tensor.grad)
    buffers = dict(found.module.named_buffers())
    for buffer, value in found.program.updates.items():
        torch.testing.assert_close(found.results[value], buffers[buffer])
    axes = axes_of(found.program)
    samples = axes.outermost[found.program.inputs[0]][0]
    for node in found.program.nodes:
        strategies = strategies_of(found.program, node, axes)
        tensors = (*node.inputs, *node.outputs)
        if any(samples in axes.outermost[tensor] for tensor in tensors if tensor):
            assert samples in {strategy.axis for strategy in strategies}, node
        if any(found.program.values[tensor].shape for tensor in node.inputs):
            assert len(strategies) > 1, node
