"""`dyorc run` reads and writes files: nothing in them is lost, and errors name the file."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float
from rich.console import Console

import dyorc
from dyorc.cli.input_files import print_outputs, read_inputs, write_outputs
from dyorc.errors import InvalidInputError


@dyorc.program
def double(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x * 2


@dyorc.workflow
async def flow(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return double(x)


NPY = b"\x93NUMPY\x01\x00"
HUGE = (
    NPY
    + (118).to_bytes(2, "little")
    + b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999,), }".ljust(117)
    + b"\n"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.npy", b""), ("x.npy", b"\x80\x04."), ("x.npy", NPY), ("x.npy", NPY + b"\xff" * 40), ("x.npy", HUGE),
        ("x.npz", b""), ("x.npz", b"PK\x03\x04"), ("x.npz", bytes(range(256))),
        ("x.json", b""), ("x.json", b"[1]"), ("x.json", b"\xff"),
        ("x.png", b""), ("x.png", b"\x89PNG\r\n\x1a\n"), ("x.txt", b"1"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=str(path)):
        read_inputs([path], flow.signature)


def test_a_damaged_member_of_an_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.arange(1000.0))
    content = bytearray(path.read_bytes())
    content[60:90] = bytes(30)
    path.write_bytes(content)
    assert zipfile.is_zipfile(path)
    with pytest.raises(InvalidInputError, match=str(path)):
        read_inputs([path], flow.signature)


def test_texts_keep_the_zeros_at_their_ends(tmp_path: Path) -> None:
    texts = np.array([[b"a\0\0", b""], [b"\0", b"bc"]], object)
    path = tmp_path / "x.npz"
    write_outputs(path, {"texts": texts, "plain": np.array([b"a", b"bc"], object), "none": np.empty((0, 3), object)})
    with np.load(path) as stored:
        assert sorted(stored) == ["none", "plain", "texts", "texts.lengths"]
        assert stored["none"].shape == (0, 3)
    assert read_inputs([path], flow.signature)["texts"].tolist() == texts.tolist()


def test_a_single_text_and_a_number_are_written_and_printed(tmp_path: Path) -> None:
    """As `dyorc.run` returns tensors of rank 0."""
    path = tmp_path / "x.npz"
    outputs = {"text": b"ab\0", "number": np.float32(2.5), "texts": np.array([b"a"], object)}
    write_outputs(path, outputs)
    with np.load(path) as stored:
        assert {name: stored[name].shape for name in stored.files if name != "text.lengths"} == {
            "text": (),
            "number": (),
            "texts": (1,),
        }
        assert (stored["text"].item(), stored["text.lengths"].item(), stored["number"].item()) == (b"ab", 3, 2.5)
    shown = io.StringIO()
    print_outputs(Console(file=shown, width=80), outputs)
    assert shown.getvalue().startswith("text  BYTES[]\n  ab")
