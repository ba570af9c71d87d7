"""`Ref`: what a workflow may do with a value that has not been computed."""

import copy
from collections.abc import Callable
from typing import Any, TypedDict

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import OutputSpec
from dyorc.authoring.stream import Stream
from dyorc.engine.model.futures import Future

Vector = Float[np.ndarray, "4"]


class Named(TypedDict):
    boxes: Vector
    scores: Vector


def ref_to(annotation: object) -> Ref:
    return Ref(Future(None), OutputSpec.of(annotation, "it"))


def test_a_field_is_named_by_key_or_attribute() -> None:
    ref = ref_to(Named)
    assert (ref["scores"].field, ref.scores.field, ref["boxes"].field) == (1, 1, 0)
    with pytest.raises(KeyError, match=r"no output 'labels'; expected one of \['boxes', 'scores'\]"):
        ref["labels"]
    with pytest.raises(AttributeError, match=r"no attribute 'labels'; `await` it"):
        _ = ref.labels


def test_a_tuple_unpacks_and_counts_from_both_ends() -> None:
    ref = ref_to(tuple[Vector, Vector])
    first, second = ref
    assert (first.field, second.field, ref[-1].field) == (0, 1, 1)
    with pytest.raises(IndexError):
        ref[2]


def test_views_are_collected_in_order() -> None:
    ref = ref_to(Vector)[1:, np.int64(2)][..., None]
    assert ref.views == ((slice(1, None, None), 2), (Ellipsis, None))
    assert ref_to(Named)["boxes"][0].views == ((0,),)


@pytest.mark.parametrize("key", [1.5, True, "boxes", [0, 1], slice(0.5, 1), np.array([True])])
def test_only_ints_slices_ellipsis_and_none_index_a_tensor(key: object) -> None:
    with pytest.raises(TypeError, match="a Ref is indexed by ints, slices"):
        ref_to(Vector)[key]


@pytest.mark.parametrize("annotation", [Vector, Named])
def test_only_a_tuple_of_outputs_can_be_iterated_over(annotation: object) -> None:
    with pytest.raises(TypeError, match="only a tuple of outputs can be unpacked"):
        list(ref_to(annotation))


def test_a_ref_can_be_copied() -> None:
    assert copy.copy(ref_to(Named)).outputs.names == ("boxes", "scores")


@pytest.mark.parametrize(
    ("make", "subject", "instead"),
    [
        (dyorc.when, 1, "a Ref or a list of Refs, got int"),
        (dyorc.choose, [1, 2], "a list of Refs, got int at index 0"),
        (dyorc.gather, [1, 2], r"got list; pass a list as dyorc.gather\(\*list\)"),
    ],
)
def test_decisions_look_at_refs_only(make: Callable[[Any], Any], subject: Any, instead: str) -> None:
    with pytest.raises(TypeError, match=instead):
        make(subject)


def test_what_reads_a_stream_is_named_where_it_is_used_as_a_value() -> None:
    stream: Any = Stream("parts", OutputSpec.of(Vector, "it"))
    with pytest.raises(TypeError, match=r"gather takes Refs, got a Stream; .* `await dyorc.collect\(stream\)`"):
        dyorc.gather(stream)
    for use, words in ((len, "has no length"), (iter, "cannot be iterated over or unpacked"), (bool, "has no truth value")):
        with pytest.raises(TypeError, match=rf"a Stream {words}; read it by `async for part in stream`"):
            use(stream)
