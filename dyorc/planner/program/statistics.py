"""Statistics and norms as sums, which ranks that hold different samples can each do a part of.

Batch normalization so computes, over split samples, the statistics of all of them, as `torch.nn.SyncBatchNorm` does.

Source: the formulas are those of torch's documentation; tests compare each with torch.
"""

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any, TypeAlias

import torch

Tensor: TypeAlias = torch.Tensor


def decompositions_into_sums() -> dict[Any, Callable[..., Any]]:
    """Returns what computes each statistic from sums."""
    aten = torch.ops.aten
    return {
        aten.var.correction: _var,
        aten.var_mean.correction: _var_mean,
        aten.linalg_vector_norm.default: _vector_norm,
        aten._native_batch_norm_legit_functional.default: _batch_norm_with_updates,
        aten._native_batch_norm_legit.no_stats: _batch_norm_without_buffers,
        aten._native_batch_norm_legit_no_training.default: _batch_norm_by_buffers,
    }


def _dims(tensor: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    named = [dim] if isinstance(dim, int) else dim or range(tensor.dim())
    return [each % tensor.dim() for each in named] if tensor.dim() else []


def _wide(tensor: Tensor) -> Tensor:
    """Half precision is added up in float32, as torch does."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _var_and_mean(tensor: Tensor, dims: list[int], correction: float) -> tuple[Tensor, Tensor]:
    """Both in the type of the tensor, with the dimensions kept."""
    num = prod(tensor.shape[dim] for dim in dims)
    mean = torch.sum(tensor, dims, True) / num
    deviation = tensor - mean
    return torch.sum(deviation * deviation, dims, True) / max(num - correction, 0), mean


def _var_mean(
    tensor: Tensor, dim: int | Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    dims = _dims(tensor, dim)
    results = _var_and_mean(_wide(tensor), dims, 1 if correction is None else correction)
    var, mean = (each if keepdim else each.squeeze(dims) for each in results)
    return var.to(tensor.dtype), mean.to(tensor.dtype)


def _var(
    tensor: Tensor, dim: int | Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    return _var_mean(tensor, dim, correction=correction, keepdim=keepdim)[0]


def _vector_norm(
    tensor: Tensor,
    ord: float = 2,  # torch's name
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    dims, wide = _dims(tensor, dim), _wide(tensor if dtype is None else tensor.to(dtype))
    if ord == 2:
        norm = torch.sum(wide * wide, dims, keepdim).sqrt()
    elif ord == 1:
        norm = torch.sum(wide.abs(), dims, keepdim)
    elif ord == 0:
        norm = torch.sum((wide != 0).to(wide.dtype), dims, keepdim)
    elif ord in (inf, -inf):
        norm = (torch.amax if ord > 0 else torch.amin)(wide.abs(), dims, keepdim)
    else:
        norm = torch.sum(wide.abs() ** ord, dims, keepdim) ** (1 / ord)
    return norm.to(dtype or tensor.dtype)


def _normal(tensor: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Mean, scale, weight and bias of channels: `[channels]`."""

    def wide(each: Tensor) -> Tensor:
        return each.reshape([-1, *(1,) * (tensor.dim() - 2)])

    out = (tensor - wide(mean)) * wide(scale)
    out = out if weight is None else out * wide(weight)
    return out if bias is None else out + wide(bias)


def _statistics(tensor: Tensor) -> tuple[Tensor, Tensor, int]:
    """Variance and mean of each channel, `[channels]`, and of how many elements."""
    dims = [dim for dim in range(tensor.dim()) if dim != 1]
    var, mean = _var_and_mean(_wide(tensor), dims, 0)
    return var.reshape([-1]), mean.reshape([-1]), prod(tensor.shape[dim] for dim in dims)


def _batch_norm_with_updates(
    tensor: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    if not training:
        return (
            *_batch_norm_by_buffers(tensor, weight, bias, running_mean, running_var, momentum, eps),
            running_mean,
            running_var,
        )
    var, mean, num = _statistics(tensor)
    scale = torch.rsqrt(var + eps)
    unbiased = var * (num / (num - 1)) if num > 1 else var * inf
    new_mean = momentum * mean + (1 - momentum) * running_mean
    new_var = momentum * unbiased + (1 - momentum) * running_var
    out = _normal(tensor, mean, scale, weight, bias).to(tensor.dtype)
    return out, mean, scale, new_mean.to(running_mean.dtype), new_var.to(running_var.dtype)


def _batch_norm_without_buffers(
    tensor: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    var, mean, _ = _statistics(tensor)
    scale = torch.rsqrt(var + eps)
    return _normal(tensor, mean, scale, weight, bias).to(tensor.dtype), mean, scale


def _batch_norm_by_buffers(
    tensor: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    out = _normal(tensor, running_mean, torch.rsqrt(running_var + eps), weight, bias).to(tensor.dtype)
    nothing = tensor.new_zeros((0,))  # what torch saves on CPUs
    return out, nothing, nothing
