"""Files of inputs for `dyorc run`: arrays, archives of them, JSON."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from dyorc.cli.input_files import read_inputs
from dyorc.core.arrays import same_array
from dyorc.errors import InvalidInputError
from tests.fuzz.contract import FuzzTarget, InputForm, check
from tests.fuzz.request_bodies import repeat


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _as_numpy_reads(data: bytes) -> Any:
    try:
        return np.load(io.BytesIO(data), allow_pickle=False)
    except Exception:  # whatever it raises, it refuses the file
        return None


def _target(name: str, path: Path, seeds: tuple[bytes, ...], form: InputForm, words: tuple[bytes, ...]) -> FuzzTarget:
    def read(data: bytes) -> None:
        path.write_bytes(data)
        values = read_inputs([path], repeat.signature)
        if path.suffix == ".npy":
            expected, (array,) = _as_numpy_reads(data), values.values()
            check(expected is not None and same_array(array, expected), f"{array!r} was read, expected {expected!r}")

    return FuzzTarget(name=name, read=read, errors=(InvalidInputError,), seeds=seeds, form=form, words=words)


def build_npy(folder: Path) -> FuzzTarget:
    """Returns the target for `.npy` files."""
    arrays = (np.zeros((2, 2), np.float32), np.arange(3), np.array([b"ab", b"c"]), np.array(True), np.zeros((0, 3), np.uint8))
    words = (
        b"\x93NUMPY",
        b"'descr': '|O'",
        b"'fortran_order': True",
        b"(1000000000000,)",
        b"(-1,)",
        b"'<f8'",
        b"'|V1000000000'",
        b"<U999",
    )
    return _target("npy_files", folder / "x.npy", tuple(map(_npy, arrays)), InputForm.BYTES, words)


def build_npz(folder: Path) -> FuzzTarget:
    """Returns the target for `.npz` archives."""
    texts = np.array([b"ab", b"c"])
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", _npy(np.zeros(2**16, np.uint8)))
    seeds = (
        _npz(x=np.zeros((1, 2), np.float32), n=np.arange(2)),
        _npz(texts=texts, **{"texts.lengths": np.array([2, 3])}),
        bomb.getvalue(),
    )
    return _target(
        "npz_files", folder / "x.npz", seeds, InputForm.BYTES, (b"PK\x03\x04", b"PK\x01\x02", b".lengths", b"x.npy", b"\xff" * 8)
    )


def build_json(folder: Path) -> FuzzTarget:
    """Returns the target for `.json` files."""
    seeds = (json.dumps({"x": [[1, 2.5]], "n": 3, "texts": ["a", "b"], "label": "l"}).encode(),)
    return _target("json_files", folder / "x.json", seeds, InputForm.JSON, (b"1e400", b"\\ud800", b"NaN"))
