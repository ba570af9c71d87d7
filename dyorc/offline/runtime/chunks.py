"""What the parts of a kernel's run share: where its chunks begin and end, and how an operation is computed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch

from dyorc.offline.plan import Region
from dyorc.offline.runtime.moves import Key
from dyorc.offline.runtime.schedule import Compute

Computing: TypeAlias = Callable[[Compute, Mapping[str, torch.Tensor], tuple[int, ...]], dict[Key, torch.Tensor]]
"""Computes an operation on given tensors; the last argument is the shape of its output."""


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
        low, high = region[self.dim]
        start, stop = self.bounds(high - low, number)
        return (*region[: self.dim], (low + start, low + stop), *region[self.dim + 1 :])

    def bounds(self, extent: int, number: int) -> tuple[int, int]:
        """Where a chunk begins and ends in a slice."""
        return extent * number // self.num, extent * (number + 1) // self.num
