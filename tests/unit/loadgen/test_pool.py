"""Pools reach the workers unchanged, and requests are drawn as asked."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dyorc.core.tensor import TENSOR_TYPES
from dyorc.protocol.metadata import TensorMetadata
from loadgen.drawing import check_names, draw, read_pool, shapes_of, split_rows
from loadgen.pool import Pool


def test_every_type_is_kept(tmp_path: Path) -> None:
    texts = np.empty((2, 1), object)
    texts[:, 0] = [b"", bytes(range(256))]
    inputs = {"t/x": texts, "b": np.arange(4).astype(ml_dtypes.bfloat16), "f": np.float16([[1, 2]]), "s": np.asarray(np.int64(3))}
    Pool(inputs=[inputs, {"f": np.float16([3])}], branches=["a", "b"], tolerance=0.5).save(tmp_path / "pool.npz")
    found = read_pool(tmp_path / "pool.npz")

    assert (found.branches, found.tolerance, found.answers) == (["a", "b"], 0.5, ())
    assert found.inputs[0].keys() == inputs.keys()
    for name, array in inputs.items():
        assert found.inputs[0][name].dtype == array.dtype
        assert found.inputs[0][name].tolist() == array.tolist()


def test_a_plain_file_is_one_request(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", x=np.ones(3), words=np.array(["one", "two"]))
    found = read_pool(tmp_path / "plain.npz")

    assert len(found.inputs) == 1
    assert found.inputs[0]["words"].tolist() == [b"one", b"two"]


def test_arrays_with_a_dimension_more_hold_a_request_in_each_row() -> None:
    rows = Pool(inputs=[{"x": np.arange(6.0).reshape(3, 2), "n": np.arange(3)}])
    assert [tensors["x"].tolist() for tensors in split_rows(rows, {"x": 1, "n": 0}).inputs] == [[0, 1], [2, 3], [4, 5]]
    assert split_rows(rows, {"x": 2, "n": 1}) is rows
    assert split_rows(rows, {"x": 1}) is rows
    assert split_rows(rows, {}) is rows
    with pytest.raises(ValueError, match="expected the same number of them in each array"):
        split_rows(Pool(inputs=[{"x": np.zeros((3, 2)), "n": np.arange(2)}]), {"x": 1, "n": 0})


def test_requests_have_the_types_that_were_asked_for() -> None:
    metadata = [TensorMetadata(dtype.value, dtype, (2, 3)) for dtype in TENSOR_TYPES]
    tensors = draw(metadata, {one.name: one.shape for one in metadata}, np.random.default_rng(0))

    assert {name: array.shape for name, array in tensors.items()} == dict.fromkeys(tensors, (2, 3))
    assert tensors["BF16"].dtype == ml_dtypes.bfloat16
    assert all(isinstance(text, bytes) and 4 <= len(text) < 24 for text in tensors["BYTES"].ravel())
    assert tensors["UINT8"].max() < 10


def test_shapes_are_read() -> None:
    assert shapes_of(["image:1,8,8", "a:b:2"]) == {"image": (1, 8, 8), "a:b": (2,)}
    for line in ("image", "image:", "image:1,x", "image:-1"):
        with pytest.raises(ValueError, match="expected NAME:1,2,3"):
            shapes_of([line])


def test_inputs_that_the_model_does_not_have_are_refused() -> None:
    pool = Pool(inputs=[{"x": np.zeros(2)}, {"y": np.zeros(2)}])
    with pytest.raises(ValueError, match=r"--pool holds 'y', which model 'm' does not have; its inputs are \['x', 'z'\]"):
        check_names(pool, {"x": 1, "z": 1}, "m")
    check_names(pool, {"x": 1, "y": 1}, "m")
    check_names(pool, {}, "m")  # the server does not describe it


def test_rows_of_texts_are_requests_of_one_text_each(tmp_path: Path) -> None:
    np.savez(tmp_path / "q.npz", question=np.array(["why?", "how so?"], "S"))
    pool = split_rows(read_pool(tmp_path / "q.npz"), {"question": 0})
    pool.save(tmp_path / "pool.npz")
    for known in (pool, Pool.load(tmp_path / "pool.npz")):
        assert [(row["question"].shape, row["question"].item()) for row in known.inputs] == [((), b"why?"), ((), b"how so?")]


def test_texts_and_numbers_may_be_given_as_they_are(tmp_path: Path) -> None:
    texts: list[Any] = [np.array("why?"), np.array(b"why?"), b"why?", "why?", np.array(b"why?", object)]
    answers: list[Any] = [{"y": 2.5}] * len(texts)
    pool = Pool(inputs=[{"question": text} for text in texts], answers=answers)
    pool.save(tmp_path / "pool.npz")
    for known in (pool, Pool.load(tmp_path / "pool.npz")):
        assert all(row["question"].dtype == object and row["question"].item() == b"why?" for row in known.inputs)
        assert [row["y"].tolist() for row in known.answers] == [2.5] * len(texts)
