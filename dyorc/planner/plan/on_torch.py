"""Torch's tensors as an algebra: what a plan computes, without processes."""

from collections.abc import Mapping, Sequence

import torch

from dyorc.planner.program.evaluate import compute
from dyorc.planner.program.graph import Argument


class TorchAlgebra:
    """Computes with torch's tensors."""

    def compute(
        self,
        op: str,
        arguments: Sequence[Argument],
        keywords: Sequence[tuple[str, Argument]],
        tensors: Mapping[str, torch.Tensor],
        output_shape: tuple[int, ...],
    ) -> tuple[torch.Tensor, ...]:
        """Computes one operation."""
        return compute(op, arguments, keywords, tensors, output_shape)

    def zeros(self, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        """Returns zeros of a shape."""
        return like.new_zeros(shape)

    def add(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Returns the sum of two tensors of one shape; of truth values, whether either is true."""
        return left | right if left.dtype == torch.bool else left + right

    def concatenate(self, arrays: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
        """Joins tensors along a dimension."""
        return torch.cat(list(arrays), dim)

    def put(self, target: torch.Tensor, index: tuple[slice, ...], part: torch.Tensor) -> torch.Tensor:
        """Replaces a part of the target."""
        target[index] = part
        return target
