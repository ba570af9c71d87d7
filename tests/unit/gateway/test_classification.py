"""Outputs as classes: the highest values with their positions."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dyorc.core.tensor import DType
from dyorc.errors import InvalidInputError
from dyorc.gateway.request_outputs import num_classes_of, top_classes


def _top(values: Any, num: int, kind: Any = np.float32) -> list[str]:
    return [text.decode() for text in top_classes(np.array(values, kind), num).tolist()]


def test_the_protocols_own_examples() -> None:
    assert _top([1, 5, 10, 4], 2, np.int32) == ["10:2", "5:1"]
    assert _top([1.1, 3.3, 0.5, 2.4], 2) == ["3.3:1", "2.4:3"]


@pytest.mark.parametrize(
    "kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64, np.float16, ml_dtypes.bfloat16,
             np.float32, np.float64],
)  # fmt: skip
def test_every_numeric_type_is_ranked_by_its_own_order(kind: Any) -> None:
    for num in (1, 3, 5):
        found = [text.split(":") for text in _top([0, 7, 3, 100, 7], num, kind)]
        assert [int(at) for _, at in found] == [3, 1, 4, 2, 0][:num]
        assert [float(value) for value, _ in found] == [100, 7, 7, 3, 0][:num]


def test_integers_too_close_for_a_float_keep_their_order() -> None:
    assert _top([2**64 - 2, 2**64 - 1, 0], 2, np.uint64) == [f"{2**64 - 1}:1", f"{2**64 - 2}:0"]
    assert _top([-(2**63), -(2**63) + 1], 2, np.int64) == [f"{-(2**63) + 1}:1", f"{-(2**63)}:0"]


def test_a_value_is_read_back_as_it_was() -> None:
    values = np.random.default_rng(0).random(100, np.float32) * np.float32(1e-6)
    for text in _top(values, 100):
        value, _, at = text.partition(":")
        assert np.float32(value) == values[int(at)]


def test_nan_ranks_with_minus_infinity() -> None:
    values = [np.nan, -np.inf, 1, np.inf]
    for num in (1, 2, 3, 4):
        assert _top(values, num) == ["inf:3", "1.0:2", "nan:0", "-inf:1"][:num]


def test_all_come_if_there_are_fewer_and_positions_are_flat() -> None:
    assert _top([[1, 2], [4, 3]], 9, np.int8) == ["4:2", "3:3", "2:1", "1:0"]
    assert _top([], 3) == []
    assert _top(2.5, 3) == ["2.5:0"]


def test_it_finds_the_same_as_a_full_sort() -> None:
    values = np.random.default_rng(1).integers(0, 50, 1000)  # many are equal
    order = sorted(range(1000), key=lambda at: (-values[at], at))
    for num in (1, 20, 999, 1000):
        assert [int(text.split(":")[1]) for text in _top(values, num, np.int64)] == order[:num]


@pytest.mark.parametrize("number", [-1, 1.5, "2", True, None])
def test_an_invalid_number_of_classes_is_refused(number: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"'classification' of output 'y' is .*expected a number of classes"):
        num_classes_of({"classification": number}, "y", DType.FP32)


@pytest.mark.parametrize("dtype", [DType.BOOL, DType.BYTES])
def test_tensors_without_an_order_have_no_classes(dtype: DType) -> None:
    with pytest.raises(InvalidInputError, match=f"output 'y' is {dtype}, expected numbers"):
        num_classes_of({"classification": 1}, "y", dtype)
    assert num_classes_of({"classification": 0}, "y", dtype) == num_classes_of({}, "y", dtype) == 0
