"""Inputs from files and outputs to files, for ``dyorc run``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import msgspec
import numpy as np
from numpy.lib.format import MAGIC_PREFIX
from rich.console import Console

from dyorc.authoring.signature import Signature
from dyorc.core.arrays import Array
from dyorc.errors import InvalidInputError

_LENGTHS = ".lengths"
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
            raise InvalidInputError(f"too many files: {path}; {signature.owner} has the inputs {signature.names()}")
        values[free[0]] = value
    return values


def _read(path: Path) -> Any:
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}")
    try:
        match path.suffix.lower():
            case ".npy":
                return _read_npy(path)
            case ".npz":
                return _read_npz(path)
            case ".json":
                return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
            case suffix if suffix in _IMAGES:
                return _read_image(path)
            case suffix:
                raise InvalidInputError(
                    f"{path} is a {suffix or 'nameless'} file, expected .npy, .npz, .json or an image {sorted(_IMAGES)}"
                )
    except InvalidInputError:
        raise
    except Exception as error:  # NumPy, zipfile, zlib or Pillow, for a file that is not of its suffix's format
        raise InvalidInputError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def _read_npy(path: Path) -> Array:
    with path.open("rb") as file:
        if file.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:  # NumPy would take it for a pickle
            raise InvalidInputError(f"{path} cannot be read: it is {_size_of(path)}, and does not begin as .npy files do")
    return np.load(path, allow_pickle=False)


def _read_npz(path: Path) -> dict[str, Array]:
    if not is_zipfile(path):
        raise InvalidInputError(f"{path} cannot be read: it is {_size_of(path)}, and no archive, as .npz files are")
    # NumPy closes only files that it could read.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = dict(archive)
    for name in [name for name in arrays if name.endswith(_LENGTHS)]:
        text = name.removesuffix(_LENGTHS)
        if text in arrays:
            arrays[text] = _with_lengths(arrays[text], arrays.pop(name))
    return arrays


def _with_lengths(texts: Array, lengths: Array) -> Array:
    """Gives texts the zeros at their ends back, which NumPy takes for padding."""
    items = [
        text.ljust(length, b"\0") for text, length in zip(texts.reshape(-1).tolist(), lengths.reshape(-1).tolist(), strict=True)
    ]
    whole = np.empty(len(items), object)
    whole[:] = items
    return whole.reshape(texts.shape)


def _size_of(path: Path) -> str:
    size = path.stat().st_size
    return f"{size:,} bytes long" if size else "empty"


def _read_image(path: Path) -> Array:
    try:
        from PIL import Image
    except ImportError as error:
        raise InvalidInputError(f"{path}: reading images needs Pillow (pip install pillow)") from error
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def write_outputs(path: Path, outputs: Mapping[str, Any]) -> None:
    """Writes what `dyorc.run` returned to an .npz file.

    Texts become NumPy's byte strings of one length, which lose zeros at their ends. Where a text of NAME has some, NAME.lengths
    holds the lengths of all; `read_inputs` heeds it.
    """
    if path.suffix != ".npz":
        raise InvalidInputError(f"{path}: outputs are written as .npz")
    plain: dict[str, Array] = {}
    for name, value in outputs.items():
        array = _as_array(value)
        plain[name] = array.astype(np.bytes_) if array.dtype == object else array
        if array.dtype == object and any(text.endswith(b"\0") for text in array.flat):
            plain[name + _LENGTHS] = np.vectorize(len, otypes=[np.int64])(array)
    np.savez(path, allow_pickle=False, **plain)


def print_outputs(console: Console, outputs: Mapping[str, Any]) -> None:
    """Prints what `dyorc.run` returned for a person: type, shape, and as much of the content as fits."""
    for name, value in outputs.items():
        array = _as_array(value)
        console.print(
            f"[bold]{name}[/bold]  {array.dtype if array.dtype != object else 'BYTES'}{list(array.shape)}", highlight=False
        )
        if array.dtype == object:
            for item in array.reshape(-1).tolist():
                console.print(f"  {bytes(item).decode(errors='replace')}", highlight=False, markup=False)
        else:
            console.print(np.array2string(array, threshold=50, precision=4), highlight=False, markup=False)


def _as_array(value: Any) -> Array:
    """Returns an output as an array; one of rank 0 comes as its number or `bytes`."""
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)
