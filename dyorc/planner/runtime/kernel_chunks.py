"""What the parts of a kernel's run share: where its chunks begin and end, and how an operation is computed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch

from dyorc.planner.plan import Region, narrowed
from dyorc.planner.runtime.rank_schedule import Compute
from dyorc.planner.runtime.region_moves import Key

Computing: TypeAlias = Callable[[Compute, Mapping[str, torch.Tensor], Region], dict[Key, torch.Tensor]]
"""Computes an operation on given tensors; the last argument is the region of its output."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Cuts slices into chunks.

    Attributes:
        num: How many.
        dim: The dimension of the reduced value along which its slices are cut, and their chunks.
    """

    num: int
    dim: int

    def region(self, region: Region, number: int) -> Region:
        """A chunk of a slice, given the region of the slice."""
        return self.part(region, self.dim, number)

    def part(self, region: Region, dim: int, number: int) -> Region:
        """A chunk of a tensor that is cut along another dimension of its own."""
        low, high = region[dim]
        return narrowed(region, dim, *self.bounds(high - low, number))

    def bounds(self, extent: int, number: int) -> tuple[int, int]:
        """Where a chunk begins and ends in a slice."""
        return extent * number // self.num, extent * (number + 1) // self.num
