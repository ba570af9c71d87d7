"""What models of other libraries do and ours do not: branches for exporters, empty caches, rounded constants of torch."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from dyorc.planner.program import capture, evaluate, sources_of
from tests.zoo.reference import largest_error, of_program, reference


class _Skips(nn.Module):
    """Reads a mask's elements, but for exporters."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_exporting() and mask.all():
            return self.linear(x).square().mean()
        return (self.linear(x) * mask).square().mean()


class _Cached(nn.Module):
    """Joins keys with a cache that holds none, of one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.new_empty(0), self.linear(x)], dim=-2).square().mean()


class _Hard(nn.Module):
    """Has the gradient whose factor 1/6 is rounded to float32 in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.hardsigmoid(self.linear(x)).square().mean()


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (_Skips(), (torch.randn(3, 4), torch.tensor([[1.0], [0.0], [1.0]]))),
        (_Cached(), (torch.randn(2, 3, 4),)),
        (_Hard(), (torch.randn(3, 4),)),
    ],
    ids=["skips", "cached", "hard"],
)
def test_program_computes_what_the_module_computes(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    module = module.double()
    inputs = tuple(tensor.double() for tensor in inputs)
    program = capture(module, inputs)
    sources = sources_of(program, module, inputs)
    results = of_program(program, evaluate(program, sources), sources)
    error, where = largest_error(reference(module, inputs), results)
    assert error < 1e-12, where
    assert not torch.compiler.is_compiling()
    assert not torch.compiler.is_exporting()


def test_a_cache_without_elements_is_no_part_of_the_program() -> None:
    program = capture(_Cached(), (torch.randn(2, 3, 4),))
    assert "aten.cat.default" not in {node.op for node in program.nodes}
