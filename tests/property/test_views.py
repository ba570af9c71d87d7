"""Views of tensors that do not exist yet have the shapes and values that NumPy computes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jaxtyping import Int

from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import OutputSpec
from dyorc.core.arrays import apply_views, inline
from dyorc.core.tensor import index_shape, layout_of
from dyorc.engine.model.futures import Future

shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
items = (
    st.integers(-6, 6)
    | st.builds(slice, *[st.none() | st.integers(-7, 7)] * 2, st.none() | st.integers(-3, 3).filter(bool))
    | st.none()
    | st.just(Ellipsis)
)
indices = st.lists(items, max_size=6).filter(lambda index: sum(item is Ellipsis for item in index) <= 1).map(tuple)


def by_numpy(array: np.ndarray, index: tuple[Any, ...]) -> np.ndarray | None:
    """Returns what NumPy does; None stands for an error."""
    try:
        return array[index if Ellipsis in index else (*index, ...)]
    except IndexError:
        return None


@given(shapes, indices)
def test_shapes_are_those_of_numpy(shape: tuple[int, ...], index: tuple[Any, ...]) -> None:
    expected = by_numpy(np.empty(shape), index)
    if expected is None:
        with pytest.raises(IndexError):
            index_shape(shape, index)
    else:
        assert index_shape(shape, index) == expected.shape


@given(shapes, st.lists(indices, max_size=3))
def test_views_of_views_are_those_of_numpy(shape: tuple[int, ...], keys: list[tuple[Any, ...]]) -> None:
    array = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    ref, tensor, expected = Ref(Future(None), OutputSpec.of(Int[np.ndarray, "..."], "it")), inline(array), array
    for key in keys:
        after = by_numpy(expected, key)
        if after is None:
            continue
        ref, expected = ref[key], after
    for index in ref.views:
        tensor = tensor.view(index)
    assert tensor.shape == expected.shape
    assert np.array_equal(apply_views(array, tensor.views), expected)
    layout = layout_of(shape, ref.views)
    assert layout.shape == expected.shape
    first, end = layout.bounds()
    assert 0 <= first <= end <= max(array.size, first)
    strides = [8 * stride for stride in layout.strides]
    strided = np.lib.stride_tricks.as_strided(array.reshape(-1)[layout.start :], layout.shape, strides)
    assert np.array_equal(strided, expected)
