"""Takes tensors out of what modules return: a tensor, or several in tuples, dictionaries, or objects such as a `ModelOutput`."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten


def loss_in(answer: Any) -> torch.Tensor:
    """Returns the loss that a training step returns.

    Raises:
        TypeError: There is none, or it is not a scalar.
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
        TypeError: There is none, or there is something else beside them.
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
