"""Inputs from files and outputs to files, for ``dyorc run``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console

from dyorc.arrays import Array
from dyorc.authoring.signature import Signature
from dyorc.errors import InvalidInputError

_IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})


def read_inputs(paths: Sequence[Path], signature: Signature) -> dict[str, Any]:
    """Reads inputs by name.

    A .npz file or a .json object holds inputs by name; a .npy file or an image (height, width, 3 as UINT8) is the next
    input that has no value yet.

    Raises:
        InvalidInputError: If a file cannot be read or there are more files than inputs.
    """
    values: dict[str, Any] = {}
    for path in paths:
        value = _read(path)
        if isinstance(value, dict):
            values.update(value)  # pyright: ignore[reportUnknownArgumentType]
            continue
        free = [spec.name for spec in signature.inputs if spec.name not in values]
        if not free:
            raise InvalidInputError(f"{path} is one file more than {signature.owner} has inputs {signature.names()}")
        values[free[0]] = value
    return values


def _read(path: Path) -> Any:
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}")
    try:
        match path.suffix.lower():
            case ".npy":
                return np.load(path, allow_pickle=False)
            case ".npz":
                with np.load(path, allow_pickle=False) as archive:
                    return dict(archive)
            case ".json":
                return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
            case suffix if suffix in _IMAGES:
                return _read_image(path)
            case suffix:
                raise InvalidInputError(
                    f"{path} is a {suffix or 'nameless'} file, expected .npy, .npz, .json or an image {sorted(_IMAGES)}"
                )
    except (ValueError, OSError, msgspec.MsgspecError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{path} cannot be read: {error}") from error


def _read_image(path: Path) -> Array:
    try:
        from PIL import Image
    except ImportError as error:
        raise InvalidInputError(f"{path}: reading images needs Pillow (pip install pillow)") from error
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def write_outputs(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes an .npz file. Texts become NumPy's fixed-length byte strings."""
    if path.suffix != ".npz":
        raise InvalidInputError(f"{path}: outputs are written as .npz")
    np.savez(path, allow_pickle=False, **{name: _plain(array) for name, array in arrays.items()})


def _plain(array: Array) -> Array:
    return np.array(array.tolist(), dtype=np.bytes_) if array.dtype == object else array


def print_outputs(console: Console, arrays: Mapping[str, Array]) -> None:
    """Prints arrays for a person: type, shape, and as much of the content as fits."""
    for name, array in arrays.items():
        array = np.asarray(array)
        console.print(
            f"[bold]{name}[/bold]  {array.dtype if array.dtype != object else 'BYTES'}{list(array.shape)}", highlight=False
        )
        if array.dtype == object:
            for item in array.reshape(-1).tolist():
                console.print(f"  {bytes(item).decode(errors='replace')}", highlight=False, markup=False)
        else:
            console.print(np.array2string(array, threshold=50, precision=4), highlight=False, markup=False)
