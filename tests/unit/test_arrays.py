"""Arrays, tensors and lists of every kind that users hand over."""

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.dtypes import StringDType

from dyorc.core.arrays import as_array, freeze, is_frozen
from dyorc.core.tensor import DType
from dyorc.errors import InvalidInputError

CONJUGATE = torch.tensor([1 + 2j, 3 - 4j]).conj()
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # torch calls them outdated
    QUANTIZED = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        ([10**20, 1.5], DType.FP64, [1e20, 1.5]),
        ([[10**20]], DType.FP32, [[np.float32(1e20)]]),
        ([np.float32(1), np.int64(2)], DType.FP32, [1, 2]),
        (range(3), DType.INT8, [0, 1, 2]),
        (memoryview(b"ab"), DType.UINT8, [97, 98]),
        ([], DType.INT64, []),
        (3, DType.BF16, 3),
        (np.array(["a", "ü"], StringDType()), DType.BYTES, [b"a", "ü".encode()]),
        (np.array("a", StringDType()), DType.BYTES, b"a"),
        (np.array([b"a", "b"], object), DType.BYTES, [b"a", b"b"]),
        (np.array([1.5], ">f4"), DType.FP32, [1.5]),
        (np.ma.array([1.0, 2.0]), DType.FP64, [1, 2]),
        (np.asfortranarray([[1, 2], [3, 4]]), DType.INT64, [[1, 2], [3, 4]]),
        (np.array([1.5], ml_dtypes.bfloat16), DType.BF16, [1.5]),
        (CONJUGATE.imag, DType.FP32, [-2, 4]),
        (CONJUGATE.real, DType.FP32, [1, 3]),
        (torch.ones(2, requires_grad=True), DType.FP32, [1, 1]),
        ([torch.ones((), requires_grad=True), 2], DType.FP32, [1, 2]),
        (torch.arange(4, dtype=torch.bfloat16)[::2], DType.BF16, [0, 2]),
        (torch.arange(4).view(2, 2).t(), DType.INT64, [[0, 2], [1, 3]]),
    ],
)
def test_values_become_arrays(value: Any, dtype: DType, expected: Any) -> None:
    assert as_array(value, dtype, "x").tolist() == expected


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        ([10**20], DType.INT64, "x: it holds a number outside the range of INT64"),
        ([np.int64(300)], DType.UINT8, "x: it holds a number outside the range of UINT8: 300 to 300"),
        ([1e300], DType.FP32, "x: it holds a number outside the range of FP32"),
        ([10**400], DType.FP64, "x: .*too large"),
        ([True, 10**20], DType.FP64, "expected FP64"),
        ([None], DType.FP32, "expected FP32"),
        (np.ma.array([1.0, 2.0], mask=[0, 1]), DType.FP64, r"x: a masked array has masked elements.*filled\(\)"),
        (np.array(["a", None], StringDType(na_object=None)), DType.BYTES, "x: an element is NoneType"),
        (np.array(["2020-01-01"], "M8[D]"), DType.INT64, r"x: arrays of datetime64\[D\] cannot be sent"),
        (CONJUGATE, DType.FP32, "x: arrays of complex64 cannot be sent"),
        (torch.eye(2).to_sparse(), DType.FP32, r"x: a tensor of layout torch.sparse_coo .*to_dense\(\)"),
        (QUANTIZED, DType.FP32, r"x: a quantized tensor .*dequantize\(\)"),
        (torch.empty(2, device="meta"), DType.FP32, "x: a tensor on the device 'meta' has no values"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_name(value: Any, dtype: DType, text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        as_array(value, dtype, "x")


class _Interrupting:
    """A value during whose conversion a signal handler raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise self._error


@pytest.mark.parametrize("error", [TimeoutError("of a handler"), RuntimeError("of a handler"), KeyError("of a handler")])
def test_exceptions_of_others_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        as_array(_Interrupting(error), DType.FP32, "x")
    assert raised.value is error


def test_what_is_frozen_stays_as_it_is() -> None:
    own = np.arange(3)
    assert is_frozen(freeze(own))
    assert not own.flags.writeable
    number: Any = own[1]
    assert freeze(number) == 1, "a scalar cannot be written to"
