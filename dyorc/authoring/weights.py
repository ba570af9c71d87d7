"""Loads a module's weights from a safetensors file without copying them: all replicas of a node share the file's memory."""

import importlib
import os
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol, TypeVar

from safetensors import SafetensorError

from dyorc.system import extras

ModuleT = TypeVar("ModuleT")


class LoadModule(Protocol):
    """Loads modules in place of `load_module`."""

    def __call__(self, make: Callable[[], Any], path: Path, device: str) -> Any | None:
        """Returns an object to be called in place of the module; None if the module is to be loaded as usual."""
        ...


load_module_by: ContextVar[LoadModule | None] = ContextVar("dyorc_load_module", default=None)
"""Loads modules while a program that has a plan is loaded: there, a module is split among several processes."""


def load_module(make: Callable[[], ModuleT], path: str | os.PathLike[str], device: str = "cpu") -> ModuleT:
    """Returns a torch module with the weights of a file, ready to compute: `eval` was called, and no gradients are kept.

    The module is made without memory for its weights, which are not filled with random numbers first. On the CPU, they are the
    file's own pages, which the system reads once per node and shares; a program that writes to them gets its own copy. To
    change a file that is in use, write a new one and rename it.

    In a program that has a plan, the first module that it loads this way is split among several processes. What is returned then
    has no weights, but is called like the module, and answers as it would.

    Args:
        make: Makes the module: usually its class, or a lambda.
        path: A file that ``safetensors.torch.save_file(module.state_dict(), path)`` wrote.
        device: Where the weights should be, like ``cuda``.

    Example:
        >>> @dyorc.program
        ... class Small:
        ...     def __init__(self): self.net = dyorc.load_module(SmallNet, "small.safetensors")

    Raises:
        MissingLibraryError: If torch is not installed.
        FileNotFoundError: If there is no such file.
        PermissionError: If it may not be read. The library that writes such files lets only their owner read them.
        ValueError: If it is no safetensors file, or its weights are not the module's; names them.
    """
    if (load := load_module_by.get()) is not None and (planned := load(make, Path(path), device)) is not None:
        return planned
    extras.require("torch", "dyorc.load_module")
    torch = importlib.import_module("torch")
    with torch.device("meta"):
        module: Any = make()
    with open(path, "rb"):  # safetensors reports an unreadable file as missing
        pass
    try:
        weights = importlib.import_module("safetensors.torch").load_file(path, device=device)
    except SafetensorError as error:
        raise ValueError(f"{os.fspath(path)} cannot be read as safetensors: {error}") from error
    _assign(module, weights, path)
    if any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
        # Some tensors are computed, not saved; computing them needs memory.
        with torch.device(device):
            module = make()
        _assign(module, weights, path)
    return module.eval().requires_grad_(False)


def _assign(module: Any, weights: Any, path: str | os.PathLike[str]) -> None:
    try:
        module.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise ValueError(f"the weights in {os.fspath(path)} are not those of the module: {error}") from error
