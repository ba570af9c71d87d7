"""Bodies of requests for inference: the Open Inference Protocol's, those of `/generate` and of `/run/NAME`.

An input is a line that names the model, with what headers and the query say, and the body behind it.
"""

import json
import re
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP
from functools import cache
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float32, Int64

import dyorc
from dyorc.core.arrays import Array, same_array
from dyorc.errors import DyOrcError
from dyorc.gateway.catalog import Catalog, Model
from dyorc.gateway.client_memory import ClientMemory
from dyorc.gateway.codec.form_fields import read_form
from dyorc.gateway.codec.generate_json import decode_generate, encode_generate
from dyorc.gateway.codec.inference_json import decode_request
from dyorc.gateway.codec.json_outputs import encode_response
from dyorc.gateway.codec.run_values import RunBody, decode_run, encode_run
from dyorc.gateway.infer_request import InferRequest
from dyorc.gateway.request_memory import RequestMemory
from dyorc.models.registry import ModelRegistry
from dyorc.protocol.inference_answer import parse_answer
from tests.fake_backend import NoRoom
from tests.fuzz.contract import FuzzTarget, InputForm, check
from tests.workflows import every_type, values


class Tensors(TypedDict):
    """What `echo` takes and returns."""

    x: Float32[np.ndarray, "rows 2"]
    n: Int64[np.ndarray, "..."]
    texts: dyorc.Bytes[np.ndarray, " number"]


@dyorc.program(batched=False)
def echo(
    x: Float32[np.ndarray, "rows 2"],
    n: Int64[np.ndarray, "..."],
    texts: dyorc.Bytes[np.ndarray, " number"],
) -> Tensors:
    """Returns its inputs."""
    return {"x": x, "n": n, "texts": texts}


@dyorc.workflow
async def repeat(
    x: Float32[np.ndarray, "rows 2"],
    n: Int64[np.ndarray, "..."],
    texts: dyorc.Bytes[np.ndarray, " number"],
    scale: float = 1.0,
    most: int = 3,
    is_loud: bool = False,
    label: str = "",
) -> Tensors:
    """Returns its inputs, and takes parameters of every type."""
    outputs = echo(x, n, texts)
    return {"x": outputs["x"], "n": outputs["n"], "texts": outputs["texts"]}


@cache
def models() -> Mapping[str, Model]:
    """Returns models that take tensors of every type, parameters, structured values and files."""
    flows = (repeat, values.judge, values.thumbnail, values.describe, values.parcel)
    return dict(Catalog(ModelRegistry.of([*flows, *every_type.same.values()]).offers).models)


def no_memory() -> RequestMemory:
    """Returns the memory of a request, for requests that need none."""
    tensors: Any = NoRoom()
    return RequestMemory(tensors, ClientMemory(is_allowed=False), max_bytes=2**20)


def _model_and_rest(data: bytes) -> tuple[Model, str, bytes]:
    """Returns the model of an input, what its first line says behind it, and the body."""
    line, _, body = data.partition(b"\n")
    name, _, rest = line.decode("latin-1").partition(" ")
    model = models().get(name)
    if model is None:
        raise UnnamedModelError
    return model, rest, body


class UnnamedModelError(Exception):
    """The input names no model."""


# The Open Inference Protocol


def _read_inference(data: bytes) -> None:
    model, rest, body = _model_and_rest(data)
    json_bytes = min(int(rest), 2**40) if rest.isascii() and rest.isdigit() and len(rest) < 18 else None
    with no_memory() as memory:
        request = decode_request(body, json_bytes, model, memory)
        _check_against_json(request, model, body, len(body) if json_bytes is None else json_bytes)
        if model.name == "repeat" or model.is_program:
            parts, length = encode_response(model, request.request_id, request.outputs, request.arrays)
            content = b"".join(parts)
            if not any(output.num_classes for output in request.outputs):
                answer = parse_answer(memoryview(content), len(content) if length is None else length)
                _check_echo(request, model, answer.outputs)


def _check_echo(request: InferRequest, model: Model, outputs: Mapping[str, Array]) -> None:
    """Checks that a model that returns its inputs does so. JSON has no NaN."""
    for output in request.outputs:
        before, after = request.arrays[output.at], outputs[model.signature.outputs.names[output.at]]
        is_equal = (
            same_array(before, after)
            if output.is_binary or before.dtype.kind != "f"
            else bool(np.array_equal(np.where(np.isfinite(before), before, np.nan), after, equal_nan=True))
        )
        check(is_equal, f"{before!r} came back as {after!r}")


def _check_against_json(request: InferRequest, model: Model, body: bytes, json_bytes: int) -> None:
    """Checks numbers and texts in JSON against Python's own reader."""
    if not json_bytes:
        return
    for tensor in json.loads(body[:json_bytes])["inputs"]:
        if "data" not in tensor:
            continue
        array = request.arrays[[spec.name for spec in model.signature.inputs].index(tensor["name"])]
        flat = list(_flat(tensor["data"]))
        if array.dtype == object:
            expected = [text.encode() for text in flat]
        else:
            with np.errstate(over="ignore"):
                expected = [np.float64(number).astype(array.dtype) if array.dtype.kind == "f" else number for number in flat]
        check(array.reshape(-1).tolist() == list(map(_plain, expected)), f"{flat!r:.200} was read as {array!r:.200}")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _flat(value: Any) -> Any:
    if isinstance(value, list):
        for each in value:
            yield from _flat(each)
    else:
        yield value


_INFERENCE = {
    "inputs": [
        {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2.5, -3e4, 100000000000000000000]},
        {"name": "n", "shape": [3], "datatype": "INT64", "data": [[1, 9223372036854775807, -2]]},
        {"name": "texts", "shape": [2], "datatype": "BYTES", "data": ["a", "ü"]},
    ],
    "id": "1",
    "parameters": {"scale": 2.0, "most": 4, "is_loud": True, "label": "l", "timeout": 1000, "priority": 3},
    "outputs": [
        {"name": "x", "parameters": {"binary_data": True}}, {"name": "texts"}, {"name": "n", "parameters": {"classification": 2}},
    ],
}  # fmt: skip
_BINARY = {
    "inputs": [
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}},
        {"name": "n", "shape": [], "datatype": "INT64", "parameters": {"binary_data_size": 8}},
        {"name": "texts", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}},
    ],
    "parameters": {"binary_data_output": True},
}


def _with_length(model: str, head: Any, rest: bytes = b"") -> bytes:
    text = json.dumps(head).encode()
    return b"%b %d\n%b%b" % (model.encode(), len(text), text, rest)


def _one(datatype: str, data: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "shape": [2], "datatype": datatype, "data": data}]}


_WORDS = (
    b"binary_data_size", b"shared_memory_region", b"shared_memory_byte_size", b"shared_memory_offset", b"classification",
    b"explain",
    b"sequence_id", b"1e400", b"-0", b"1E5", b"\\ud800", b"\\u0000", b"NaN", b"Infinity", b"1.0", b"true", b"null", b'{"x":',
    b"[1,[2]]",
)  # fmt: skip


def build_inference() -> FuzzTarget:
    """Returns the target for bodies of the Open Inference Protocol."""
    ones = {
        "BOOL": [True, False],
        "BYTES": ["", "a"],
        "FP64": [1, 0.5],
        "UINT64": [1, 2**64 - 1],
        "INT8": [-128, 127],
        "UINT8": [0, 255],
    }
    return FuzzTarget(
        name="inference_bodies",
        read=_read_inference,
        errors=(DyOrcError, UnnamedModelError),
        seeds=(
            b"repeat\n" + json.dumps(_INFERENCE).encode(),
            _with_length("repeat", _BINARY, b"\0" * 16 + b"\1\0\0\0x"),
            *(f"same_{kind.lower()}\n{json.dumps(_one(kind, data))}".encode() for kind, data in ones.items()),
            b"same_bf16 0\n" + bytes(4),
        ),
        form=InputForm.JSON,
        words=_WORDS,
    )


# /generate


def _read_generate(data: bytes) -> None:
    model, _, body = _model_and_rest(data)
    with no_memory() as memory:
        request = decode_generate(body, model, memory)
        if model.name == "repeat" or model.is_program:
            json.loads(b"".join(encode_generate(model, request, request.arrays)))


def build_generate() -> FuzzTarget:
    """Returns the target for bodies of `/generate`."""
    fields = {"x": [[1, 2.5]], "n": 3, "texts": ["a", "b"], "parameters": {"scale": 0.5, "timeout": 10}, "id": "1", "label": "l"}
    return FuzzTarget(
        name="generate_bodies",
        read=_read_generate,
        errors=(DyOrcError, UnnamedModelError),
        seeds=(
            b"repeat\n" + json.dumps(fields).encode(),
            b'same_bytes\n{"x": "text"}',
            b'same_fp64\n{"x": [[1], [2]]}',
            b"repeat\n",
        ),
        form=InputForm.JSON,
        words=_WORDS,
    )


# /run/NAME


def _read_run(data: bytes) -> None:
    model, rest, body = _model_and_rest(data)
    query, _, content_type = rest.partition(" ")
    if content_type.startswith("multipart/form-data"):
        _check_form(body, content_type)
    with no_memory() as memory:
        request = decode_run(RunBody(body, content_type, query.removeprefix("?")), model, memory)
        if model.name == "repeat" or model.is_program:
            encode_run(model, request.arrays)


def _check_form(body: bytes, content_type: str) -> None:
    """Checks a form against Python's reader of mail, which also ends lines at a single CR or LF, wants nothing behind the last
    boundary, and ends a part that has no body at the boundary, where forms need a line more."""
    fields = {name: field.data for name, field in read_form(body, content_type).items()}
    if re.search(rb"\r(?!\n)|(?<!\r)\n|--cut--[^\r]|\r\n\r\n--cut", body) or not body.startswith(b"--"):
        return
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1")
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    if message.defects or not message.is_multipart():
        return
    parts = list(message.iter_parts())
    if any(part.defects or len(part.get_all("Content-Disposition", [])) != 1 for part in parts):
        return
    contents = [part.get_payload(decode=False) for part in parts]
    if all(isinstance(content, str) and content.isascii() for content in contents):
        expected = [content.encode() for content in contents]
        check(list(fields.values()) == expected, f"the form's fields are {fields}, expected {expected}")


_FORM = (
    b'--cut\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\nsome\r\n'
    b'--cut\r\nContent-Disposition: form-data; name="factor"\r\n\r\n1.5\r\n--cut--\r\n'
)


def build_run() -> FuzzTarget:
    """Returns the target for bodies of `/run/NAME`."""
    fields = {"x": [[1, 2]], "n": [1], "texts": ["a"], "scale": 1.5, "most": 2.0, "is_loud": True, "label": "l"}
    raw = {"x": {"datatype": "FP32", "shape": [1, 2], "base64": "AACAPwAAAEA="}, "n": 1, "texts": []}
    return FuzzTarget(
        name="run_bodies",
        read=_read_run,
        errors=(DyOrcError, UnnamedModelError),
        seeds=(
            b"repeat ? application/json\n" + json.dumps(fields).encode(),
            b"repeat ?label=a%20b&most=3 \n" + json.dumps(raw).encode(),
            b'judge ? application/json\n{"text": "an invoice", "options": {"lower": false, "most": 3}}',
            b'judge ? application/x-www-form-urlencoded\ntext=a%FC&options={"most":1}',
            b"judge ? text/plain\nsome text",
            b"parcel ?factor=2 application/octet-stream\n\x89PNG",
            b'parcel ? application/json\n{"file": "data:text/plain;base64,YQ==", "factor": 1}',
            b"parcel ? multipart/form-data; boundary=cut\n" + _FORM,
            b"thumbnail ?side=2 image/png\n\x89PNG\r\n\x1a\n",
            b"describe ? multipart/form-data; boundary=cut\n" + _FORM.replace(b'"file"', b'"image"').replace(b'"factor"',
            b'"note"'),
        ),
        form=InputForm.JSON,
        words=(
            *_WORDS, b"--cut\r\n", b"--cut--", b"\r\n\r\n", b"boundary=", b"; filename*=utf-8''a", b'name="',
            b"Content-Disposition: ",
            b"%00", b"%zz", b"+", b"&", b"base64,", b"Content-Transfer-Encoding: base64\r\n", b"multipart/form-data",
            b'boundary="cut"',
        ),
    )  # fmt: skip
