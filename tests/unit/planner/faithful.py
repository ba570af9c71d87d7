"""Holds a captured program against its module in float64: loss or answers, every gradient, every buffer, by PyTorch alone."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from dyorc.planner.program import Example, TensorProgram, capture, capture_inference, evaluate, sources_of


def check_training(module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any] | None = None) -> TensorProgram:
    """Captures the step of a module, and compares what it computes.

    Args:
        module: It stays as it was; it returns its loss, or a dictionary that holds it.
        inputs: Of the call.
        keywords: The same, by name.
    """
    module = module.double()
    before, state = deepcopy(module.state_dict()), torch.get_rng_state()
    program = capture(module, inputs, keywords)
    assert torch.equal(state, torch.get_rng_state())
    torch.testing.assert_close(dict(module.state_dict()), dict(before), rtol=0, atol=0)
    results = evaluate(program, _sources(program, module, inputs, keywords))
    own = deepcopy(module)
    answer = own(*inputs, **(keywords or {}))
    loss: torch.Tensor = answer["loss"] if isinstance(answer, Mapping) else answer
    loss.backward()
    torch.testing.assert_close(results[program.loss], loss.detach())
    gradients = {name: parameter.grad for name, parameter in own.named_parameters() if parameter.grad is not None}
    assert program.gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(results[program.gradients[name]], gradient, msg=lambda text, name=name: f"{name}: {text}")
    for name, buffer in own.named_buffers():
        after = results[program.updates[name]] if name in program.updates else module.get_buffer(name)
        torch.testing.assert_close(after, buffer, msg=lambda text, name=name: f"{name}: {text}")
    return program


def check_answers(module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any] | None = None) -> TensorProgram:
    """The same for what a module answers."""
    module = module.double()
    program = capture_inference(module, inputs, keywords)
    results = evaluate(program, _sources(program, module, inputs, keywords))
    with torch.no_grad():
        expected = tree_leaves(deepcopy(module).eval()(*inputs, **(keywords or {})))
    torch.testing.assert_close([results[name] for name in program.outputs], expected)
    return program


def _sources(
    program: TensorProgram, module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any] | None
) -> dict[str, torch.Tensor]:
    sources = sources_of(program, module, Example.of(inputs, keywords).tensors)
    return {name: tensor.clone() for name, tensor in sources.items()}
