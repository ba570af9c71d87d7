"""The example call with which a module is captured, and the tensors in what it returns: flat, and how they are put together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
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
        by_name = dict(sorted((keywords or {}).items()))  # the order of keywords makes no difference
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


def loss_in(answer: Any) -> torch.Tensor:
    """Returns the loss that a training step returns.

    Raises:
        TypeError: It returns no loss, or one that is not a scalar.
    """
    match answer:
        case torch.Tensor():
            loss: Any = answer
        case Mapping():
            loss = answer.get("loss")
        case tuple() | list() if not hasattr(answer, "loss"):
            loss = answer[0] if answer else None
        case _:
            loss = getattr(answer, "loss", None)
    if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
        described = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(answer).__name__
        raise TypeError(
            "the module must return its loss, a scalar tensor, or hold it as `loss` or as the first element of a tuple; it "
            f"returned {described}"
        )
    return loss


def tensors_in(answer: Any) -> tuple[tuple[torch.Tensor, ...], TreeSpec]:
    """Returns the tensors of an answer, in order, and how they are put together.

    Raises:
        TypeError: It holds no tensor, or something else besides.
    """
    leaves, structure = tree_flatten(answer)
    strange = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    if strange or not leaves:
        described = type(strange[0]).__name__ if strange else "nothing"
        place = f" within {type(answer).__name__}" if strange and strange[0] is not answer else ""
        raise TypeError(
            "the module must return a tensor, or several in a tuple, a dictionary or the like, and returned "
            f"{described}{place}{_remedy(strange)}"
        )
    return tuple(leaves), structure


def _remedy(strange: list[Any]) -> str:
    if not strange or not is_dataclass(strange[0]):
        return ""
    name = type(strange[0]).__name__
    return f"; torch.export.register_dataclass({name}, serialized_type_name={name!r}) has torch look into that data class"
