"""`dyorc run`: a workflow on files, without a server."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.deadlines import TIMEOUT_S
from tests.server_process import COMMAND, target

X = np.array([1, 2, 3, 4], np.float32)


def run(*arguments: str | Path, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs `dyorc run` with these arguments."""
    return subprocess.run([COMMAND, "run", *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_S, cwd=cwd)


def outputs(folder: Path, *arguments: str | Path) -> dict[str, np.ndarray]:
    """Returns what `dyorc run` writes."""
    result = run(*arguments, "--output", folder / "out.npz")
    assert result.returncode == 0, result.stderr
    with np.load(folder / "out.npz") as archive:
        return dict(archive)


def test_an_npy_file_is_an_input(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    found = outputs(tmp_path, target("arithmetic", "quadruple"), "--input", tmp_path / "x.npy")
    np.testing.assert_array_equal(found["output"], X * 4)


def test_an_npz_file_holds_several_inputs_and_a_parameter_has_its_default(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=X, index=np.array([3, 0]))
    found = outputs(tmp_path, target("tensors", "affine"), "--input", tmp_path / "in.npz")
    np.testing.assert_array_equal(found["output"], [4, 1])


def test_a_json_file_holds_inputs_and_a_parameter(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps({"x": X.tolist(), "index": [3, 0], "factor": 10.0}))
    found = outputs(tmp_path, target("tensors", "affine"), "--input", tmp_path / "in.json")
    np.testing.assert_array_equal(found["output"], [40, 10])


def test_an_image_is_an_input(tmp_path: Path) -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 10 + 80
    Image.fromarray(pixels).save(tmp_path / "in.png")
    found = outputs(tmp_path, target("tensors", "brighter"), "--input", tmp_path / "in.png")
    np.testing.assert_array_equal(found["output"], np.minimum(pixels.astype(int) + 10, 255))


def test_two_files_fill_the_inputs_in_order_and_the_result_is_printed(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "index.npy", np.array([1, 2]))
    result = run(target("tensors", "affine"), "--input", "x.npy", "--input", "index.npy", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("output  float32[2]\n[2. 3.]\n")


@pytest.mark.parametrize(
    ("model", "content", "says"),
    [
        (("arithmetic", "quadrupel"), X, "has no workflow or program 'quadrupel'"),
        (("arithmetic", "quadruple"), X[:3], "'x' has size 3 in dimension 0, expected 4"),
        (("tensors", "brighter"), X.astype(np.uint8), "'image' has rank 1 (shape [4]), expected rank 3 [height, width, 3]"),
        (("arithmetic", "quadruple"), X.astype(np.int64), "'x' is INT64, expected FP32"),
        (("arithmetic", "quadruple"), None, "there is no file"),
        (("arithmetic", "quadruple"), b"no array", "cannot be read"),
        (("tensors", "affine"), X, "'index' is missing"),
        (("faulty", "pick"), -X, "program 'picky' failed: ValueError: negative number -4.0 in a batch"),
        (("faulty", "needs_weights"), X, "program 'weightless' failed: FileNotFoundError: no weights at model.safetensors"),
        (("faulty", "divides_by_zero"), X, "workflow 'divides_by_zero' raised ZeroDivisionError"),
    ],
)
def test_an_error_is_one_line(tmp_path: Path, model: tuple[str, str], content: np.ndarray | bytes | None, says: str) -> None:
    if isinstance(content, bytes):
        (tmp_path / "x.npy").write_bytes(content)
    elif content is not None:
        np.save(tmp_path / "x.npy", content)
    result = run(target(*model), "--input", tmp_path / "x.npy")
    assert result.returncode == 1
    assert result.stdout == ""
    (text,) = result.stderr.splitlines()
    print(f"\n{text}")
    assert text.startswith("dyorc: ")
    assert says in text
    assert "Traceback" not in text


def test_help_is_quick_and_names_both_commands() -> None:
    result = subprocess.run([COMMAND, "--help"], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert result.returncode == 0
    assert "serve" in result.stdout
    assert "run" in result.stdout
