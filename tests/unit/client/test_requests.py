"""How values from users become inputs and parameters."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from dyorc.client.operations import merge_inputs
from dyorc.core.tensor import TENSOR_TYPES, DType
from dyorc.errors import InvalidInputError
from dyorc.protocol.api_paths import model_path
from dyorc.protocol.inference_request import Options, PreparedRequest, infer_request
from dyorc.protocol.metadata import ModelMetadata, TensorMetadata

MODEL = ModelMetadata(
    "m",
    tuple(TensorMetadata(dtype.value.lower(), dtype, (-1,)) for dtype in TENSOR_TYPES),
    (TensorMetadata("y", DType.FP32, ()),),
)


PLAIN = Options()


def _sent(given: dict[str, Any], options: Options = PLAIN, **fields: Any) -> tuple[dict[str, Any], bytes]:
    request = infer_request("/x", MODEL, given, options, **fields)
    content = b"".join(request.chunks())
    length = int(dict(request.headers)["inference-header-content-length"])
    return json.loads(content[:length]), content[length:]


@pytest.mark.parametrize(
    ("name", "value", "datatype", "shape", "raw"),
    [
        ("fp32", [1, 2], "FP32", [2], np.array([1, 2], np.float32)),
        ("fp32", 0.5, "FP32", [], np.array(0.5, np.float32)),
        ("fp32", np.array([1.0, 2.0]), "FP64", [2], np.array([1.0, 2.0])),
        ("fp32", np.float64(2), "FP64", [], np.array(2.0)),
        ("fp16", [0.5], "FP16", [1], np.array([0.5], np.float16)),
        ("int64", [[1], [2]], "INT64", [2, 1], np.array([1, 2])),
        ("bool", True, "BOOL", [], np.array(True)),
        ("bf16", torch.tensor([1.0, -2.0], dtype=torch.bfloat16), "BF16", [2], np.array([0x3F80, 0xC000], np.uint16)),
        ("fp32", torch.ones(2, requires_grad=True), "FP32", [2], np.ones(2, np.float32)),
        ("bytes", "äh", "BYTES", [], np.frombuffer(b"\x03\0\0\0\xc3\xa4h", np.uint8)),
        ("bytes", ["a", b"\xff"], "BYTES", [2], np.frombuffer(b"\x01\0\0\0a\x01\0\0\0\xff", np.uint8)),
        ("bytes", np.array(["ab", "c"]), "BYTES", [2], np.frombuffer(b"\x02\0\0\0ab\x01\0\0\0c", np.uint8)),
        ("fp32", [], "FP32", [0], np.empty(0, np.float32)),
    ],
)
def test_values_become_tensors(name: str, value: Any, datatype: str, shape: list[int], raw: Any) -> None:
    head, rest = _sent({name: value})
    assert head["inputs"] == [
        {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": raw.nbytes}}
    ]
    assert rest == raw.tobytes()


def test_a_name_that_is_not_an_input_is_a_parameter() -> None:
    head, _ = _sent({"threshold": 0.5, "label": "x", "deep": True, "count": np.int64(3), "rate": np.array(0.25)})
    assert head["inputs"] == []
    assert head["parameters"] == {
        "threshold": 0.5, "label": "x", "deep": True, "count": 3, "rate": 0.25, "binary_data_output": True,
    }  # fmt: skip


@pytest.mark.parametrize("value", [np.zeros(3), [1.0], None, b"x", object()])
def test_a_value_that_is_neither_names_what_the_model_takes(value: Any) -> None:
    with pytest.raises(
        InvalidInputError, match=r"model 'm' has no input 'imgae', its inputs are .*'fp32'.*cannot be a parameter"
    ):
        _sent({"imgae": value})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "parameter 'rate' of model 'm' is nan, expected a finite number"),
        (np.float32("inf"), "parameter 'rate' of model 'm' is inf"),
        ("\udcff", "the request to 'm' cannot be written as JSON"),
    ],
)
def test_a_parameter_that_json_cannot_carry_is_refused(value: Any, text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        _sent({"rate": value})


@pytest.mark.parametrize(("name", "value"), [("fp32", "text"), ("int64", [0.5]), ("bytes", [3]), ("fp32", np.zeros(1, complex))])
def test_a_value_that_cannot_be_a_tensor_is_refused_before_it_is_sent(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=name if name != "fp32" or value == "text" else "complex128"):
        _sent({name: value})


@pytest.mark.parametrize("value", [{"words": ["é"]}, ["a", "b"], 3, object()])
def test_a_structured_value_that_is_no_text_says_how_it_is_sent(value: Any) -> None:
    model = ModelMetadata("m", (TensorMetadata("options", DType.BYTES, ()),), ())
    with pytest.raises(InvalidInputError, match=r"input 'options' of 'm'.*as JSON text, json\.dumps\(value\)"):
        infer_request("/", model, {"options": value}, Options())


def test_options_become_parameters_of_the_protocol() -> None:
    head, _ = _sent({}, Options(priority=2, explain=True, request_id="r-1", outputs=["y"]), webhook="http://x")
    assert head == {
        "webhook": "http://x",
        "id": "r-1",
        "inputs": [],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        "parameters": {"binary_data_output": True, "priority": 2, "explain": True},
    }


def test_inputs_given_in_both_ways_are_merged() -> None:
    assert merge_inputs({"timeout_s": 1}, {"x": 2}) == {"timeout_s": 1, "x": 2}
    with pytest.raises(InvalidInputError, match="input 'x' was given twice"):
        merge_inputs({"x": 1}, {"x": 2})


def test_names_are_quoted() -> None:
    assert model_path("a/b c?", "1", "infer") == "/v2/models/a%2Fb%20c%3F/versions/1/infer"
    assert model_path("m", None) == "/v2/models/m"


@pytest.mark.parametrize("sizes", [(10,), (300_000,), (10, 300_000, 10), (262_144,), (262_145,), (200_000, 200_000), ()])
def test_large_pieces_are_views_and_small_ones_are_joined(sizes: tuple[int, ...]) -> None:
    arrays = [np.full(size, at, np.uint8) for at, size in enumerate(sizes)]
    request = PreparedRequest("POST", "/", pieces=tuple(array.data for array in arrays))
    chunks = list(request.chunks())
    assert b"".join(chunks) == b"".join(array.tobytes() for array in arrays)
    assert all(0 < len(chunk) <= 262_144 for chunk in chunks)
    assert b"".join(request.chunks()) == b"".join(chunks), "it can be sent again"
    for chunk in chunks:
        if isinstance(chunk, memoryview):
            assert any(np.shares_memory(np.frombuffer(chunk, np.uint8), array) for array in arrays)
    assert any(isinstance(chunk, memoryview) for chunk in chunks) == any(size > 262_144 for size in sizes) or len(sizes) > 1


def test_a_timeout_without_its_unit_is_refused() -> None:
    with pytest.raises(TypeError, match="pass timeout_s"):
        merge_inputs(None, {"x": 1, "timeout": 10})
