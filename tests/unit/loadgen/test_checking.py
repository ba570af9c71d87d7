"""Which answers count as right."""

from typing import Any

import numpy as np
import pytest

from loadgen.checking import difference


def texts(*items: bytes) -> np.ndarray[Any, Any]:
    array = np.empty(len(items), object)
    array[:] = items
    return array


FLOATS = np.array([1.0, np.nan], np.float32)


@pytest.mark.parametrize(
    ("found", "right", "text"),
    [
        (FLOATS, FLOATS.copy(), ""),
        (np.array([1.00009, np.nan], np.float32), FLOATS, ""),
        (np.array([1.001, np.nan], np.float32), FLOATS, "output 'y' is"),
        (np.array([np.nan, 1.0], np.float32), FLOATS, "output 'y' is"),
        (FLOATS[None], FLOATS, "has the shape [1, 2], expected [2]"),
        (np.array([3]), np.array([3], np.int32), ""),
        (np.array([2**53 + 1]), np.array([2**53]), "output 'y' is"),
        (texts(b"a", b"b"), texts(b"a", b"b"), ""),
        (texts(b"a", b"b"), texts(b"a", b"c"), "output 'y' is"),
        (np.array([True]), np.array([False]), "output 'y' is"),
    ],
)
def test_values_are_compared(found: np.ndarray[Any, Any], right: np.ndarray[Any, Any], text: str) -> None:
    said = difference({"y": found}, {"y": right}, 1e-4)

    assert (text in said) if text else not said


def test_names_have_to_match() -> None:
    assert difference({"z": FLOATS}, {"y": FLOATS}, 1e-4) == "the answer has the outputs ['z'], expected ['y']"


def test_a_wrong_answer_is_described_briefly() -> None:
    said = difference({"y": np.zeros(100_000)}, {"y": np.ones(100_000)}, 1e-4)

    assert "expected" in said
    assert len(said) < 600
