"""Changes of an operation's tensors after which what the verifier knows makes some of its results equal to others before.

A row that is copied over another has equal results, if each row is computed by itself; what does not depend on a number stays
when the number changes; of a linear operation, the results of a sum are the sum of results.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch

Tensors = Mapping[str, torch.Tensor]
_NUM_VALUES = 3


def rounded(tensors: Tensors) -> dict[str, torch.Tensor]:
    """Returns tensors of multiples of 1/64, whose sums torch computes exactly."""
    return {name: (t * 64).round() / 64 if t.dtype.is_floating_point else t for name, t in tensors.items()}


def powers_of_two(tensors: Tensors) -> dict[str, torch.Tensor]:
    """Returns tensors whose floats are powers of two, of which torch computes sums, products and quotients exactly."""
    draw = torch.Generator().manual_seed(2)

    def drawn(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dtype.is_floating_point:
            return tensor
        signs = torch.randint(0, 2, tensor.shape, generator=draw) * 2 - 1
        return (signs * 2.0 ** torch.randint(-2, 3, tensor.shape, generator=draw)).to(tensor.dtype)

    return {name: drawn(tensor) for name, tensor in tensors.items()}


def changed(tensors: Tensors) -> Iterator[dict[str, torch.Tensor]]:
    """Yields the tensors, and changed ones: few numbers that repeat, slices copied, exchanged and replaced."""
    yield dict(tensors)
    yield {name: _of_few(tensor, False) for name, tensor in tensors.items()}
    yield {name: _of_few(tensor, True) for name, tensor in tensors.items()}
    for names in _together(tensors):
        most = max((tensors[name].dim() for name in names), default=0)
        for dim in range(-most, most):
            cut = [name for name in names if _has(tensors[name], dim) and tensors[name].shape[dim] > 1]
            if not cut or (len(names) == 1 and dim < 0):
                continue
            for change in (_copied, _reversed, _replaced):
                yield {name: change(t, dim) if name in cut else t for name, t in tensors.items()}


def summands(tensors: Tensors) -> Iterator[tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]]:
    """Yields tensors that differ from the given ones in some floats, and the tensors where these are added up."""
    floats = [name for name, tensor in tensors.items() if tensor.dtype.is_floating_point]
    draw = torch.Generator().manual_seed(3)
    for names in dict.fromkeys([*((name,) for name in floats), tuple(floats)]):
        others = {n: torch.randint(-64, 65, tensors[n].shape, generator=draw).to(tensors[n].dtype) / 16 for n in names}
        yield {**tensors, **others}, {**tensors, **{name: tensors[name] + others[name] for name in names}}


def _together(tensors: Tensors) -> Sequence[tuple[str, ...]]:
    """Each tensor by itself, and all at once."""
    return list(dict.fromkeys([*((name,) for name in tensors), tuple(tensors)]))


def _has(tensor: torch.Tensor, dim: int) -> bool:
    return -tensor.dim() <= dim < tensor.dim()


def _of_few(tensor: torch.Tensor, is_constant: bool) -> torch.Tensor:
    """The same few numbers of the tensor again and again."""
    few = tensor.flatten()[: 1 if is_constant else _NUM_VALUES]
    if not tensor.dtype.is_floating_point or not few.numel():
        return tensor
    draw = torch.Generator().manual_seed(4)
    return few[torch.randint(0, few.numel(), (tensor.numel(),), generator=draw)].reshape(tensor.shape)


def _copied(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.cat([tensor.narrow(dim, 0, 1), tensor.narrow(dim, 0, 1), tensor.narrow(dim, 2, tensor.shape[dim] - 2)], dim)


def _reversed(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    return tensor.flip(dim)


def _replaced(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Other numbers of the tensor in the first slice."""
    other = tensor.flatten().roll(max(tensor.numel() // 2, 1)).reshape(tensor.shape)
    return torch.cat([other.narrow(dim, 0, 1), tensor.narrow(dim, 1, tensor.shape[dim] - 1)], dim)
