"""Programs of ONNX files, against onnxruntime itself."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.errors import DefinitionError, MissingLibraryError, ProgramLoadError

onnxruntime: Any = pytest.importorskip("onnxruntime", reason="needs the extra `programs`")

FOLDER = Path(onnxruntime.__file__).parent / "datasets"


def model(name: str) -> Path:
    """Returns a file of the package rapidocr, whose code is not imported."""
    folder = Path(onnxruntime.__file__).parents[1] / "rapidocr" / "models"
    if not folder.is_dir():
        pytest.skip("needs the extra `ocr`")
    return folder / name


def plain(path: Path, batch: np.ndarray) -> np.ndarray:
    """Returns what onnxruntime computes by itself, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {session.get_inputs()[0].name: batch})
    return output


CASES = [
    ("ch_ppocr_mobile_v2.0_cls_mobile.onnx", (3, 48, 192)),
    ("PP-OCRv6_rec_small.onnx", (3, 48, 96)),
    ("PP-OCRv6_det_small.onnx", (3, 64, 96)),
]


@pytest.mark.parametrize(("file", "shape"), CASES, ids=[file for file, _ in CASES])
def test_a_call_is_computed_bit_by_bit_as_by_onnxruntime(file: str, shape: tuple[int, ...]) -> None:
    program = dyorc.programs.onnx(model(file), num_threads=1)
    image = np.random.default_rng(0).standard_normal(shape, np.float32)
    np.testing.assert_array_equal(dyorc.run(program, x=image), plain(model(file), image[None])[0])


def test_calls_share_a_batch_and_the_bytes_of_a_file_will_do() -> None:
    path = model(CASES[0][0])
    program = dyorc.programs.onnx(path.read_bytes(), name="turned", num_threads=1, shapes={"x": "batch 3 48 192"})
    images = np.random.default_rng(1).standard_normal((4, 3, 48, 192), np.float32)

    @dyorc.workflow(programs=[program])
    async def four(images: Float[np.ndarray, "n 3 48 192"]) -> Float[np.ndarray, "n 2"]:
        rows = [program(image) for image in await images]
        return np.stack(await dyorc.gather(*rows))

    np.testing.assert_allclose(dyorc.run(four, images), plain(path, images), rtol=1e-5, atol=1e-6)


def test_buckets_pad_a_dimension_by_its_name_in_the_file() -> None:
    path = model("PP-OCRv6_rec_small.onnx")
    program = dyorc.programs.onnx(path, num_threads=1, pad=dyorc.pad(DynamicDimension_1=(64, 96)))
    line = np.random.default_rng(2).standard_normal((3, 48, 80), np.float32)
    padded = np.pad(line, ((0, 0), (0, 0), (0, 16)))
    np.testing.assert_array_equal(dyorc.run(program, x=line), plain(path, padded[None])[0])


def test_names_types_and_sizes_come_from_the_file() -> None:
    program = dyorc.programs.onnx(model("PP-OCRv6_det_small.onnx"))
    assert program.name == "PP-OCRv6_det_small"
    (image,) = program.declared.inputs
    assert (image.name, image.dtype, image.describe()) == ("x", "FP32", "[batch, 3, DynamicDimension_1, DynamicDimension_2]")


def test_a_model_without_a_batch_axis_is_refused_and_runs_unbatched() -> None:
    with pytest.raises(DefinitionError, match=r"'X' has the shape \[3, 2\] and so no batch axis.*declare batched=False"):
        dyorc.programs.onnx(FOLDER / "mul_1.onnx")
    program = dyorc.programs.onnx(FOLDER / "mul_1.onnx", batched=False)
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(dyorc.run(program, X=values), plain(FOLDER / "mul_1.onnx", values))


def test_what_cannot_be_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"'probabilities' is seq\(map\(.*expected a tensor of float"):
        dyorc.programs.onnx(FOLDER / "logreg_iris.onnx", batched=False)
    with pytest.raises(DefinitionError, match=r"shapes names \['z'\]; its tensors are \['x', 'y'\]"):
        dyorc.programs.onnx(FOLDER / "sigmoid.onnx", batched=False, shapes={"z": "n"})
    (tmp_path / "no.onnx").write_bytes(b"no model")
    with pytest.raises(DefinitionError, match=r"onnxruntime cannot read .*no\.onnx"):
        dyorc.programs.onnx(tmp_path / "no.onnx")


def test_a_provider_that_is_not_there_is_named() -> None:
    program = dyorc.programs.onnx(FOLDER / "mul_1.onnx", batched=False, providers=["AbacusExecutionProvider"])
    with pytest.raises(ProgramLoadError, match=r"\['AbacusExecutionProvider'\] are not in this onnxruntime"):
        dyorc.run(program, X=np.ones((3, 2), np.float32))


def test_onnxruntime_is_missed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingLibraryError, match=r"'mul_1' needs onnxruntime.*pip install 'dyorc-core\[programs\]'"):
        dyorc.programs.onnx(FOLDER / "mul_1.onnx")
