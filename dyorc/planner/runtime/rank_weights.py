"""A model's weights in a safetensors file, named as in its state: each rank reads its pieces only.

On the CPU, pieces are views of the file's own pages, which the system reads once for all ranks and all groups of a machine.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from dyorc.errors import PlanError
from dyorc.planner.plan import Plan, within
from dyorc.planner.runtime.checkpoint import is_lasting
from dyorc.planner.runtime.region_moves import Key, is_zero, pieces_at

_TYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
}  # fmt: skip
"""What safetensors calls torch's types."""


def missing_weights(plan: Plan, path: Path) -> tuple[str, ...]:
    """Returns the lasting sources of a plan that a file does not hold: what a module computes when it is made.

    Raises:
        PlanError: The file cannot be read, or holds one in another shape or type.
    """
    lasting = [name for name in plan.sources if is_lasting(plan, name)]
    with _open(path) as file:
        held = set(file.keys())
        for name in held.intersection(lasting):
            value, part = plan.values[name], file.get_slice(name)
            held_as = f"{_TYPES.get(part.get_dtype(), part.get_dtype())} {part.get_shape()}"
            if held_as != f"{value.dtype} {list(value.shape)}":
                raise PlanError(f"the plan needs {name} as {value.dtype} {list(value.shape)}, and {path} holds it as {held_as}")
    return tuple(name for name in lasting if name not in held)


def read_weights(plan: Plan, rank: int, path: Path) -> dict[Key, torch.Tensor]:
    """Reads a rank's pieces of the lasting sources that a file holds."""
    pieces: dict[Key, torch.Tensor] = {}
    with _open(path) as file:
        for name in set(file.keys()).intersection(plan.sources):
            for key, cut, is_filler in _pieces(plan, rank, name):
                piece = file.get_tensor(name)[cut]
                pieces[key] = torch.zeros_like(piece) if is_filler else piece
    return pieces


def read_whole(path: Path, names: Mapping[str, str]) -> dict[str, torch.Tensor]:
    """Reads whole tensors.

    Args:
        path: The file.
        names: For each name that they are to have, the one that they have in the file. A name that the file lacks is left out.
    """
    with _open(path) as file:
        held = set(file.keys())
        return {name: file.get_tensor(stored) for name, stored in names.items() if stored in held}


def _pieces(plan: Plan, rank: int, name: str) -> Iterator[tuple[Key, tuple[slice, ...], bool]]:
    whole = tuple((0, extent) for extent in plan.values[name].shape)
    for tensor in plan.sources[name]:
        for piece in pieces_at(plan, tensor):
            if piece.rank == rank:
                yield piece.key, within(piece.region, whole), is_zero(plan, piece)


def _open(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise PlanError(f"the weights in {path} cannot be read: {error}") from error
