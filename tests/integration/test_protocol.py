"""The Open Inference Protocol with its binary tensor extension, there and back."""

from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests import oip
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic, tensors


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server for this module."""
    async with running([tensors.echo, tensors.affine, arithmetic.sums, tensors.next_number]) as found:
        yield found


def _inputs(num: int = 3) -> dict[str, oip.Array]:
    texts = np.empty(num, dtype=object)
    texts[:] = [b"plain", b"\x00\xff\xfe no text", "zwölf €".encode()][:num]
    return {
        "flags": np.array([True, False, True][:num], np.bool_),
        "halves": np.array([1.5, -2.25, 65504][:num], np.float16),
        "brains": np.array([1, -3, 1e30][:num], ml_dtypes.bfloat16),
        "texts": texts,
        "image": np.arange(2 * num, dtype=np.uint8).reshape(2, num),
    }


def _expected(inputs: dict[str, oip.Array]) -> dict[str, oip.Array]:
    reversed_texts = np.empty(len(inputs["texts"]), dtype=object)
    reversed_texts[:] = [text[::-1] for text in inputs["texts"]]
    return {
        "negated": ~inputs["flags"],
        "halved": inputs["halves"] / np.float16(2),
        "doubled": inputs["brains"] + inputs["brains"],
        "reversed": reversed_texts,
        "transposed": inputs["image"].T,
    }


async def _infer(stack: Stack, model: str, body: oip.Body) -> oip.Answer:
    return oip.read(await stack.client.post(f"/v2/models/{model}/infer", content=body.content, headers=body.headers))


def _assert_same(found: oip.Array, expected: oip.Array) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("num", [3, 1, 0])
async def test_every_type_survives_as_binary_data(stack: Stack, num: int) -> None:
    inputs = _inputs(num)
    answer = await _infer(stack, "echo", oip.binary_body(inputs, id="a-7", parameters={"binary_data_output": True}))
    assert answer.head["id"] == "a-7"
    assert (answer.head["model_name"], answer.head["model_version"]) == ("echo", "1")
    expected = _expected(inputs)
    assert list(answer.outputs) == list(expected)
    assert answer.binary == expected.keys()
    for name, array in expected.items():
        _assert_same(answer.outputs[name], array)


async def test_json_and_binary_data_mix_in_both_directions(stack: Stack) -> None:
    inputs = _inputs()
    texts = inputs["texts"]
    texts[1] = b"text"
    body = oip.binary_body(
        {**inputs, "texts": texts[:0]},
        as_json=["flags", "image"],
        outputs=[
            {"name": "transposed", "parameters": {"binary_data": True}},
            {"name": "negated"},
            {"name": "doubled", "parameters": {"binary_data": True}},
            {"name": "reversed", "parameters": {"binary_data": False}},
        ],
    )
    answer = await _infer(stack, "echo", body)
    assert list(answer.outputs) == ["transposed", "negated", "doubled", "reversed"], "in the order asked for"
    assert answer.binary == {"transposed", "doubled"}
    expected = _expected({**inputs, "texts": texts[:0]})
    for name, array in answer.outputs.items():
        _assert_same(array, expected[name])
    assert "id" not in answer.head


async def test_binary_data_output_applies_unless_an_output_says_otherwise(stack: Stack) -> None:
    body = oip.binary_body(
        _inputs(),
        parameters={"binary_data_output": True},
        outputs=[{"name": "negated", "parameters": {"binary_data": False}}, {"name": "halved"}],
    )
    answer = await _infer(stack, "echo", body)
    assert answer.binary == {"halved"}
    assert list(answer.outputs) == ["negated", "halved"]


async def test_an_empty_list_of_outputs_stands_for_all_of_them(stack: Stack) -> None:
    """The same as over gRPC, where an empty list cannot be told from a missing one."""
    body = oip.binary_body(_inputs(), parameters={"binary_data_output": True}, outputs=[])
    assert (await _infer(stack, "echo", body)).outputs.keys() == _expected(_inputs()).keys()


async def test_a_request_may_say_that_it_belongs_to_no_sequence(stack: Stack) -> None:
    parameters = {"sequence_id": 0, "sequence_start": False, "sequence_end": False}
    await _infer(stack, "sums", oip.json_body({"x": np.ones(3, np.float32)}, parameters=parameters))


async def test_types_without_a_json_form_say_how_to_get_them(stack: Stack) -> None:
    body = oip.binary_body(_inputs())
    answer = await stack.client.post("/v2/models/echo/infer", content=body.content, headers=body.headers)
    assert answer.status_code == 400
    assert oip.error_text(answer) == "output 'halved' is FP16, which JSON cannot carry; ask for binary data"
    body = oip.binary_body(_inputs(), as_json=["halves"])
    answer = await stack.client.post("/v2/models/echo/infer", content=body.content, headers=body.headers)
    assert answer.status_code == 400
    assert oip.error_text(answer) == "input 'halves' is FP16, which JSON cannot carry; send it as binary data"


@pytest.mark.parametrize("is_binary", [True, False])
async def test_an_output_may_be_asked_for_as_its_highest_classes(stack: Stack, is_binary: bool) -> None:
    asked = {"halved": 2, "transposed": 9, "doubled": 0}
    outputs = [
        {"name": name, "parameters": {"classification": num, "binary_data": is_binary or not num}} for name, num in asked.items()
    ]
    answer = await _infer(stack, "echo", oip.binary_body(_inputs(), outputs=outputs))
    assert answer.binary == (asked.keys() if is_binary else {"doubled"})
    assert [(one["datatype"], one["shape"]) for one in answer.head["outputs"]] == [("BYTES", [2]), ("BYTES", [6]), ("BF16", [3])]
    assert answer.outputs["halved"].tolist() == [b"3.275e+04:2", b"0.75:0"]
    assert answer.outputs["transposed"].tolist() == [b"5:5", b"4:3", b"3:1", b"2:4", b"1:2", b"0:0"]
    _assert_same(answer.outputs["doubled"], _expected(_inputs())["doubled"])


async def test_the_error_of_bytes_that_are_not_text_says_how_to_get_them(stack: Stack) -> None:
    body = oip.binary_body(_inputs(), outputs=[{"name": "reversed"}])
    answer = await stack.client.post("/v2/models/echo/infer", content=body.content, headers=body.headers)
    assert answer.status_code == 400
    assert oip.error_text(answer) == (
        "output 'reversed' holds bytes that are not UTF-8; declare it `bytes`, or ask POST /v2/models/NAME/infer for binary data"
    )


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("num", [0, 1, 5000])
async def test_tensors_of_any_size_pass(stack: Stack, as_json: bool, num: int) -> None:
    x = np.ones(num, np.float32)
    answer = await _infer(stack, "sums", oip.json_body({"x": x}) if as_json else oip.binary_body({"x": x}))
    _assert_same(answer.outputs["total"], np.array(num, np.float32))
    _assert_same(answer.outputs["num_calls"], np.array(1, np.int64))


async def test_nested_and_flat_json_data_are_the_same(stack: Stack) -> None:
    body = oip.json_body({"x": np.arange(4, dtype=np.float32), "index": np.array([1, 2])}).content
    nested = body.replace(b"[0.0, 1.0, 2.0, 3.0]", b"[[0, 1], [2.0, 3e0]]")
    assert nested != body
    for content in (body, nested):
        answer = await _infer(stack, "affine", oip.Body(content, {}))
        _assert_same(answer.outputs["output"], np.array([1, 2], np.float32))


@pytest.mark.parametrize("numbers", [[0, 2**64 - 1], [2**63, 1], [0, 1]])
async def test_json_carries_every_uint64(stack: Stack, numbers: list[int]) -> None:
    body = {"inputs": [{"name": "x", "shape": [2], "datatype": "UINT64", "data": numbers}]}
    response = await stack.client.post("/v2/models/next_number/infer", json=body)
    assert response.json()["outputs"][0]["data"] == [(number + 1) % 2**64 for number in numbers]


async def test_a_program_is_a_model_of_its_own_and_versions_may_be_named(stack: Stack) -> None:
    body = oip.json_body({"x": np.arange(4, dtype=np.float32), "index": np.array([1, 2])}, parameters={"factor": 3.0})
    response = await stack.client.post("/v2/models/affine_program/versions/1/infer", content=body.content)
    _assert_same(oip.read(response).outputs["output"], np.array([3, 6], np.float32))


async def test_metadata_describes_inputs_and_outputs(stack: Stack) -> None:
    async def get(path: str) -> Any:
        response = await stack.client.get(path)
        assert response.status_code == 200
        return response.json()

    server = await get("/v2")
    assert {"binary_tensor_data", "classification", "model_configuration", "statistics", "generate"} <= set(server["extensions"])
    assert "system_shared_memory" not in server["extensions"], "nobody allowed it"
    assert (server["name"], server["version"]) == ("dyorc", version("dyorc-core"))
    assert await get("/v2/health/live") == {"live": True}
    assert await get("/v2/health/ready") == {"ready": True}
    assert await get("/v2/models/affine/ready") == {"name": "affine", "ready": True}
    assert await get("/v2/models/affine") == {
        "name": "affine",
        "versions": ["1"],
        "platform": "dyorc_workflow",
        "properties": {"repeatable": "true", "parameters": '[{"name":"factor","type":"float","default":1.0}]'},
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [4]}, {"name": "index", "datatype": "INT64", "shape": [2]}],
        "outputs": [{"name": "output", "datatype": "FP32", "shape": [2]}],
    }
    assert [one["datatype"] for one in (await get("/v2/models/echo/versions/1"))["outputs"]] == [
        "BOOL",
        "FP16",
        "BF16",
        "BYTES",
        "UINT8",
    ]
