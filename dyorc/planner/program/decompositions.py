"""Decomposes composite operations when a program is captured: into few kinds, whose dimensions can be split.

Statistics and norms become sums, which ranks that hold different samples can each do a part of. So batch normalization over split
samples computes the statistics of all of them, as `torch.nn.SyncBatchNorm` does.

Source: the formulas are those of torch's documentation; tests compare each with torch.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, prod
from typing import Any, TypeAlias

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_KEPT_NAMES = """
    elu_backward embedding_dense_backward gelu_backward hardsigmoid_backward hardtanh_backward leaky_relu_backward roll silu
    silu_backward
"""
"""What has a rule as a whole; its parts would be many nodes, or read and write by index."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Returns what computes each composite operation from others."""
    from torch._decomp import core_aten_decompositions

    table = dict(core_aten_decompositions())
    aten = torch.ops.aten
    table[aten.addmm.default] = _addmm  # a product may be a partial sum, a product with a bias may not
    table[aten.baddbmm.default] = _baddbmm
    table[aten.mean.default] = _mean  # so may a sum
    table[aten.mean.dim] = _mean
    table[aten.stack.default] = _stack
    table[aten.repeat.default] = _repeat
    table[aten.native_group_norm.default] = _group_norm
    table |= decompositions_into_sums()
    by_index = table[aten.embedding_dense_backward.default]
    for name in _KEPT_NAMES.split():
        table.pop(getattr(aten, name).default, None)
    table[aten.embedding_dense_backward.default] = partial(_embedding_backward, by_index)
    return table


def _embedding_backward(
    by_index: Callable[..., torch.Tensor], gradient: torch.Tensor, indices: torch.Tensor, rows: int, padding: int, by_count: bool
) -> torch.Tensor:
    """Stays whole, unless gradients are divided by how often an index occurs in the batch: no part of it knows that number."""
    return by_index(gradient, indices, rows, padding, by_count) if by_count else NotImplemented


def _mean(
    tensor: torch.Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    dims = list(dim) if dim and tensor.dim() else list(range(tensor.dim()))  # a scalar has no dimensions, yet may name one
    return torch.sum(tensor, dims, keepdim, dtype=dtype) / prod(tensor.shape[d] for d in dims)


def _addmm(bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, beta: float = 1, alpha: float = 1) -> torch.Tensor:
    product = torch.mm(left, right)
    return _plus(product, bias, beta, alpha)


def _baddbmm(bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, beta: float = 1, alpha: float = 1) -> torch.Tensor:
    return _plus(torch.bmm(left, right), bias, beta, alpha)


def _plus(product: torch.Tensor, bias: torch.Tensor, beta: float, alpha: float) -> torch.Tensor:
    """Without a bias whose factor is zero: torch does not read it then, even if it holds NaN."""
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (bias if beta == 1 else bias * beta)


def _stack(tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    """Along a new dimension; torch joins along the first dimension and makes two of it, so that it cannot be split."""
    return torch.cat([tensor.unsqueeze(dim) for tensor in tensors], dim)


def _repeat(tensor: torch.Tensor, repeats: Sequence[int]) -> torch.Tensor:
    """By a dimension for the repetitions left of each that is repeated, so that both can be split.

    Instance normalization so repeats its weights for each sample.
    """
    shape = (*(1,) * (len(repeats) - tensor.dim()), *tensor.shape)
    apart = [part for num, extent in zip(repeats, shape, strict=True) for part in ((1, extent) if num != 1 else (extent,))]
    wide = [part for num, extent in zip(repeats, shape, strict=True) for part in ((num, extent) if num != 1 else (extent,))]
    repeated = tensor.reshape(apart).expand(wide)
    return repeated.reshape([num * extent for num, extent in zip(repeats, shape, strict=True)]).clone()


def _group_norm(
    tensor: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    num_samples: int,
    num_channels: int,
    num_pixels: int,
    num_groups: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """By groups, which may be split like samples; torch's operation holds both extents as numbers."""
    rows = tensor.reshape(num_samples, num_groups, num_channels // num_groups * num_pixels)
    out, mean, rstd = torch.native_layer_norm(rows, rows.shape[-1:], None, None, eps)
    out = out.reshape(tensor.shape)
    shape = (num_channels, *(1,) * (tensor.dim() - 2))
    out = out if weight is None else out * weight.reshape(shape)
    out = out if bias is None else out + bias.reshape(shape)
    return out, mean.squeeze(-1), rstd.squeeze(-1)


class ByFormula(TorchFunctionMode):
    """Computes some functions by a formula, where torch would call one operation whose parts no rule can see.

    Attention without a mask, or with the causal one: torch's own formula costs twice the nodes; it scales both factors, and looks
    for rows that are masked as a whole, which only a given mask can have. Pixels that are repeated: torch reads them by index.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch for each of its functions."""
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention and _is_plain(*args, **kwargs):
            return _attention(*args, **kwargs)
        if func in _UNCHECKED:
            return _UNCHECKED[func](*args, **kwargs)[0]
        if func is functional.interpolate and (factors := _whole_factors(*args, **kwargs)):
            return _enlarged(args[0], *factors)
        return func(*args, **kwargs)


_UNCHECKED: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.linalg.solve: torch.linalg.solve_ex,
    torch.linalg.inv: torch.linalg.inv_ex,
    torch.inverse: torch.linalg.inv_ex,
    torch.linalg.cholesky: torch.linalg.cholesky_ex,
}
"""The same without an error for singular matrices: that check is an effect, which no graph holds. They give no numbers then."""


def _whole_factors(
    tensor: torch.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", *args: Any, **kwargs: Any
) -> tuple[int, int] | None:
    """How often each row and each pixel of a row is repeated; None if that is not all that is asked for."""
    if mode != "nearest" or tensor.dim() != 4:
        return None
    if scale_factor is None:
        sizes = (size, size) if isinstance(size, int) else tuple(size)
        factors = tuple(new / old for new, old in zip(sizes, tensor.shape[2:], strict=True))
    else:
        factors = (scale_factor, scale_factor) if isinstance(scale_factor, int | float) else tuple(scale_factor)
    return (int(factors[0]), int(factors[1])) if all(factor >= 1 and factor == int(factor) for factor in factors) else None


def _enlarged(tensor: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    samples, channels, height, width = tensor.shape
    spread = tensor.view(samples, channels, height, 1, width, 1).expand(-1, -1, -1, rows, -1, columns)
    return spread.reshape(samples, channels, height * rows, width * columns)


def _is_plain(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: object = None,
    dropout_p: float = 0.0,
    *args: Any,
    **kwargs: Any,
) -> bool:
    return attn_mask is None and dropout_p == 0


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    q, k, v = query, key, value
    if enable_gqa:
        group = q.shape[-3] // k.shape[-3]
        k, v = (x.unsqueeze(-3).expand(*x.shape[:-2], group, *x.shape[-2:]).flatten(-4, -3) for x in (k, v))
    scores = torch.matmul(q * (q.shape[-1] ** -0.5 if scale is None else scale), k.transpose(-2, -1))
    if is_causal:
        rows, columns = (torch.arange(extent, device=q.device) for extent in scores.shape[-2:])
        scores = scores.masked_fill(columns > rows.unsqueeze(-1), float("-inf"))
    return torch.matmul(functional.softmax(scores, dim=-1), v)


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
