"""A client's side of the Open Inference Protocol, written from its specification alone: it shares no code with the server."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

LENGTH_HEADER = "Inference-Header-Content-Length"

NUMPY: dict[str, Any] = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "BF16": ml_dtypes.bfloat16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip
_NAMES = {np.dtype(kind): name for name, kind in NUMPY.items()}


def datatype_of(array: Array) -> str:
    """Returns the protocol's name of an array's type."""
    return "BYTES" if array.dtype == object else _NAMES[array.dtype]


def json_tensor(name: str, array: Array) -> dict[str, Any]:
    """Returns an input as JSON."""
    return {"name": name, "shape": list(array.shape), "datatype": datatype_of(array), "data": np.atleast_1d(array).tolist()}


def raw_bytes(array: Array) -> bytes:
    """Returns an array as the binary extension carries it."""
    if array.dtype == object:
        return b"".join(struct.pack("<I", len(item)) + item for item in array.reshape(-1).tolist())
    return array.tobytes()


def binary_tensor(name: str, array: Array) -> tuple[dict[str, Any], bytes]:
    """Returns an input's header and its bytes."""
    raw = raw_bytes(array)
    header = {
        "name": name,
        "shape": list(array.shape),
        "datatype": datatype_of(array),
        "parameters": {"binary_data_size": len(raw)},
    }
    return header, raw


@dataclass(frozen=True)
class Body:
    """A request's body with its headers."""

    content: bytes
    headers: Mapping[str, str]


def json_body(inputs: Mapping[str, Array], **fields: Any) -> Body:
    """Returns a request without binary data; `fields` are id, parameters, outputs."""
    content = {"inputs": [json_tensor(name, array) for name, array in inputs.items()], **fields}
    return Body(json.dumps(content).encode(), {"Content-Type": "application/json"})


def binary_body(inputs: Mapping[str, Array], *, as_json: Sequence[str] = (), **fields: Any) -> Body:
    """Returns a request with binary data, except of the inputs named in `as_json`."""
    headers: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for name, array in inputs.items():
        if name in as_json:
            headers.append(json_tensor(name, array))
            continue
        header, raw = binary_tensor(name, array)
        headers.append(header)
        parts.append(raw)
    head = json.dumps({"inputs": headers, **fields}).encode()
    return Body(head + b"".join(parts), {LENGTH_HEADER: str(len(head))})


@dataclass(frozen=True)
class Answer:
    """A response that was read: its JSON without data, and its outputs in the order in which they came."""

    head: dict[str, Any]
    outputs: dict[str, Array]
    binary: frozenset[str]


def read(response: httpx.Response) -> Answer:
    """Reads a response.

    Raises:
        AssertionError: If it is not an answer of the protocol.
    """
    assert response.status_code == 200, (response.status_code, response.text[:2000])
    body = response.content
    length = int(response.headers.get(LENGTH_HEADER, len(body)))
    head = json.loads(body[:length])
    outputs: dict[str, Array] = {}
    binary: set[str] = set()
    at = length
    for output in head["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            outputs[output["name"]] = _from_json(output)
            continue
        outputs[output["name"]] = array_of(output["datatype"], output["shape"], body[at : at + size])
        binary.add(output["name"])
        at += size
    assert at == len(body), f"{len(body) - at} bytes are left over"
    assert bool(binary) == (response.headers["content-type"] == "application/octet-stream")
    return Answer(head, outputs, frozenset(binary))


def frames(body: bytes) -> list[tuple[dict[str, Any], bytes]]:
    """Returns each frame of a stream: its JSON, and what follows it."""
    found: list[tuple[dict[str, Any], bytes]] = []
    at = 0
    while at < len(body):
        json_bytes, rest_bytes = struct.unpack_from("<II", body, at)
        at += 8 + json_bytes + rest_bytes
        found.append((json.loads(body[at - json_bytes - rest_bytes : at - rest_bytes]), body[at - rest_bytes : at]))
    assert at == len(body)
    return found


def error_text(response: httpx.Response) -> str:
    """Returns the text of an error, which must be a JSON object of the one form."""
    assert response.headers["content-type"].startswith("application/json"), response.headers
    content = response.json()
    assert set(content) - {"trace_id"} == {"error", "code", "retryable", "request_id"}, content
    assert response.headers["x-request-id"] == content["request_id"]
    assert isinstance(content["error"], str)
    return content["error"]


def _from_json(output: dict[str, Any]) -> Array:
    if output["datatype"] == "BYTES":
        array = np.empty(len(output["data"]), dtype=object)
        array[:] = [item.encode() for item in output["data"]]
        return array.reshape(output["shape"])
    return np.array(output["data"], NUMPY[output["datatype"]]).reshape(output["shape"])


def array_of(datatype: str, shape: Sequence[int], raw: bytes) -> Array:
    """Returns a tensor that came as raw bytes."""
    if datatype != "BYTES":
        return np.frombuffer(raw, NUMPY[datatype]).reshape(shape)
    items: list[bytes] = []
    at = 0
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        items.append(raw[at + 4 : at + 4 + length])
        at += 4 + length
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array.reshape(shape)
