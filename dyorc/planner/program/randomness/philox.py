"""Random numbers that are a function of where they stand: the operator `dyorc::philox_uniform`, made of torch's operations.

Each number is computed from the step of the training, the number of the draw within the step, and the position of the element in
the whole tensor. No generator has a state; so a piece of a tensor holds what the whole tensor holds there, however it is cut.

Importing this module registers the operator; `evaluate.py` does.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC'11), Philox4x32-10.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import TypeAlias

import torch

from dyorc.planner.program.graph import Node

UNIFORM = "dyorc.philox_uniform.default"
"""The operator's name in programs. Its arguments: the step, the draw, the whole shape, where the piece begins, its extents, its
type.
"""
STEP = "random.step"
"""The name of the state that counts a program's steps: each step draws other numbers."""

_NUM_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF
_NUM_WORDS = 4
_NUM_BLOCKS_AT_ONCE = 1 << 14
"""Four words of so many blocks fit the cache of a core."""

Word: TypeAlias = torch.Tensor | int
"""32 bits, each element in an int64."""


def philox(counter: Sequence[torch.Tensor], key: tuple[Word, Word]) -> list[torch.Tensor]:
    """Returns four random words for each counter and key.

    Args:
        counter: Four words, int64 tensors of one shape.
        key: Two words: numbers, or int64 scalars.
    """
    words = [word.clone() for word in counter]
    first, second = key
    for _ in range(_NUM_ROUNDS):
        low, high = words[0].mul_(_MULTIPLIERS[0]), words[2].mul_(_MULTIPLIERS[1])  # the 64 bits wrap around as unsigned ones do
        even = (high >> 32).bitwise_and_(_MASK).bitwise_xor_(words[1]).bitwise_xor_(first)
        odd = (low >> 32).bitwise_and_(_MASK).bitwise_xor_(words[3]).bitwise_xor_(second)
        words = [even, high.bitwise_and_(_MASK), odd, low.bitwise_and_(_MASK)]
        first, second = (first + _WEYL[0]) & _MASK, (second + _WEYL[1]) & _MASK
    return words


def _uniform(
    step: torch.Tensor, draw: int, shape: Sequence[int], start: Sequence[int], extents: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """Returns a piece of a tensor of random numbers in [0, 1).

    Args:
        step: An int64 scalar, the key.
        draw: Which tensor of random numbers of this step it is.
        shape: Of the whole tensor.
        start: Where the piece begins, for each dimension.
        extents: Of the piece.
        dtype: float32 has 24 random bits, float64 has 53; the first 24 are the same.
    """
    out = torch.empty(list(extents), dtype=dtype, device=step.device)
    if out.numel() == 0:
        return out
    blocks, skipped = _blocks(shape, start, extents, step.device)
    key = _key(step)
    numbers = [_numbers(chunk, draw, key, dtype) for chunk in blocks.view(-1).split(_NUM_BLOCKS_AT_ONCE)]
    rows = torch.cat(numbers).view(blocks.shape[0], -1)
    return out.copy_(rows[:, skipped : skipped + out.numel() // blocks.shape[0]].reshape(out.shape))


def _blocks(shape: Sequence[int], start: Sequence[int], extents: Sequence[int], device: torch.device) -> tuple[torch.Tensor, int]:
    """Returns the numbers of the blocks that a piece needs, a row for each of its rows, and how many elements it skips in each.

    A block is four consecutive elements of the last dimension that has several.
    """
    num_dims = max((dim + 1 for dim, extent in enumerate(shape) if extent > 1), default=0)
    if num_dims == 0:
        return torch.zeros((1, 1), dtype=torch.int64, device=device), 0
    *outer, last = shape[:num_dims]
    begin, end = start[num_dims - 1], start[num_dims - 1] + extents[num_dims - 1]
    first, stop = begin // _NUM_WORDS, ceil(end / _NUM_WORDS)
    rows = torch.zeros((1,), dtype=torch.int64, device=device)
    for dim, extent in enumerate(outer):
        here = torch.arange(start[dim], start[dim] + extents[dim], device=device)
        rows = (rows.unsqueeze(1) * extent + here).view(-1)
    blocks = rows.unsqueeze(1) * ceil(last / _NUM_WORDS) + torch.arange(first, stop, device=device)
    return blocks, begin - first * _NUM_WORDS


def _key(step: torch.Tensor) -> tuple[Word, Word]:
    """The two words of a step; on a GPU, the host does not wait for them."""
    number = int(step) if step.device.type == "cpu" else step
    return number & _MASK, (number >> 32) & _MASK


def _numbers(blocks: torch.Tensor, draw: int, key: tuple[Word, Word], dtype: torch.dtype) -> torch.Tensor:
    """Returns the numbers of blocks, one after the other."""

    def words(part: int) -> list[torch.Tensor]:
        counter = [blocks & _MASK, blocks >> 32, torch.full_like(blocks, draw), torch.full_like(blocks, part)]
        return philox(counter, key)

    high = torch.stack([word >> 8 for word in words(0)], -1)
    if dtype == torch.float32:
        return high.to(dtype).mul_(2.0**-24).view(-1)
    low = torch.stack([word >> 3 for word in words(1)], -1)
    return high.mul_(1 << 29).add_(low).to(dtype).mul_(2.0**-53).view(-1)


def _empty(
    step: torch.Tensor, draw: int, shape: Sequence[int], start: Sequence[int], extents: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty(list(extents), dtype=dtype, device=step.device)


_library = torch.library.Library("dyorc", "FRAGMENT")
_library.define("philox_uniform(Tensor step, int draw, int[] shape, int[] start, int[] extents, ScalarType dtype) -> Tensor")
_library.impl("philox_uniform", _uniform, "CompositeExplicitAutograd")
torch.library.register_fake("dyorc::philox_uniform", _empty, lib=_library)


_DRAW = 1  # among the operator's arguments


def draw_of(node: Node) -> int | None:
    """Returns the number of the draw that a node is, or None if it draws nothing."""
    draw = node.arguments[_DRAW] if node.op == UNIFORM else None
    return draw if isinstance(draw, int) else None


def with_draw(node: Node, draw: int) -> Node:
    """Returns a node that draws as another draw of the step."""
    return replace(node, arguments=(*node.arguments[:_DRAW], draw, *node.arguments[_DRAW + 1 :]))
