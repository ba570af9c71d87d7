"""The optimizer's step in a program computes what torch's optimizer computes."""

import copy
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import nn

from dyorc.planner.program import Shard, ValueKind, axes_of, evaluate, strategies_of
from dyorc.planner.program.graph import Phase
from dyorc.planner.program.update import Optimizer, with_update
from tests.unit.planner.examples import example

_TORCH: dict[Optimizer, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.8),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05, betas=(0.8, 0.95), eps=1e-7),
}


@pytest.mark.parametrize("optimizer", list(_TORCH))
def test_three_steps_are_those_of_torch(optimizer: Optimizer) -> None:
    found = example("net")
    program = with_update(found.program, optimizer, lr=0.05, momentum=0.8, betas=(0.8, 0.95), eps=1e-7)
    module = copy.deepcopy(found.module)
    stepper = _TORCH[optimizer](module.parameters())
    sources = dict(found.sources)
    for value in program.values.values():
        if value.kind is ValueKind.STATE:
            sources[value.name] = torch.zeros(value.shape, dtype=getattr(torch, value.dtype))
    for _ in range(3):
        results = evaluate(program, sources)
        sources |= {name: results[after] for name, after in program.updates.items()}
        stepper.zero_grad()
        loss = module(*found.inputs)
        loss.backward()
        stepper.step()
        torch.testing.assert_close(results[program.loss], loss.detach(), rtol=0, atol=1e-12)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(sources[name], parameter.detach(), rtol=0, atol=1e-12)


def test_states_and_updates_are_split_like_their_parameters() -> None:
    found = example("net")
    program = with_update(found.program, "adam")
    axes = axes_of(program)
    assert len(program.updates) == 3 * len(program.parameters) + 1
    for parameter in program.parameters:
        for state in (f"{parameter}.mean", f"{parameter}.square"):
            assert axes.outermost[parameter] == axes.outermost[state] == axes.outermost[program.updates[state]]
    updates = [node for node in program.nodes if node.phase is Phase.UPDATE and program.values[node.outputs[0]].shape]
    for node in updates:
        num_dims = len(program.values[node.outputs[0]].shape)
        split = {strategy.outputs[0] for strategy in strategies_of(program, node, axes)}
        assert {Shard(dim) for dim in range(num_dims)} <= split | {
            Shard(dim) for dim in range(num_dims) if axes.outermost[node.outputs[0]][dim] is None
        }
