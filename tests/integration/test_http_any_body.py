"""Any body at all: valid ones come back as they were sent, however they were packed; damaged ones never crash the server."""

import gzip
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests import oip
from tests.integration.stack import Stack, running
from tests.workflows.mirrors import mirrors

_KINDS: dict[str, Any] = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "INT8": np.int8,
    "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "FP16": np.float16, "BF16": np.uint16, "FP32": np.float32,
    "FP64": np.float64, "BYTES": object,
}  # fmt: skip
_NO_JSON = {"FP16", "BF16"}
_PACK: dict[str, Any] = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}
_ACTIONS = ["infer", "infer_stream", "generate", "generate_stream"]
_STATUSES = {200, 400, 404, 413}
_FEW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server for all bodies: none of them may harm it."""
    async with running(list(mirrors.values())) as found:
        yield found


@st.composite
def arrays(draw: st.DrawFn, datatype: str) -> oip.Array:
    """Draws an array of a type, of any shape, also without elements or dimensions."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    if datatype == "BYTES":
        found = np.empty(shape, dtype=object)
        flat = found.reshape(-1)
        for at in range(flat.size):
            flat[at] = draw(st.text(max_size=5)).encode()
        return flat.reshape(shape)
    elements = {"allow_nan": False, "allow_infinity": False} if datatype.startswith("FP") else {}
    found = draw(hnp.arrays(_KINDS[datatype], shape, elements=elements))
    return found.view(ml_dtypes.bfloat16) if datatype == "BF16" else found


def _tensor(datatype: str, array: oip.Array, is_binary: bool) -> tuple[dict[str, Any], bytes]:
    head: dict[str, Any] = {"name": "x", "shape": list(array.shape), "datatype": datatype}
    raw = oip.raw_bytes(array)
    if is_binary:
        return head | {"parameters": {"binary_data_size": len(raw)}}, raw
    data = array.tolist() if array.ndim else [array.item()]
    return head | {"data": _as_texts(data) if datatype == "BYTES" else data}, b""


def _as_texts(data: Any) -> Any:
    return [_as_texts(one) for one in data] if isinstance(data, list) else data.decode()


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, oip.Array, bytes, dict[str, str], bool]:
    """Draws a type, an array, its request's body and headers, and whether the answer has to come as raw bytes."""
    datatype = draw(st.sampled_from(sorted(_KINDS)))
    array = draw(arrays(datatype))
    is_binary = datatype in _NO_JSON or draw(st.booleans())
    wants_binary = datatype in _NO_JSON or draw(st.booleans())
    tensor, raw = _tensor(datatype, array, is_binary)
    content: dict[str, Any] = {"inputs": [tensor], "parameters": {"binary_data_output": wants_binary}}
    if draw(st.booleans()):
        content["id"] = draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5))
    head = json.dumps(content).encode()
    packing = draw(st.sampled_from(sorted(_PACK)))
    headers = {"Content-Encoding": packing, "Accept-Encoding": draw(st.sampled_from(["gzip", "deflate", "identity", "*;q=0.1"]))}
    if is_binary:
        headers[oip.LENGTH_HEADER] = str(len(head))
    return datatype, array, _PACK[packing](head + raw), headers, wants_binary


def _read(response: httpx.Response, datatype: str) -> bytes:
    """Returns the output's bytes as the binary extension would carry them."""
    body = response.content
    length = int(response.headers.get(oip.LENGTH_HEADER, len(body)))
    (output,) = json.loads(body[:length])["outputs"]
    assert output["datatype"] == datatype
    if "data" not in output:
        return body[length:]
    if datatype == "BYTES":
        found = np.empty(len(output["data"]), dtype=object)
        found[:] = [text.encode() for text in output["data"]]
        return oip.raw_bytes(found)
    return np.array(output["data"], _KINDS[datatype]).tobytes()


@seed(0)
@_FEW
@given(case=bodies())
async def test_inputs_come_back_unchanged(stack: Stack, case: tuple[str, oip.Array, bytes, dict[str, str], bool]) -> None:
    datatype, array, body, headers, is_binary = case
    response = await stack.client.post(f"/v2/models/mirror_{datatype}/infer", content=body, headers=headers)
    assert response.status_code == 200, response.text
    assert (oip.LENGTH_HEADER.lower() in response.headers) == is_binary
    assert _read(response, datatype) == oip.raw_bytes(array)


@st.composite
def mutilated(draw: st.DrawFn) -> tuple[str, bytes, dict[str, str]]:
    """Draws a path, and a body and headers that were valid before something happened to them."""
    datatype, _, body, headers, _ = draw(bodies())
    path = f"/v2/models/mirror_{draw(st.sampled_from([datatype, 'FP32', 'BYTES']))}/{draw(st.sampled_from(_ACTIONS))}"
    content = bytearray(body)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(content)))
        match draw(st.integers(0, 3)):
            case 0:
                content[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                del content[at:]
            case 2:
                content[at:at] = draw(st.binary(max_size=20))
            case _:
                content[at : at + draw(st.integers(1, 9))] = b""
    if draw(st.booleans()):
        headers[oip.LENGTH_HEADER] = draw(
            st.one_of(st.integers(0, len(content) + 3).map(str), st.text("0123456789+-. ex", max_size=25))
        )
    if draw(st.booleans()):
        headers["Content-Encoding"] = draw(st.sampled_from(["gzip", "deflate", "identity", "br", "gzip, gzip", ""]))
    if draw(st.booleans()):
        headers["Request-Timeout"] = draw(st.sampled_from(["30", "1.5", "-1", "x", ""]))
    if draw(st.booleans()):
        headers["Accept"] = draw(st.sampled_from(["application/vnd.dyorc.stream", "*/*", "text/html"]))
    return path, bytes(content), {name: value.strip() for name, value in headers.items()}


@seed(0)
@_FEW
@given(case=mutilated())
async def test_nothing_crashes_the_server(stack: Stack, case: tuple[str, bytes, dict[str, str]]) -> None:
    path, body, headers = case
    response = await stack.client.post(path, content=body, headers=headers)
    assert response.status_code in _STATUSES, (response.status_code, response.text)
    if response.status_code != 200:
        oip.error_text(response)


@seed(0)
@_FEW
@given(path=st.text("/v2models.%_-?#é x0123", max_size=30), body=st.binary(max_size=30), action=st.sampled_from(_ACTIONS))
async def test_every_path_has_an_answer(stack: Stack, path: str, body: bytes, action: str) -> None:
    response = await stack.client.post(f"/v2/models/{path}/{action}", content=body)
    assert response.status_code in {400, 404, 405}
    oip.error_text(response)
