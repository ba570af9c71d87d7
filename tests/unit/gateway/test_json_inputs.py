"""Numbers in JSON become tensors of the declared type, or are refused."""

from typing import Any

import msgspec
import pytest

from dyorc.errors import InvalidInputError
from dyorc.gateway.codec.json_inputs import Input, read_inputs

MEMORY: Any = None  # no input lies in client memory


def _read(datatype: str, data: str) -> list[Any]:
    values = msgspec.json.decode(data)
    arrays = read_inputs([Input(name="x", shape=[len(values)], datatype=datatype, data=values)], memoryview(b""), MEMORY)
    return arrays["x"].tolist()


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
@pytest.mark.parametrize(
    "data", ["[1e20]", "[100000000000000000000]", "[100000000000000000000, 0.5]", "[-1, -100000000000000000000]"]
)
def test_integers_beyond_64_bits_are_numbers_for_floating_types(datatype: str, data: str) -> None:
    assert _read(datatype, data) == _read(datatype, str([float(value) for value in msgspec.json.decode(data)]))


@pytest.mark.parametrize(
    ("datatype", "data", "text"),
    [
        ("INT64", "[100000000000000000000]", "'x' holds a number outside the range of INT64"),
        ("FP32", "[1" + 39 * "0" + "]", "'x' holds a number outside the range of FP32"),
        ("FP64", "[1" + 400 * "0" + "]", "'x' holds a number outside the range of FP64"),
        ("INT64", "[2, true]", "not an evenly nested list of whole numbers"),
        ("UINT8", "[[3, 1], [false, 0]]", "not an evenly nested list of whole numbers"),
        ("FP32", "[1.0, 0, true]", "not an evenly nested list of numbers"),
        ("BOOL", "[true, 1]", "not an evenly nested list of booleans"),
        ("FP32", "[100000000000000000000, true]", "not an evenly nested list of numbers"),
        ("FP32", "[100000000000000000000, null]", "not an evenly nested list of numbers"),
        ("FP32", '[100000000000000000000, "1"]', "not an evenly nested list of numbers"),
    ],
)
def test_others_are_refused(datatype: str, data: str, text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        _read(datatype, data)
