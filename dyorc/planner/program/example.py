"""The example call with which a module is captured: its tensors, flat, and how they are put together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from dyorc.errors import ProgramCaptureError


@dataclass(frozen=True, eq=False)
class Example:
    """Arguments of a module: tensors in any structure that torch's pytree knows.

    Attributes:
        tensors: All of them, in order.
        structure: How they make positional and keyword arguments.
    """

    tensors: tuple[torch.Tensor, ...]
    structure: TreeSpec

    @staticmethod
    def of(inputs: Sequence[Any], keywords: Mapping[str, Any] | None = None) -> "Example":
        """Takes arguments apart.

        Args:
            inputs: By position.
            keywords: By name.

        Raises:
            ProgramCaptureError: Something in them is no tensor.
        """
        by_name = dict(sorted((keywords or {}).items()))  # one call, in whatever order its keywords stand
        leaves, structure = tree_flatten((tuple(inputs), by_name))
        for number, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                raise ProgramCaptureError(f"every example input must be a tensor, and number {number} is {type(leaf).__name__}")
        return Example(tuple(leaves), structure)

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> "Example":
        """Returns the same call with other tensors."""
        return replace(self, tensors=tuple(tensors))

    def call(self, module: nn.Module) -> Any:
        """Calls a module."""
        args, keywords = self.arguments()
        return module(*args, **keywords)

    def arguments(self, tensors: Sequence[torch.Tensor] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the positional arguments and those by name, of these or of other tensors."""
        args, keywords = tree_unflatten(self.tensors if tensors is None else tensors, self.structure)
        return args, keywords
