"""Long arrays are written as JSON piece by piece, and read as if they had been written at once."""

import json
from typing import Any

import numpy as np
import orjson
import pytest

from dyorc.gateway.codec.json_pieces import json_parts

NUM_ITEMS = 100_001
LONG = np.arange(NUM_ITEMS, dtype=np.float32) / 7


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "outputs": [{"name": "x", "shape": (NUM_ITEMS,), "data": LONG}, {"name": "y", "data": LONG[:3]}], "id": "ä"},
        {"outputs": [{"name": "x", "data": [f"text {number}" for number in range(NUM_ITEMS)]}]},
        {"outputs": [{"name": "x", "data": LONG[:0]}], "parameters": {"explain": [{"step": 1}]}},
        {"x": LONG.astype(np.int64), "nan": np.array([np.nan, np.inf])},
        {"x": LONG > 5, "empty": {}},
        {"x": LONG.astype(np.float16)},
        {},
    ],
)
def test_it_reads_as_if_written_at_once(value: dict[str, Any]) -> None:
    assert b"".join(json_parts(value)) == orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def test_no_piece_is_long() -> None:
    parts = json_parts({"outputs": [{"name": "x", "data": LONG}]})
    assert len(parts) > 10
    assert max(map(len, parts)) < 2 * len(json.dumps(LONG.tolist())) / 10


def test_a_short_answer_is_one_piece() -> None:
    assert len(json_parts({"outputs": [{"name": "x", "data": LONG[:100]}]})) == 1


@pytest.mark.parametrize(
    "kind",
    [
        *(np.bool_, np.byte, np.ubyte, np.short, np.ushort, np.intc, np.uintc, np.long, np.ulong, np.longlong, np.ulonglong),
        *(np.float16, np.float32, np.float64),
    ],
)
def test_every_number_of_numpy_is_written(kind: type[np.generic]) -> None:
    array = np.ones(2, kind)
    (part,) = json_parts({"single": array[0], "several": array})
    assert json.loads(part) == {"single": 1, "several": [1, 1]}
