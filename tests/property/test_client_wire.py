"""The client writes and reads the protocol, compared with an encoder and decoder that share no code with it."""

import json
import math
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dyorc.core.arrays import same_array
from dyorc.core.tensor import DType
from dyorc.errors import TransportError
from dyorc.protocol.header_names import JSON_LENGTH
from dyorc.protocol.inference_answer import parse_answer
from dyorc.protocol.inference_request import Options, PreparedRequest, infer_request
from dyorc.protocol.metadata import ModelMetadata, TensorMetadata
from tests import oip
from tests.scripted_server import binary_answer

kinds = st.sampled_from([*sorted(oip.NUMPY), "BYTES"])
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@st.composite
def arrays(draw: st.DrawFn) -> oip.Array:
    """Draws any bits at all, of any type and shape."""
    kind, shape = draw(kinds), draw(shapes)
    if kind == "BYTES":
        return draw(hnp.arrays(object, shape, elements=st.binary(max_size=6), fill=st.nothing()))
    if kind == "BOOL":
        return draw(hnp.arrays(np.bool_, shape))
    dtype = np.dtype(oip.NUMPY[kind])
    return draw(hnp.arrays(np.dtype(f"u{dtype.itemsize}"), shape).map(lambda array: array.view(dtype)))


groups = st.dictionaries(st.text(max_size=4), arrays(), max_size=4)


def _metadata(inputs: dict[str, oip.Array]) -> ModelMetadata:
    tensors = tuple(TensorMetadata(name, DType(oip.datatype_of(array)), array.shape) for name, array in inputs.items())
    return ModelMetadata("m", tensors, ())


def _body(request: PreparedRequest) -> tuple[dict[str, Any], bytes]:
    content = b"".join(request.chunks())
    assert len(content) == request.num_bytes
    length = int(dict(request.headers)[JSON_LENGTH])
    return json.loads(content[:length]), content[length:]


@given(groups)
def test_requests_are_those_of_the_protocol(inputs: dict[str, oip.Array]) -> None:
    head, rest = _body(infer_request("/x", _metadata(inputs), inputs, Options()))
    expected = [oip.binary_tensor(name, array) for name, array in inputs.items()]
    assert head["inputs"] == [one for one, _ in expected]
    assert head["parameters"] == {"binary_data_output": True}
    assert rest == b"".join(raw for _, raw in expected)


@given(arrays(), st.booleans())
def test_strided_arrays_and_those_of_another_byte_order_are_sent_like_others(array: oip.Array, is_swapped: bool) -> None:
    found = np.asarray(array, order="F")
    if is_swapped and array.dtype.kind not in "OV" and array.dtype != ml_dtypes.bfloat16:
        found = array.astype(array.dtype.newbyteorder(">"))
    if found.ndim:
        found = found[::-1]
        array = array[::-1]
    assert _body(infer_request("/x", _metadata({"a": array}), {"a": found}, Options()))[1] == oip.raw_bytes(array)


@given(groups, st.integers(0, 15))
def test_answers_come_back_to_the_bit_and_without_a_copy(outputs: dict[str, oip.Array], num_spaces: int) -> None:
    head, rest = binary_answer(outputs, id="7", parameters={"explain": []})
    head += b" " * num_spaces
    content = bytearray(head + rest)
    answer = parse_answer(memoryview(content), len(head))
    assert list(answer.outputs) == list(outputs)
    assert (answer.model_name, answer.model_version, answer.request_id) == ("m", "1", "7")
    for name, array in outputs.items():
        assert same_array(answer.outputs[name], array), name
        if array.size and array.dtype != object:
            assert np.shares_memory(answer.outputs[name], np.frombuffer(content, np.uint8))
            assert answer.outputs[name].flags.writeable
    assert answer.value is (next(iter(answer.outputs.values())) if len(outputs) == 1 else answer.outputs)


@given(st.data(), st.booleans())
def test_answers_in_json_are_read_too(data: st.DataObject, is_flat: bool) -> None:
    kind = data.draw(st.sampled_from(["BOOL", "UINT8", "INT32", "INT64", "FP32", "FP64", "BYTES"]))
    shape = data.draw(shapes.filter(lambda shape: 0 not in shape or len(shape) == 1))
    if kind == "BYTES":
        array = data.draw(hnp.arrays(object, shape, elements=st.text(max_size=4).map(str.encode), fill=st.nothing()))
        listed = np.vectorize(bytes.decode, otypes=[object])(array) if array.size else array
    else:
        array = listed = data.draw(hnp.arrays(oip.NUMPY[kind], shape))
    values = listed.reshape(-1).tolist() if is_flat or not shape else listed.tolist()
    values = _without_nan(values)
    content = json.dumps({"outputs": [{"name": "a", "datatype": kind, "shape": list(shape), "data": values}]}).encode()
    found = parse_answer(memoryview(content), len(content)).outputs["a"]
    if kind in ("FP32", "FP64"):
        array = np.where(np.isfinite(array), array, np.nan)
        np.testing.assert_array_equal(found, array)
    else:
        assert same_array(found, array)


def _without_nan(values: Any) -> Any:
    if isinstance(values, list):
        return [_without_nan(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


@given(groups, st.data())
def test_answers_that_were_changed_are_read_or_refused(outputs: dict[str, oip.Array], data: st.DataObject) -> None:
    head, rest = binary_answer(outputs)
    content = bytearray(head + rest)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(1, len(content))) :]
    with suppress(TransportError):
        parse_answer(memoryview(content), data.draw(st.integers(-1, len(content) + 1)))


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"shape": [-1]}, "has a shape of 1 sizes"),
        ({"shape": [1] * 65}, "has a shape of 65 sizes"),
        ({"shape": [3]}, "output 'a' has 8 bytes, FP32[3] has 12"),
        ({"shape": [2**48, 2**48, 0], "parameters": {"binary_data_size": 0}}, "cannot have the shape"),
        ({"parameters": {"binary_data_size": 9}}, "says it has 9 bytes, 8 are left"),
        ({"parameters": {"binary_data_size": True}}, "says it has True bytes"),
        ({"parameters": {"binary_data_size": 4}, "shape": [1]}, "has 4 bytes and 0 names too many"),
        ({"parameters": {}}, "neither data nor binary_data_size"),
        ({"parameters": {}, "data": [1, [2]]}, "not an evenly nested list of FP32"),
        ({"parameters": {}, "data": ["x", "y"]}, "not an evenly nested list of FP32"),
        ({"parameters": {}, "data": [1, 2], "datatype": "BYTES"}, "not an evenly nested list of BYTES"),
        ({"parameters": {}, "data": [300, 1], "datatype": "UINT8"}, "not an evenly nested list of UINT8"),
        ({"parameters": {}, "data": [1]}, "has 1 elements"),
        ({"datatype": "FP8"}, "Invalid enum value 'FP8'"),
        ({"datatype": "BYTES", "parameters": {"binary_data_size": 8}}, "output 'a'"),
    ],
)
def test_errors_say_what_is_wrong_with_an_answer(output: dict[str, Any], text: str) -> None:
    plain = {"name": "a", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}
    head = json.dumps({"outputs": [plain | output]}).encode()
    rest = b"" if output.get("parameters") == {} or output.get("shape") == [2**48, 2**48, 0] else bytes(range(1, 9))
    with pytest.raises(TransportError) as found:
        parse_answer(memoryview(head + rest), len(head))
    assert text in str(found.value)


def test_two_outputs_of_one_name_are_refused() -> None:
    one = {"name": "a", "datatype": "FP32", "shape": [0], "data": []}
    content = json.dumps({"outputs": [one, one]}).encode()
    with pytest.raises(TransportError, match="1 names too many"):
        parse_answer(memoryview(content), len(content))
