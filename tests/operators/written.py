# pyright: basic
# Functions of all kinds have no common type.
"""Functions of torch that its own samples leave out: small modules and calls, forward and backward."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.operators.opinfo import gradients, tensors_in

aten = torch.ops.aten


def functions() -> Iterator[tuple[str, Callable[[], Sequence[torch.Tensor]]]]:
    """Yields the name of a function, and what computes its results and gradients."""
    for name, function, shapes in _of_floats():
        torch.manual_seed(5)
        tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
        yield name, _step(function, tensors)
    yield from _with_indices()


def _step(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Callable[[], Sequence[torch.Tensor]]:
    def run() -> Sequence[torch.Tensor]:
        results = tensors_in(function(*tensors))
        return [*results, *gradients(results, list(tensors))]

    return run


def _of_floats() -> Iterator[tuple[str, Callable[..., Any], list[tuple[int, ...]]]]:
    for act in (functional.elu, functional.gelu, functional.hardtanh, functional.leaky_relu, functional.silu, functional.mish):
        yield act.__name__, act, [(3, 4)]
    for act in (functional.softplus, functional.hardswish, functional.hardsigmoid, functional.relu6, functional.logsigmoid):
        yield act.__name__, act, [(3, 4)]
    for act in (
        torch.tanh,
        torch.sigmoid,
        torch.relu,
        torch.rsqrt,
        torch.expm1,
        torch.square,
        torch.trunc,
        torch.erf,
        torch.sign,
    ):
        yield act.__name__, act, [(3, 4)]
    yield "threshold", lambda x: functional.threshold(x, 0.1, 2.0), [(3, 4)]
    yield "tanh gelu", lambda x: functional.gelu(x, approximate="tanh"), [(3, 4)]
    for shape in ((3, 4), (4,)):
        yield "copy", lambda x, y: aten.copy.default(x.detach(), y.detach()), [(3, 4), shape]
    yield "lerp", lambda x, y: torch.lerp(x, y, 0.25), [(3, 4), (3, 4)]
    yield "addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), [(3, 4), (3, 4), (4,)]
    yield "addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), [(3, 4), (3, 4), (4,)]
    yield "rsub", lambda x: torch.rsub(x, 2.0, alpha=3), [(3, 4)]
    yield "transposed twice", lambda x: (x.permute(1, 2, 0).permute(1, 0, 2) * 2).tril(), [(2, 3, 4)]
    yield "converted", lambda x: (x * 3).to(torch.int64).to(torch.float64) * x, [(2, 3)]
    yield "fill", lambda x: torch.fill(x, 2.0), [(3, 4)]
    for groups in (1, 2):
        shapes = [(3, 4, 5, 6), (6, 4 // groups, 3, 3), (6,)]
        yield "conv2d", lambda x, w, b, g=groups: functional.conv2d(x, w, b, stride=2, padding=1, groups=g), shapes
        yield "conv2d", lambda x, w, g=groups: functional.conv2d(x, w, groups=g), shapes[:2]
        shapes = [(3, 4, 5), (4, 6 // groups, 3), (6,)]
        yield "conv_transpose1d", lambda x, w, b, g=groups: functional.conv_transpose1d(x, w, b, groups=g), shapes
    for shape in ((2, 3, 6, 6), (3, 6, 6)):
        yield "max_pool2d", lambda x: functional.max_pool2d(x, 2), [shape]
        yield "avg_pool2d", lambda x: functional.avg_pool2d(x, 3, 2, 1), [shape]
        yield "adaptive_avg_pool2d", lambda x: functional.adaptive_avg_pool2d(x, 3), [shape]
    for norm in (nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)):
        yield type(norm).__name__, norm.double().train(False), [(3, 4, 5, 5)]
    yield "layer_norm", lambda x, w, b: functional.layer_norm(x, (4, 5), w, b), [(2, 3, 4, 5), (4, 5), (4, 5)]
    yield "layer_norm", lambda x: functional.layer_norm(x, (5,)), [(2, 3, 5)]
    yield "attention", lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 2, 5, 4)] * 3
    yield "interpolate", lambda x: functional.interpolate(x, scale_factor=2), [(2, 3, 4, 4)]
    yield "upsample", lambda x: functional.interpolate(x, size=(7, 5)), [(2, 3, 4, 4)]
    for dim in (0, 1, -1):
        yield "softmax", lambda x, d=dim: torch.softmax(x, d), [(3, 3, 3)]
        yield "cumsum", lambda x, d=dim: torch.cumsum(x, d), [(3, 3, 3)]
        yield "select", lambda x, d=dim: x.select(d, -1), [(3, 3, 3)]
        yield "narrow", lambda x, d=dim: x.narrow(d, 1, 2), [(3, 3, 3)]
        yield "cat", lambda x, y, d=dim: torch.cat([x, y], d), [(3, 3, 3), (3, 3, 3)]
        yield "stack", lambda x, y, d=dim: torch.stack([x, y], d), [(3, 3, 3), (3, 3, 3)]
        yield "split", lambda x, d=dim: x.split([1, 2], d), [(3, 3, 3)]
        yield "sort", lambda x, d=dim: torch.sort(x, d), [(3, 3, 3)]
        yield "stable sort", lambda x, d=dim: torch.sort(x, stable=True, dim=d), [(3, 3, 3)]
        yield "topk", lambda x, d=dim: torch.topk(x, 2, d), [(3, 3, 3)]
        yield "topk by name", lambda x, d=dim: torch.topk(x, k=2, dim=d), [(3, 3, 3)]
        yield "sum by name", lambda x, d=dim: torch.sum(input=x, dim=d, keepdim=True), [(3, 3, 3)]
        yield "flip", lambda x, d=dim: x.flip(d), [(3, 3, 3)]
        yield "roll", lambda x, d=dim: x.roll(1, d), [(3, 3, 3)]
        yield "argmax", lambda x, d=dim: torch.argmax(x, d), [(3, 3, 3)]
        yield "argmin", lambda x, d=dim: torch.argmin(x, dim=d, keepdim=True), [(3, 3, 3)]
        for reduction in (torch.amax, torch.amin, torch.prod, torch.logsumexp):
            yield reduction.__name__, lambda x, r=reduction, d=dim: r(x, d), [(3, 3, 3)]
    yield "triangles", lambda x: torch.tril(x) + torch.triu(x, 1) * 2, [(2, 3, 3)]
    yield (
        "maximum",
        lambda x, y: torch.maximum(x.detach(), y.detach()) + torch.minimum(x.detach(), y.detach()) * 2,
        [(3, 4), (3, 4)],
    )
    yield "mm", torch.mm, [(3, 3), (3, 3)]
    yield "flip of two", lambda x: x.flip((0, 2)), [(3, 3, 3)]
    yield "roll of all", lambda x: x.roll(4), [(3, 3, 3)]
    yield "pad", lambda x: functional.pad(x, (1, 2), value=0.5), [(3, 3, 3)]
    yield "pad with zeros", lambda x: functional.pad(x, (-1, 2, 1, 0)), [(3, 3, 3)]
    yield "var", lambda x: torch.var_mean(x, 1), [(3, 3, 3)]
    yield "floor of quotients", lambda x, y: torch.div(x, y, rounding_mode="floor"), [(3, 3), (3, 3)]


def _with_indices() -> Iterator[tuple[str, Callable[[], Sequence[torch.Tensor]]]]:
    torch.manual_seed(6)
    table, rows = (torch.randn(5, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    indices, wide = torch.randint(0, 5, (3, 2)), torch.randint(0, 4, (5, 4))
    for padding, is_scaled in ((None, False), (1, False), (None, True)):
        yield (
            "embedding",
            _step(lambda t, p=padding, s=is_scaled: functional.embedding(indices, t, p, scale_grad_by_freq=s), [table]),
        )
    for dim in (0, 1, -1):
        yield "gather", _step(lambda t, d=dim: t.gather(d, wide), [table])
        yield "index_select", _step(lambda t, d=dim: t.index_select(d, indices[0]), [table])
        for name in ("scatter", "scatter_add"):
            yield name, _step(lambda t, r, n=name, d=dim: getattr(t, n)(d, wide, r), [table, rows])
    yield "cross_entropy", _step(lambda t: functional.cross_entropy(t, wide[:, 0]), [table])
    yield "where", _step(lambda t, r: torch.where(wide > 1, t, r), [table, rows])
    yield "one_hot", _step(lambda t: t[:4] * functional.one_hot(indices[:2].flatten() % 4, 4), [table])
