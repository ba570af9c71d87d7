"""Runs a workload's flow against Triton, whose users branch between models in their client.

A call of a program is one inference by its model, over HTTP with binary tensors. If the programs form an ensemble, a request is
one inference by that. `make_target` is for `loadgen.targets.base.TargetSpec.protocol`; the spec's options name the workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

import numpy as np
import orjson

from benchmarks.peers.triton.models import DATATYPES, as_dims, has_ensemble
from benchmarks.workloads import workload
from benchmarks.workloads.base import Tensors, TensorSpec, Workload
from loadgen.pool import Pool
from loadgen.targets.base import RawAnswer, RequestFailedError, Target, TargetSpec
from loadgen.targets.connections import Connections

_LENGTH = "inference-header-content-length"
_MAX_ERROR_CHARS = 200
_DTYPES = {datatype: np.dtype(dtype) for dtype, datatype in DATATYPES.items()}
_NUM_CACHED = 4096


def make_target(spec: TargetSpec, pool: Pool) -> Target:
    """A client that runs the workload ``spec.options["workload"]`` for each request of the pool."""
    return TritonTarget(spec, pool, workload(spec.options["workload"]))


class TritonTarget:
    """See `loadgen.targets.base.Target`."""

    def __init__(self, spec: TargetSpec, pool: Pool, served: Workload) -> None:
        self._pool = pool
        self._served = served
        self._has_ensemble = has_ensemble(served)
        self._connections = Connections(spec)

    async def __aenter__(self) -> Self:
        await self._connections.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._connections.__aexit__(*error)

    async def infer(self, index: int) -> RawAnswer:
        """Returns the answer to a request; raises RequestFailedError if one of its calls failed."""
        inputs = self._pool.inputs[index]
        if self._has_ensemble:
            return await self._infer(self._served.name, inputs, self._served.outputs)
        answer, _ = await self._served.flow(self._call, inputs)
        return answer

    def decode(self, answer: RawAnswer) -> Tensors:
        """Returns the answer unchanged, since the flow has decoded it already."""
        assert not isinstance(answer, bytes)
        return answer

    async def _call(self, program: str, /, **inputs: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        return await self._infer(program, inputs, self._served.programs[program].outputs)

    async def _infer(self, model: str, inputs: Tensors, outputs: Mapping[str, TensorSpec]) -> dict[str, np.ndarray[Any, Any]]:
        parts = [_packed(array) for array in inputs.values()]
        layout = tuple(
            (name, array.dtype.name, array.shape, len(part)) for (name, array), part in zip(inputs.items(), parts, strict=True)
        )
        head = _request_head(model, layout)
        status, json_bytes, body = await self._connections.exchange(b"".join([head, *parts]))
        if status != 200:
            raise RequestFailedError(f"HTTP {status}: {body[:_MAX_ERROR_CHARS].decode(errors='replace')}")
        return _answer(body, json_bytes, outputs)


@lru_cache(_NUM_CACHED)
def _request_head(model: str, layout: tuple[tuple[str, str, tuple[int, ...], int], ...]) -> bytes:
    """Returns everything in a request except its tensors. It is the same for all requests with equal shapes and lengths."""
    inputs = [
        {
            "name": name,
            "datatype": DATATYPES.get(dtype, "BYTES"),
            "shape": [1, *as_dims(shape)],
            "parameters": {"binary_data_size": num_bytes},
        }
        for name, dtype, shape, num_bytes in layout
    ]
    head = orjson.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}})
    num_bytes = len(head) + sum(entry[3] for entry in layout)
    lines = [
        f"POST /v2/models/{model}/infer HTTP/1.1",
        "host: triton",
        f"content-length: {num_bytes}",
        f"{_LENGTH}: {len(head)}",
    ]
    return "\r\n".join([*lines, "\r\n"]).encode() + head


@lru_cache(_NUM_CACHED)
def _answer_layout(head: bytes) -> tuple[tuple[str, str, tuple[int, ...], int], ...]:
    """Returns name, datatype, shape (with the batch dimension) and length of each output."""
    return tuple(
        (each["name"], each["datatype"], tuple(each["shape"]), each["parameters"]["binary_data_size"])
        for each in orjson.loads(head)["outputs"]
    )


def _answer(body: bytes, json_bytes: int, outputs: Mapping[str, TensorSpec]) -> dict[str, np.ndarray[Any, Any]]:
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    at = json_bytes
    for name, datatype, shape, num_bytes in _answer_layout(body[:json_bytes]):
        item_shape = shape[1:] if outputs[name].shape else ()
        if datatype == "BYTES":
            tensors[name] = _texts(body[at : at + num_bytes], item_shape)
        else:
            dtype = _DTYPES[datatype]
            tensors[name] = np.frombuffer(body, dtype, num_bytes // dtype.itemsize, at).reshape(item_shape)
        at += num_bytes
    return tensors


def _packed(array: np.ndarray[Any, Any]) -> bytes:
    if array.dtype != object:
        return array.tobytes()
    return b"".join(len(text).to_bytes(4, "little") + text for text in map(bytes, array.ravel()))


def _texts(data: bytes, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    texts: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        texts.append(data[at + 4 : end])
        at = end
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)
