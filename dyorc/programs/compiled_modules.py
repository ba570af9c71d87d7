"""A torch module, compiled by ``torch.compile``: on a GPU with a CUDA graph for each shape."""

import logging
import re
from collections.abc import Callable
from typing import Any

import dyorc
from dyorc.programs.declaring import annotations_of, declare, import_library

logger = logging.getLogger("dyorc.programs")


def compiled(
    make: Callable[[], Any],
    signature: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    device: str | None = None,
    max_shapes: int = 64,
    **options: Any,
) -> dyorc.Program:
    """Returns a program that runs a torch module, compiled.

    Each shape is compiled when it first comes, so a module whose sizes differ should have buckets (`pad`). On a GPU, batches are
    filled up to 1, 2, 4, 8, ... rows, and each shape has a CUDA graph. Without a compiler for the device, the module runs as it
    is, and a warning says so.

    Args:
        make: Makes the module with its weights, once per replica: ``lambda: dyorc.load_module(Net, "net.safetensors")``.
        signature: A function with the annotations of ``forward``; by default ``make.forward``, if `make` is a class.
        name: By default, that of `make`.
        device: Where it computes; by default ``cuda`` if there is one.
        max_shapes: How many shapes are compiled; others run as they are.
        options: Of `dyorc.program`.

    Raises:
        DefinitionError: If there is no signature.
        MissingLibraryError: If torch is not installed.
    """
    name = name or re.sub(r"[^\w.-]", "_", getattr(make, "__name__", "compiled"))
    owner = f"program {name!r}"
    torch = import_library("torch", owner, "pip install 'dyorc-core[torch]'")
    inputs, output = annotations_of(owner, signature or getattr(make, "forward", make))
    is_batched = options.get("batched", True)

    def load() -> Callable[..., Any]:
        target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        module = make().eval().to(target)
        mode = "reduce-overhead" if target.type == "cuda" else None
        return _Compiled(torch, owner, module, target, mode, max_shapes, is_batched)

    return declare(name, inputs, output, load, **options)


class _Compiled:
    def __init__(self, torch: Any, owner: str, module: Any, device: Any, mode: Any, max_shapes: int, is_batched: bool) -> None:
        self._torch, self._owner, self._module, self._device = torch, owner, module, device
        self._has_graphs, self._max_shapes = is_batched and device.type == "cuda", max_shapes
        self._fast: Any = torch.compile(module, dynamic=False, mode=mode)
        self._shapes: set[Any] = set()

    def __call__(self, **tensors: Any) -> Any:
        given = {each: tensor.to(self._device) for each, tensor in tensors.items()}
        num_rows = next(iter(given.values())).shape[0] if self._has_graphs else 0
        if num_rows & (num_rows - 1):  # no power of two
            num_more = (1 << num_rows.bit_length()) - num_rows
            given = {each: self._torch.cat([rows, rows[-1:].expand(num_more, *rows.shape[1:])]) for each, rows in given.items()}
        outputs = self._run(given)
        if not self._has_graphs:
            return outputs
        # A graph writes over its outputs when it runs again.
        if isinstance(outputs, tuple | list):
            return tuple(tensor[:num_rows].clone() for tensor in outputs)
        return outputs[:num_rows].clone()

    def _run(self, tensors: dict[str, Any]) -> Any:
        self._shapes.add(shape := tuple(tensor.shape for tensor in tensors.values()))
        if self._fast is None or len(self._shapes) > self._max_shapes:
            self._shapes.discard(shape)
            return self._module(**tensors)
        try:
            with self._torch._dynamo.config.patch(recompile_limit=self._max_shapes):
                return self._fast(**tensors)
        except self._torch._dynamo.exc.BackendCompilerFailed as error:
            self._fast = None
            logger.warning("%s runs as it is, because it cannot be compiled here: %s", self._owner, str(error).partition("\n")[0])
            return self._module(**tensors)
