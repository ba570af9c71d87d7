"""Signatures as annotations declare them, and the errors of tensors that do not fit."""

import collections.abc
import typing
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import numpy as np
import pytest
from jaxtyping import Float, Float32, Inexact, Int, UInt8

import dyorc
from dyorc.authoring.signature import OutputKind, Signature
from dyorc.core.arrays import inline
from dyorc.core.tensor import DType
from dyorc.errors import DefinitionError, InvalidInputError

Image = Float[np.ndarray, "3 height width"]


def signature_of(function: object) -> Signature:
    return Signature.of("workflow 'f'", function)


def check(function: object, *arrays: np.ndarray) -> None:
    signature_of(function).check_inputs([inline(array) for array in arrays])


def zeros(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


def two_images(a: Image, b: Image, mask: UInt8[np.ndarray, " height"]) -> Float[np.ndarray, ""]: ...


def variadic(x: Float[np.ndarray, "2 ... channels"]) -> Float[np.ndarray, ""]: ...


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((zeros(4, 5, 6), zeros(3, 5, 6)), r"workflow 'f': 'a' has size 4 in dimension 0, expected 3 \(shape \[4, 5, 6\]"),
        ((zeros(3, 5, 6), zeros(3, 7, 6)), r"'b' has size 7 in dimension 1 \('height'\), but 'a' has 5"),
        ((zeros(3, 5, 6), zeros(5, 6)), r"'b' has rank 2 \(shape \[5, 6\]\), expected rank 3 \[3, height, width\]"),
        ((zeros(3, 5, 6, dtype="float64"), zeros(3, 5, 6)), "'a' is FP64, expected FP32"),
    ],
)
def test_the_error_of_a_wrong_tensor_names_it_the_dimension_and_both_sizes(arrays: tuple[np.ndarray, ...], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check(two_images, *arrays, zeros(5, dtype="uint8"))


def test_tensors_that_fit_pass() -> None:
    check(two_images, zeros(3, 5, 6), zeros(3, 5, 6), zeros(5, dtype="uint8"))


@pytest.mark.parametrize("shape", [(2, 7), (2, 1, 7), (2, 1, 1, 7)])
def test_a_variadic_dimension_stands_for_any_number_of_dimensions(shape: tuple[int, ...]) -> None:
    check(variadic, zeros(*shape))


@pytest.mark.parametrize("shape", [(7,), (3, 7)])
def test_dimensions_beside_a_variadic_one_are_checked(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInputError):
        check(variadic, zeros(*shape))


def test_an_error_behind_a_variadic_dimension_counts_dimensions_as_they_came() -> None:
    def f(x: Float[np.ndarray, "2 ... 3"]) -> Float[np.ndarray, ""]: ...

    with pytest.raises(InvalidInputError, match=r"size 4 in dimension 3, expected 3 \(shape \[2, 1, 1, 4\]"):
        check(f, zeros(2, 1, 1, 4))


def test_specs_have_what_the_protocols_metadata_needs() -> None:
    spec = signature_of(two_images).inputs[0]
    assert (spec.dtype, spec.wire_shape, spec.fixed_shape) == (DType.FP32, [3, -1, -1], None)
    assert signature_of(variadic).inputs[0].describe() == "[2, ..., channels]"


def test_a_mark_for_finite_numbers_is_read() -> None:
    def f(x: Annotated[Image, dyorc.Finite], y: Image) -> Image: ...

    assert [spec.is_finite for spec in signature_of(f).inputs] == [True, False]


@dataclass
class Box:
    left: Float[np.ndarray, ""]
    right: Int[np.ndarray, ""]


class Named(TypedDict):
    a: Float[np.ndarray, "2"]
    b: Float[np.ndarray, "3"]


def test_outputs_are_one_tensor_a_tuple_a_dict_or_a_dataclass() -> None:
    def pair() -> tuple[Image, Image]: ...
    def box() -> Box: ...
    def named() -> Named: ...

    outputs = signature_of(pair).outputs
    assert (outputs.kind, outputs.build([1, 2])) == (OutputKind.TUPLE, (1, 2))
    outputs = signature_of(box).outputs
    assert (outputs.names, outputs.build([1, 2])) == (("left", "right"), Box(1, 2))
    outputs = signature_of(named).outputs
    assert outputs.build([1, 2]) == {"a": 1, "b": 2}
    assert outputs.flatten({"b": 2, "a": 1}, "it") == (1, 2)


@pytest.mark.parametrize(
    ("value", "message"),
    [({"a": 1}, r"it returned the fields \['a'\], expected the fields \['a', 'b'\]"), ([1, 2], "it returned a list of 2")],
)
def test_a_value_grouped_in_another_way_is_an_error(value: object, message: str) -> None:
    def named() -> Named: ...

    with pytest.raises(InvalidInputError, match=message):
        signature_of(named).outputs.flatten(value, "it")


def no_return(x: Image): ...
def no_annotation(x) -> Image: ...
def wrong_annotation(x: np.ndarray) -> Image: ...
def star(*x: Image) -> Image: ...
def open_type(x: Inexact[np.ndarray, "2"]) -> Image: ...
def no_tensor_out(x: Image) -> np.ndarray: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_return, "the return annotation is missing; expected jaxtyping tensors or structured values"),
        (no_annotation, "parameter 'x' is not annotated"),
        (wrong_annotation, "parameter 'x' is annotated <class 'numpy.ndarray'>; expected a jaxtyping tensor, or a structured"),
        (star, r"\*x is not supported"),
        (open_type, "'x' is Inexact, which names several types"),
        (no_tensor_out, "output 'output' is annotated <class 'numpy.ndarray'>; expected a jaxtyping tensor"),
    ],
)
def test_an_incomplete_declaration_says_what_is_missing(function: object, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        signature_of(function)


def with_statics(x: Image, size: int, factor: float = 2.0, mode: str = "bilinear") -> Image: ...


def test_arguments_are_sorted_into_tensors_and_parameters() -> None:
    signature = signature_of(with_statics)
    assert signature.bind(("x", 3), {"mode": "nearest"}) == (("x",), (3, 2.0, "nearest"))
    assert signature.bind((), {"factor": 1, "size": 2, "x": "x"}) == (("x",), (2, 1.0, "bilinear"))


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("x",), {}, r"'size' is missing; expected \['x', 'size'\], and optionally \['factor', 'mode'\]$"),
        (("x", 1), {"size": 2}, "'size' was given twice"),
        (
            ("x", 1),
            {"colour": 2},
            r"has no parameter \['colour'\]; expected \['x', 'size'\], and optionally \['factor', 'mode'\]$",
        ),
        (("x", 1, 2, 3, 4), {}, "takes 4 arguments, 5 were given"),
        (("x", 1.5), {}, r"parameter 'size' is float 1\.5, expected int"),
        (("x", True), {}, "parameter 'size' is bool True, expected int"),
    ],
)
def test_errors_name_wrong_arguments(args: tuple[object, ...], kwargs: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        signature_of(with_statics).bind(args, kwargs)


# Programs


def batch_missing(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, " batch"]: ...
def batch_fits(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]: ...
def batch_variadic(x: Float[np.ndarray, "batch ... n"]) -> Float[np.ndarray, " batch"]: ...
def variadic_output(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch ... n"]: ...


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (batch_missing, {}, r"'x' has shape \[4\]; a batched program's tensors start with \"batch\""),
        (batch_fits, {"max_batch_size": 0}, "max_batch_size is 0, expected a whole number of at least 1"),
        (batch_fits, {"colour": 1}, "known options"),
        (batch_fits, {"execution_timeout_s": 0}, "execution_timeout_s is 0, expected more than 0 seconds"),
        (batch_fits, {"batched": False, "pad": dyorc.pad(n=(4,))}, "pad needs batched=True"),
        (batch_fits, {"pad": dyorc.pad(m=(4,))}, "pad names dimension 'm', which no input has"),
        (batch_variadic, {"pad": dyorc.pad(n=(4,))}, "pad names dimension 'n' of 'x', whose rank is not fixed"),
        (variadic_output, {"pad": dyorc.pad(n=(4,))}, "pad names dimension 'n' of 'output', whose rank is not fixed"),
        (batch_fits, {"name": "a b"}, "a name is made of letters"),
    ],
)
def test_a_wrong_program_is_refused_where_it_is_declared(function: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        dyorc.program(**options)(function)


def test_a_programs_signature_is_that_of_one_item() -> None:
    program = dyorc.program(batch_fits)
    assert program.signature.inputs[0].describe() == "[n]"
    assert program.declared.inputs[0].describe() == "[batch, n]"


@dyorc.program(max_batch_size=3)
class TwoWords:
    """A program class: loads its weights later."""

    def __init__(self, weight: float) -> None:
        raise AssertionError("loaded too early")

    def __call__(self, x: Float32[np.ndarray, " batch"]) -> Float32[np.ndarray, " batch"]: ...


def test_a_program_class_makes_programs_and_loads_nothing() -> None:
    program = TwoWords(weight=2.0)
    assert (program.name, program.options.max_batch_size) == ("two_words", 3)
    renamed = program.with_options(name="other", max_batch_size=5)
    assert (renamed.name, renamed.options.max_batch_size, program.options.max_batch_size) == ("other", 5, 3)


def test_batched_cannot_be_changed_afterwards() -> None:
    with pytest.raises(DefinitionError, match="batched cannot be changed"):
        TwoWords(weight=2.0).with_options(batched=False)


def test_calling_a_program_outside_of_a_workflow_says_how_to_try_it() -> None:
    with pytest.raises(RuntimeError, match=r"outside a workflow; run it with dyorc\.run"):
        dyorc.program(batch_fits)(np.zeros(2))


# Padding and batch keys


def keys(pad: object, *shapes: tuple[int, ...], **statics: float) -> object:
    program = dyorc.program(pad=pad)(batch_fits)
    return program.batch_keys.key([inline(zeros(*shape)) for shape in shapes], tuple(statics.values()))


def test_without_padding_the_shape_is_the_key() -> None:
    assert keys(None, (3,)) != keys(None, (4,))
    assert keys(None, (3,)) == keys(None, (3,))


@pytest.mark.parametrize(("size", "bucket"), [(1, 4), (4, 4), (5, 8), (8, 8)])
def test_with_padding_the_smallest_bucket_that_fits_is_the_key(size: int, bucket: int) -> None:
    pad = dyorc.pad(n=(8, 4, 4))
    assert pad.buckets == {"n": (4, 8)}
    assert keys(pad, (size,)) == ((), ((bucket,),))


def test_the_error_names_a_size_above_the_largest_bucket() -> None:
    with pytest.raises(InvalidInputError, match=r"'x' has size 9 in dimension 0 \('n'\), expected at most 8, the largest bucket"):
        keys(dyorc.pad(n=(4, 8)), (9,))


@pytest.mark.parametrize("sizes", [(), (0, 4), (-1,)])
def test_buckets_are_positive(sizes: tuple[int, ...]) -> None:
    with pytest.raises(DefinitionError, match="expected positive sizes"):
        dyorc.pad(n=sizes)


def test_parameters_other_than_tensors_are_part_of_the_key() -> None:
    @dyorc.program
    def scale(x: Float[np.ndarray, "batch 2"], factor: float) -> Float[np.ndarray, "batch 2"]: ...

    tensors = [inline(zeros(2))]
    assert scale.batch_keys.key(tensors, (1.0,)) != scale.batch_keys.key(tensors, (2.0,))


class Scored(TypedDict):
    """One part of a stream, as a dataclass."""

    box: Float[np.ndarray, "4"]
    score: Float[np.ndarray, ""]


def streaming_with(annotation: Any) -> dyorc.Workflow:
    async def f(x):
        yield x

    f.__annotations__ = {"x": Image, "return": annotation}
    return dyorc.workflow(f)


@pytest.mark.parametrize(
    "annotation",
    [
        AsyncIterator[Float[np.ndarray, "4"]],
        AsyncGenerator[Float[np.ndarray, "4"], None],
        collections.abc.AsyncGenerator[Float[np.ndarray, "4"]],
        typing.AsyncIterator[Float[np.ndarray, "4"]],
        typing.AsyncGenerator[Float[np.ndarray, "4"], None],
    ],
    ids=str,
)
def test_the_outputs_of_a_streaming_workflow_are_those_of_one_part(annotation: Any) -> None:
    workflow = streaming_with(annotation)
    assert workflow.is_streaming
    outputs = workflow.signature.outputs
    assert (outputs.kind, outputs.names, outputs.tensors[0].dims[0].size) == (OutputKind.SINGLE, ("output",), 4)


@pytest.mark.parametrize(
    ("part", "kind", "names"),
    [
        (tuple[Float[np.ndarray, "4"], Float[np.ndarray, " n"]], OutputKind.TUPLE, ("output_0", "output_1")),
        (Scored, OutputKind.FIELDS, ("box", "score")),
    ],
    ids=["tuple", "fields"],
)
def test_a_part_may_be_anything_that_a_result_may_be(part: Any, kind: OutputKind, names: tuple[str, ...]) -> None:
    outputs = streaming_with(AsyncIterator[part]).signature.outputs
    assert (outputs.kind, outputs.names) == (kind, names)


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (
            Float[np.ndarray, "4"],
            r"workflow 'f' yields, and its return annotation is .*; expected AsyncIterator\[...\] of a part",
        ),
        (AsyncIterator, "expected AsyncIterator"),
        (list[Float[np.ndarray, "4"]], "expected AsyncIterator"),
        (AsyncGenerator[Float[np.ndarray, "4"], int], "nothing is sent into it"),
        (AsyncIterator[np.ndarray], "expected a jaxtyping tensor"),
        (AsyncIterator[AsyncIterator[Float[np.ndarray, "4"]]], "does not yield"),
    ],
    ids=str,
)
def test_a_function_that_yields_declares_one_part(annotation: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        streaming_with(annotation)


def test_a_plain_generator_is_best_annotated_as_a_plain_iterator() -> None:
    with pytest.raises(DefinitionError, match=r"yields, .*; expected Iterator\[\.\.\.\] of a part"):

        @dyorc.program(batched=False)
        def count(x: Image) -> Image:
            yield x


def test_a_function_that_does_not_yield_declares_no_parts() -> None:
    with pytest.raises(DefinitionError, match="does not yield"):

        @dyorc.workflow
        async def returns(x: Image) -> AsyncIterator[Image]:
            return x


def test_a_plain_workflow_is_not_streaming() -> None:
    @dyorc.workflow
    async def returns(x: Image) -> Image:
        return x

    assert not returns.is_streaming
