"""Torch's own samples of all its operators: functions to record, forward and backward."""

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import numpy as np
import torch

DTYPES = (torch.float64, torch.int64, torch.bool)


def functions(step: int = 1, names: Container[str] | None = None) -> Iterator[tuple[str, Callable[[], Sequence[torch.Tensor]]]]:
    """Yields the name of an operator, and what computes one of its samples: its results and its gradients.

    Args:
        step: Take only every `step`-th operator.
        names: Take only operators with these names of ATen; all by default.
    """
    from torch.testing._internal.common_methods_invocations import op_db  # takes seconds to import

    for operator in op_db[::step]:
        if names is not None and operator.aten_name not in names:
            continue
        for dtype in DTYPES:
            if dtype not in operator.supported_dtypes("cpu"):
                continue
            with_gradient = operator.supports_autograd and dtype.is_floating_point
            torch.manual_seed(0)  # samples are random
            for sample in operator.sample_inputs("cpu", dtype, requires_grad=with_gradient):
                yield operator.name, _step(operator, sample, with_gradient)


def _step(operator: Any, sample: Any, with_gradient: bool) -> Callable[[], Sequence[torch.Tensor]]:
    def run() -> Sequence[torch.Tensor]:
        results = tensors_in(operator(sample.input, *sample.args, **sample.kwargs))
        return [*results, *gradients(results, (sample.input, sample.args, sample.kwargs))] if with_gradient else results

    return run


def gradients(results: Sequence[torch.Tensor], inputs: object) -> list[torch.Tensor]:
    """Returns the gradients of all results, each multiplied with random numbers, with respect to the inputs that want one."""
    leaves = [tensor for tensor in tensors_in(inputs) if tensor.requires_grad]
    roots = [result for result in results if result.requires_grad]
    if not leaves or not roots:
        return []
    draw = np.random.default_rng(1)  # of torch's, the random operation would be recorded
    seeds = [torch.from_numpy(np.asarray(draw.standard_normal(root.shape))).to(root.dtype) for root in roots]
    return tensors_in(torch.autograd.grad(roots, leaves, seeds, allow_unused=True))


def tensors_in(value: object) -> list[torch.Tensor]:
    """Returns the tensors in nested sequences and mappings, in order."""
    match value:
        case torch.Tensor():
            return [value]
        case tuple() | list():
            return [tensor for part in value for tensor in tensors_in(part)]
        case dict():
            return tensors_in(tuple(value.values()))
        case _:
            return []
