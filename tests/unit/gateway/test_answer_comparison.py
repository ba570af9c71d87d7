"""Whether two answers are the same."""

from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

from dyorc.authoring.spec import Framework, TensorSpec, ValueSpec
from dyorc.authoring.values import ContentKind
from dyorc.config import ShadowConfig
from dyorc.core.arrays import dtype_of, element_of_bytes
from dyorc.gateway.answer_comparison import difference_of

CONFIG = ShadowConfig(relative_tolerance=0.01, absolute_tolerance=0.001)


def difference(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any], *, shows_values: bool = False) -> str:
    """Returns the difference of two tensors."""
    spec = TensorSpec("y", dtype_of(left), (), Framework.NUMPY)
    return difference_of([spec], [left], [right], CONFIG, shows_values=shows_values)


def difference_of_values(left: object, right: object, *, shows_values: bool = False) -> str:
    """Returns the difference of two structured values."""
    spec = ValueSpec.__new__(ValueSpec)
    for name, value in (("name", "y"), ("kind", ContentKind.JSON)):
        object.__setattr__(spec, name, value)
    answer, other = ([element_of_bytes(msgspec.json.encode(value))] for value in (left, right))
    return difference_of([spec], answer, other, CONFIG, shows_values=shows_values)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_floats_may_differ_within_the_tolerances(kind: Any) -> None:
    first = np.array([100, np.nan, 0, np.inf], kind)
    assert difference(first, np.array([100.9, np.nan, 0.0009, np.inf], kind)) == ""
    assert difference(first, np.array([110, np.nan, 0, np.inf], kind)) == "output 'y' differs in 1 of 4 elements, by up to 10"
    assert difference(first, np.array([100, 0, 0, np.inf], kind)).startswith("output 'y' differs in 1 of 4 elements")


def test_integers_texts_and_shapes_are_compared_exactly() -> None:
    one, other = np.array([1_000_000, 2]), np.array([1_000_001, 2])
    assert difference(one, one.copy()) == ""
    assert difference(one, other) == "output 'y' differs in 1 of 2 elements"
    assert difference(one, np.array([1_000_000])) == "output 'y' is INT64 [1], expected INT64 [2]"
    assert difference(one, one.astype(np.int32)) == "output 'y' is INT32 [2], expected INT64 [2]"
    assert difference(element_of_bytes(b"cat"), element_of_bytes(b"cat")) == ""
    assert difference(element_of_bytes(b"cat"), element_of_bytes(b"dog")) == "output 'y' differs in 1 of 1 elements"


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [
        ({"label": "cat", "score": 0.5}, {"score": 0.5001, "label": "cat"}, None),
        ({"label": "cat", "score": 0.5}, {"label": "cat", "score": 0.6}, "score"),
        ({"label": "cat"}, {"label": "dog"}, "label"),
        ({"n": 1}, {"n": 2}, "n"),
        ({"n": 1}, {"n": True}, "n"),
        ({"n": 1}, {"n": 1.0}, "n"),
        ({"n": 1.0}, {"n": 1.0001}, None),
        ({"boxes": [{"x": 1}, {"x": 2}]}, {"boxes": [{"x": 1}, {"x": 3}]}, "boxes[1].x"),
        ({"boxes": [1]}, {"boxes": [1, 2]}, "boxes"),
        ({"a": None}, {}, "a"),
        ({}, {"b": 1}, "b"),
    ],
)
def test_structured_values_are_compared_part_by_part(left: object, right: object, place: str | None) -> None:
    assert difference_of_values(left, right) == ("" if place is None else f"output 'y' differs at {place!r}")


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ({"n": 1}, {"n": 1.0}, "at 'n': it was 1, it is 1.0"),
        ({"a": {"b": "cat"}}, {"a": {}}, "at 'a.b': it was 'cat', it is missing"),
        (1, 2, ": it was 1, it is 2"),
        ("a" * 1000, "b", f": it was '{'a' * 56}..., it is 'b'"),
    ],
)
def test_parts_that_differ_are_shown_if_that_is_asked(left: object, right: object, said: str) -> None:
    text = difference_of_values(left, right, shows_values=True)
    assert text == f"output 'y' differs{' ' if said.startswith('at') else ''}{said}"


def test_elements_that_differ_are_shown_if_that_is_asked() -> None:
    def shown(left: Any, right: Any) -> str:
        return difference(left, right, shows_values=True).removeprefix("output 'y' differs in ")

    assert shown(np.array([1, 2]), np.array([1, 3])) == "1 of 2 elements; the first was 2, it is 3"
    assert shown(np.array(1.5), np.array(2.5)) == "1 of 1 elements, by up to 1: it was 1.5, it is 2.5"
    assert shown(np.array([0.5, 2], ml_dtypes.bfloat16), np.array([0.5, 4], ml_dtypes.bfloat16)).endswith("was 2.0, it is 4.0")
    assert shown(element_of_bytes(b"cat"), element_of_bytes(b"\xff")) == "1 of 1 elements: it was 'cat', it is b'\\xff'"
