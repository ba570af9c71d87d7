"""A model in a TorchScript file."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxtyping import Float

import dyorc
from dyorc.errors import DefinitionError
from dyorc.programs.declaring import annotations_of, declare, import_library


def torchscript(
    path: str | os.PathLike[str],
    signature: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    device: str = "cpu",
    **options: Any,
) -> dyorc.Program:
    """Returns a program that runs the ``forward`` of a module that ``torch.jit.save`` wrote.

    Args:
        signature: A function with the annotations of ``forward``; its body is of no interest. The file knows names only: without
            a signature, it is loaded once to read them, and each tensor is ``Float[Tensor, "batch ..."]``.
        name: By default, the file's.
        device: Where it computes, such as ``cuda``.
        options: Of `dyorc.program`.

    Raises:
        DefinitionError: If the file cannot be read, or a parameter or the output is no tensor.
        MissingLibraryError: If torch is not installed.
    """
    name = name or re.sub(r"[^\w.-]", "_", Path(path).stem)
    owner = f"program {name!r}"
    torch = import_library("torch", owner, "pip install 'dyorc-core[torch]'")
    if signature is not None:
        inputs, output = annotations_of(owner, signature)
    else:
        inputs, output = _read(owner, torch, path)

    def load() -> Callable[..., Any]:
        module = torch.jit.load(os.fspath(path), map_location=device).eval()

        def compute(**tensors: Any) -> Any:
            return module(**{each: tensor.to(device) for each, tensor in tensors.items()})

        return compute

    return declare(name, inputs, output, load, **options)


def _read(owner: str, torch: Any, path: str | os.PathLike[str]) -> tuple[dict[str, Any], Any]:
    try:
        schema = torch.jit.load(os.fspath(path), map_location="cpu").forward.schema
    except (RuntimeError, ValueError, OSError, AttributeError) as error:
        raise DefinitionError(f"{owner}: {os.fspath(path)} cannot be read as TorchScript: {error}") from error
    parameters = [argument for argument in schema.arguments if argument.name != "self"]
    for argument in (*parameters, *schema.returns):
        if str(argument.type) != "Tensor":
            raise DefinitionError(
                f"{owner}: {argument.name or 'its output'} is {argument.type}, expected one Tensor; give a signature, and wrap "
                f"the module in one that takes and returns tensors"
            )
    tensor = Float[torch.Tensor, "batch ..."]
    return {argument.name: tensor for argument in parameters}, tensor
