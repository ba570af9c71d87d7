"""Every way in which a rule lets an operation be split: the pieces, computed as plans compute them, beside the whole of torch."""

from collections.abc import Iterator, Sequence

import torch

from dyorc.planner.program.axes import Axes, axes_of
from dyorc.planner.program.evaluate import compute
from dyorc.planner.program.strategies import Partial, Placement, Replicate, Shard, Strategy, strategies_of
from tests.operators.closeness import difference, largest, tolerance_of
from tests.operators.samples import OperationSample


def ways_of(sample: OperationSample) -> Iterator[tuple[str, str]]:
    """Yields every way of splitting an operation, and what comes out wrong; an empty text if nothing does."""
    axes = axes_of(sample.program)
    for strategy in strategies_of(sample.program, sample.node, axes):
        for shares in _shares(strategy, axes):
            way = f"{_text(strategy.inputs)} -> {_text(strategy.outputs)} in {list(shares)}"
            try:
                yield way, _wrong(sample, strategy, shares)
            except Exception as error:  # whatever torch says, these pieces cannot be computed
                yield way, f"{type(error).__name__}: {error}"


def _text(placements: Sequence[Placement]) -> str:
    return ", ".join(map(str, placements))


def _shares(strategy: Strategy, axes: Axes) -> list[tuple[int, ...]]:
    """Uneven and empty shares of an axis for 2 and 3 ranks; for sums, only the number of terms matters."""
    if strategy.axis is None:
        return [(1, 1), (1, 1, 1)] if Partial() in strategy.inputs else []
    extent = axes.extents[strategy.axis]
    if extent == 0:
        return [(0, 0), (0, 0, 0)]
    half = (extent + 1) // 2
    return list(dict.fromkeys([(1, extent - 1), (0, extent), (half, 0, extent - half), (extent - 1, 1, 0)]))


def _wrong(sample: OperationSample, strategy: Strategy, shares: Sequence[int]) -> str:
    node = sample.node
    inputs = {
        name: _pieces(sample.inputs[name], placement, shares)
        for name, placement in zip(node.inputs, strategy.inputs, strict=True)
    }
    made: list[tuple[torch.Tensor, ...]] = []
    first, placement = next((name, p) for name, p in zip(node.outputs, strategy.outputs, strict=True) if name)
    for rank in range(len(shares)):
        shape = list(sample.outputs[first].shape)
        if isinstance(placement, Shard):
            shape[placement.dim] = shape[placement.dim] // max(sum(shares), 1) * shares[rank]
        mine = {name: pieces[rank] for name, pieces in inputs.items()}
        made.append(compute(node.op, node.arguments, node.keywords, mine, tuple(shape)))
    tensors = [*sample.inputs.values(), *sample.outputs.values()]
    tolerance = tolerance_of(tensors) * largest(tensors)
    for index, (name, placement) in enumerate(zip(node.outputs, strategy.outputs, strict=True)):
        for whole in _wholes([pieces[index] for pieces in made], placement) if name else ():
            if wrong := difference(whole, sample.outputs[name], tolerance=tolerance):
                return f"{name} {wrong}"
    return ""


def _pieces(whole: torch.Tensor, placement: Placement, shares: Sequence[int]) -> list[torch.Tensor]:
    match placement:
        case Shard(dim):
            unit = whole.shape[dim] // max(sum(shares), 1)
            return list(whole.split([share * unit for share in shares], dim))
        case Partial():
            terms = [_random(whole) for _ in shares[1:]]
            return [*terms, whole - sum(terms[1:], terms[0])]
        case Replicate():
            return [whole] * len(shares)


def _random(like: torch.Tensor) -> torch.Tensor:
    draw = torch.Generator().manual_seed(like.numel())
    if like.dtype.is_floating_point:
        return torch.randn(like.shape, dtype=like.dtype, generator=draw)
    # of the largest integers there are none: sums beyond them would start again at the smallest
    return torch.randint(0, 5, like.shape, dtype=like.dtype, generator=draw) * (like.double().abs() < 2.0**62)


def _wholes(pieces: Sequence[torch.Tensor], placement: Placement) -> Sequence[torch.Tensor]:
    """What the pieces are together: each of them, if they are replicas."""
    match placement:
        case Shard(dim):
            return [torch.cat(list(pieces), dim)]
        case Partial():
            return [sum(pieces[1:], pieces[0])]
        case Replicate():
            return pieces
